# shellcheck shell=bash
# What runs, where, and what it said.

url() { call "$1" url; }

print_status() {
	local name member state
	for name in "${BROKERS[@]}"; do
		! left_to_user "$name" || printf '%-12s yours: %s is set\n' "$name" "${VARIABLE[$name]}"
		for member in $(members "$name"); do
			[[ -d $RUN/$member ]] || continue
			state=stopped
			! alive "$member" || state=running
			! paused "$member" || state=paused
			printf '%-12s %-8s %-8s %s\n' "$member" "$state" "${PID:--}" "$(url "$member")"
		done
	done
}

print_env() {
	local name member
	for name in "${BROKERS[@]}"; do
		! left_to_user "$name" || continue
		for member in $(members "$name"); do
			if alive "$member"; then
				printf "export %s='%s'\n" "${VARIABLE[$name]}" "$(url "$name")"
				break
			fi
		done
	done
}

print_logs() {
	local name member
	(($#)) || die "logs of which broker? See scripts/brokers help."
	for name; do
		for member in $(members "$name"); do
			[[ -f $RUN/$member/log ]] || die "$member has no log: it is not up"
			cat "$RUN/$member/log"
		done
	done
}
