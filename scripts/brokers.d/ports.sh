# shellcheck shell=bash
# Free ports on 127.0.0.1, below those the kernel gives to outgoing connections. A port
# is reserved for a member of a run folder until down, so that it is the same after a
# restart, and no other clone takes it in between.

FIRST_PORT=21400
LAST_PORT=22399
PORT_TABLE=$BROKERS_HOME/ports # PORT RUN MEMBER USE, one a line

# port MEMBER USE prints the reserved port, or nothing.
port() {
	local reserved=$RUN/$1/ports
	[[ ! -f $reserved ]] || awk -v use="$2" '$1 == use { print $2 }' "$reserved"
}

# reserve_ports MEMBER USE... reserves one port for each use, once.
reserve_ports() {
	local member=$1
	[[ ! -f $RUN/$member/ports ]] || return 0
	with_lock "$BROKERS_HOME/locks/ports" choose_ports "$@"
}

choose_ports() {
	local member=$1 use candidate=$FIRST_PORT chosen=()
	shift
	[[ ! -f $RUN/$member/ports ]] || return 0
	forget_released
	for use; do
		while port_taken "$candidate"; do
			((++candidate <= LAST_PORT)) || die "no free port between $FIRST_PORT and $LAST_PORT (see $PORT_TABLE)"
		done
		chosen+=("$use $candidate")
		printf '%s\t%s\t%s\t%s\n' "$candidate" "$RUN" "$member" "$use" >>"$PORT_TABLE"
	done
	mkdir -p "$RUN/$member"
	printf '%s\n' "${chosen[@]}" >"$RUN/$member/ports.new"
	mv "$RUN/$member/ports.new" "$RUN/$member/ports"
}

port_taken() {
	grep -q "^$1	" "$PORT_TABLE" || answers "$1"
}

# answers PORT: something listens there.
answers() {
	(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

own_range() { (($1 >= FIRST_PORT && $1 <= LAST_PORT)); }

# forget_released drops the ports of members that are down, or whose run folder is gone.
forget_released() {
	local number run rest kept=''
	touch "$PORT_TABLE"
	while IFS=$'\t' read -r number run rest; do
		[[ ! -f $run/${rest%%$'\t'*}/ports ]] || kept+="$number	$run	$rest"$'\n'
	done <"$PORT_TABLE"
	printf '%s' "$kept" >"$PORT_TABLE"
}
