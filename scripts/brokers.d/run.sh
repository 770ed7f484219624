# shellcheck shell=bash
# A command with brokers of its own.

# run_with NAME... -- COMMAND...: brokers of their own run folder, their variables, the
# command; after it, however it ends, they are taken down, and so is what tests of the
# command have started beside them and not taken down themselves.
run_with() {
	local names=()
	while (($#)) && [[ $1 != -- ]]; do
		known "$1"
		names+=("$1")
		shift
	done
	# shellcheck disable=SC2154 # of scripts/brokers
	(($# > 1)) || die "$command_line: name brokers, then -- and a command"
	shift
	OWN=$(mktemp -d "${TMPDIR:-/tmp}/leat-XXXXXX")
	RUN=$OWN/shared DEADLINE=${LEAT_BROKERS_DEADLINE:-120}
	export LEAT_BROKERS_RUN=$RUN LEAT_BROKERS_DEADLINE=$DEADLINE
	trap take_own_down EXIT
	if ! up_each "${names[@]}"; then
		[[ ! ${CI:-} ]] || die "CI is set, and brokers are missing"
	elif (install_all "${names[@]}"); then # though others may be left to the user
		export LEAT_TEST_OWN=1
	fi
	eval "$(print_env)"
	"$@"
}

# up_each NAME...: as up, but one that cannot be had does not keep the others away.
up_each() {
	local name waits=() missing=()
	for name; do
		(up_all "$name") &
		waits+=($!)
	done
	for name; do
		wait "${waits[0]}" || missing+=("$name")
		waits=("${waits[@]:1}")
	done
	((${#missing[@]})) || return 0
	say "WITHOUT ${missing[*]}: tests that need them, and tests with brokers of their own, are skipped"
	[[ ! ${SKIPS:-} ]] || printf 'tests with %s\n' "${missing[@]}" >>"$SKIPS"
	return 1
}

take_own_down() {
	local status=$? run
	trap '' INT TERM HUP
	for run in "$OWN"/*/; do
		LEAT_BROKERS_RUN=$run "$LIB/../brokers" down || status=1
	done
	rm -rf --one-file-system "$OWN"
	exit "$status"
}
