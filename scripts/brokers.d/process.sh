# shellcheck shell=bash
# The life of a member: RUN/MEMBER has its data, its log, its reserved ports, and in pid
# the first process of its namespaces (see inside.sh). Each kind of broker is a file of
# functions that take the member's name:
#
#   folder   where it is installed      user     whom it runs as
#   uses     the names of its ports     url      what clients connect to
#   init     makes the first data       command  [VAR=VALUE...] and the words that start it
#   ready    does it serve by now?      setup    databases and users, at every start

up_all() {
	local name member mine=() waits=() failed=0
	for name; do
		known "$name"
		if left_to_user "$name"; then
			say "$name is left to you, as ${VARIABLE[${name%-[123]}]} is set"
		else
			mine+=("$name")
		fi
	done
	((${#mine[@]})) || return 0
	install_all "${mine[@]}"
	for name in "${mine[@]}"; do
		reserve_all "$name"
		for member in $(members "$name"); do
			locked "$member" up_one "$member" &
			waits+=($!)
		done
	done
	for member in "${waits[@]}"; do wait "$member" || failed=1; done
	return "$failed"
}

# reserve_all NAME: before any start, as the nodes of a cluster are told each other's ports.
reserve_all() {
	local member
	for member in $(members "${1%-[123]}"); do
		# shellcheck disable=SC2046 # words
		reserve_ports "$member" $(call "$member" uses)
	done
}

up_one() {
	local member=$1 began=$EPOCHREALTIME
	if ! alive "$member"; then
		start "$member"
	elif paused "$member"; then
		signal_all "$member" CONT
	fi
	if [[ $member == rabbitmq3-* ]]; then
		# shellcheck disable=SC2153 # of common.sh
		within "$DEADLINE" ready_or_gone "$member" || true
		alive "$member" || start "$member" # it ends at times when another node starts beside it
	fi
	await_ready "$member"
	if declare -F "$(kind "$member")_setup" >/dev/null; then
		call "$member" setup >>"$RUN/$member/log" 2>&1 || fail "$member" "$member refused its set-up"
	fi
	say "$member ready after $(seconds_since "$began") s: $(url "$member")"
}

start() {
	local member=$1 dir=$RUN/$1 words
	if [[ ! -f $dir/initialised ]]; then
		rm -rf --one-file-system "$dir/data"
		mkdir -p "$dir/data"
		[[ ! $(root_of "$member") ]] || chown "$(ids "$member")" "$dir/data"
		call "$member" init >>"$dir/log" 2>&1 || fail "$member" "$member: first data could not be made"
		touch "$dir/initialised"
	fi
	rm -f "$dir/pid"
	printf '=== start of %s, %(%F %T)T\n' "$member" -1 >>"$dir/log"
	wc -c <"$dir/log" >"$dir/log.start"
	words=$(call "$member" command)
	mapfile -t words <<<"$words"
	as_user_of "$member"
	setsid unshare --mount --propagation private --pid --ipc --fork \
		"$LIB/inside.sh" "$(root_of "$member")" "$dir/data" "$dir/pid" "${AS_USER[@]}" "${words[@]}" \
		</dev/null >>"$dir/log" 2>&1 9>&- &
	within 10 test -f "$dir/pid" || fail "$member" "$member did not start; are mount and pid namespaces allowed here?"
}

# once MEMBER WORD...: runs a command to its end where the member would run.
once() {
	local member=$1
	shift
	as_user_of "$member"
	unshare --mount --propagation private --pid --ipc --fork \
		"$LIB/inside.sh" "$(root_of "$member")" "$RUN/$member/data" '' "${AS_USER[@]}" "$@"
}

# exec_in MEMBER WORD...: runs a command beside a running member, with the variables that
# its own command begins with.
exec_in() {
	local member=$1 word words=()
	shift
	alive "$member" || die "$member does not run"
	as_user_of "$member"
	while read -r word && [[ $word == *=* ]]; do words+=("$word"); done < <(call "$member" command)
	nsenter --target "$PID" --mount --pid --ipc --root --wd "${AS_USER[@]}" "${words[@]}" "$@"
}

# as_user_of MEMBER sets AS_USER to the words before VAR=VALUE... COMMAND... that run it
# as the member's user with a small environment.
as_user_of() {
	local user
	user=$(call "$1" user)
	AS_USER=(env)
	[[ ! $(root_of "$1") ]] || AS_USER=(setpriv --reuid="$user" --regid="$user" --init-groups
		env -i LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/srv)
}

root_of() {
	[[ $(call "$1" folder) != "$ROOT" ]] || echo "$ROOT"
}

# ids MEMBER prints the uid:gid of the member's user in ROOT.
ids() {
	awk -F: -v user="$(call "$1" user)" '$1 == user { print $3 ":" $4 }' "$ROOT/etc/passwd"
}

# alive MEMBER: its first process exists; PID is set to its id, STATE to its state as in
# ps. A zombie does not count: by then the kernel has killed the rest. The start time
# tells it from a later process with the same id.
alive() {
	local started stat
	PID='' STATE='' LAUNCHER=''
	[[ -f $RUN/$1/pid ]] || return 1
	read -r PID started LAUNCHER <"$RUN/$1/pid"
	if stat=$(process_stat "$PID"); then
		read -ra stat <<<"$stat"
		STATE=${stat[0]}
		[[ ${stat[19]} != "$started" ]] || return 0
	fi
	PID=''
	return 1
}

# gone MEMBER: nothing of it is left, not even unshare, which waits for it.
gone() { ! alive "$1" && ! { [[ $LAUNCHER ]] && process_stat "$LAUNCHER" >/dev/null; }; }

paused() { alive "$1" && [[ $STATE == T ]]; }

# process_stat PID prints the fields of /proc/PID/stat from the state on, if it still runs.
process_stat() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	stat=${stat##*) }
	[[ $stat != [ZX]* ]] && printf '%s\n' "$stat"
}

# within SECONDS COMMAND...: waits until COMMAND is true.
within() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < deadline)) || return 1
		sleep 0.1
	done
}

await_ready() {
	# shellcheck disable=SC2153 # of common.sh
	within "$DEADLINE" ready_or_gone "$1" || fail "$1" "$1 is not ready after $DEADLINE s"
	alive "$1" || fail "$1" "$1 ended while it started"
}

ready_or_gone() { gone "$1" || call "$1" ready; }

# fail MEMBER MESSAGE: nothing half-started stays behind, but its log and data do.
fail() {
	local log=$RUN/$1/log
	! alive "$1" || kill_one "$1"
	die "$2; the end of $log:
$(tail -n 20 "$log")"
}

# ask PORT REQUEST COUNT prints the first COUNT bytes of the answer, in hex.
ask() {
	# shellcheck disable=SC2016 # for the inner bash
	timeout 2 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1" && printf "$2" >&3 && head -c "$3" <&3' _ "$@" 2>/dev/null | od -An -tx1
}

# signal_all MEMBER SIGNAL signals every process of the member's pid namespace, again
# until none is new: one that was about to fork may still have done so.
signal_all() {
	local member=$1 signal=$2 before='' now
	alive "$member" || die "$member does not run"
	while now=$(processes "$PID") && [[ $now != "$before" ]]; do
		# shellcheck disable=SC2086 # words
		kill -"$signal" $now 2>/dev/null || true
		before=$now
	done
}

processes() {
	local namespace
	namespace=$(readlink "/proc/$1/ns/pid")
	# Its brackets would be a pattern of find's.
	find /proc -maxdepth 3 -path '/proc/[0-9]*/ns/pid' -lname "${namespace//[][]/?}" 2>/dev/null | cut -d/ -f3 || true
}

pause_one() { signal_all "$1" STOP; }

resume_one() { signal_all "$1" CONT; }

kill_one() {
	alive "$1" || die "$1 does not run"
	kill -KILL "$PID"
	within "$DEADLINE" gone "$1" || die "$1: process $PID does not end"
}

stop_one() {
	local signal=TERM
	alive "$1" || return 0
	[[ $1 != postgres ]] || signal=INT # which does not wait for clients
	! paused "$1" || signal_all "$1" CONT
	kill -"$signal" "$PID"
	if ! within "$DEADLINE" gone "$1"; then
		say "$1 did not stop within $DEADLINE s: killed"
		kill_one "$1"
	fi
}

restart_one() {
	[[ -f $RUN/$1/initialised ]] || die "$1 was never up"
	stop_one "$1"
	up_one "$1"
}

down_all() {
	local name member waits=() failed=0
	for name; do
		[[ -v VARIABLE[$name] ]] || die "down takes ${BROKERS[*]}, not $name"
		for member in $(members "$name"); do
			[[ -d $RUN/$member ]] || continue
			need_root
			locked "$member" down_one "$member" &
			waits+=($!)
		done
	done
	for member in "${waits[@]}"; do wait "$member" || failed=1; done
	return "$failed"
}

down_one() {
	stop_one "$1"
	rm -rf --one-file-system "${RUN:?}/$1"
}
