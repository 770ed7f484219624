# shellcheck shell=bash
# shellcheck disable=SC2034 # used in the other files
# Names, folders, messages and locks.

BROKERS_HOME=$(realpath -m "${LEAT_BROKERS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/leat-brokers}")
DEADLINE=${LEAT_BROKERS_DEADLINE:-60}
BROKERS=(kafka rabbitmq postgres mariadb redis kafka3 kafka-secure rabbitmq3)
DEFAULT_BROKERS=(kafka rabbitmq postgres mariadb)
declare -A VARIABLE=(
	[kafka]=LEAT_TEST_KAFKA
	[rabbitmq]=LEAT_TEST_AMQP
	[postgres]=LEAT_TEST_POSTGRES
	[mariadb]=LEAT_TEST_MYSQL
	[redis]=LEAT_TEST_REDIS
	[kafka3]=LEAT_TEST_KAFKA3
	[rabbitmq3]=LEAT_TEST_AMQP3
	[kafka-secure]=LEAT_TEST_KAFKA_SECURE
)

# default_run prints a folder of this clone's own, the same at every call.
default_run() {
	local clone=${LIB%/scripts/brokers.d}
	printf '%s/run/%s-%s\n' "$BROKERS_HOME" "${clone##*/}" "$(sha256sum <<<"$clone" | cut -c1-8)"
}
RUN=$(realpath -m "${LEAT_BROKERS_RUN:-$(default_run)}")

say() { printf 'brokers: %s\n' "$*" >&2; }

die() {
	say "$*"
	exit 1
}

known() {
	local name
	for name in "${BROKERS[@]}" {kafka3,rabbitmq3}-{1,2,3}; do
		[[ $name != "$1" ]] || return 0
	done
	die "no broker is called $1; there are ${BROKERS[*]}"
}

# members NAME prints what runs under a name: itself, or the nodes of a cluster.
members() {
	case $1 in
	kafka3 | rabbitmq3) printf '%s\n' "$1"-{1,2,3} ;;
	*) known "$1" && printf '%s\n' "$1" ;;
	esac
}

# kind MEMBER prints the prefix of the functions that know its broker.
kind() {
	case $1 in
	kafka*) echo kafka ;;
	rabbitmq*) echo rabbitmq ;;
	*) echo "$1" ;;
	esac
}

# call MEMBER WHAT [ARG...] runs the function WHAT of the member's kind.
call() {
	local member=$1 what=$2
	shift 2
	"$(kind "$member")_$what" "$member" "$@"
}

# left_to_user NAME: its variable holds a URL that is not this script's, nor one that it
# printed before a down.
left_to_user() {
	local variable=${VARIABLE[${1%-[123]}]} given
	given=${!variable:-}
	[[ $given && $given != "$(url "${1%-[123]}")" ]] || return 1
	[[ ! $given =~ 127\.0\.0\.1:([0-9]+) ]] || ! own_range "${BASH_REMATCH[1]}" || answers "${BASH_REMATCH[1]}"
}

# with_lock FILE COMMAND... runs COMMAND in a subshell that holds the lock on descriptor 9.
with_lock() (
	mkdir -p "$(dirname "$1")"
	exec 9>"$1"
	if ! flock -w 2 9; then
		say "waiting for another scripts/brokers ($1)"
		flock 9
	fi
	shift
	"$@"
)

# locked MEMBER COMMAND...: one command at a time on each member. Lock files stay:
# deleting one would let two commands hold it.
locked() {
	local member=$1
	shift
	with_lock "$RUN/locks/$member" "$@"
}

# seconds_since TIME prints the seconds since an earlier $EPOCHREALTIME, as 1.2.
seconds_since() {
	local micros=$((${EPOCHREALTIME/[.,]/} - ${1/[.,]/}))
	printf '%d.%d' $((micros / 1000000)) $((micros / 100000 % 10))
}

need_root() {
	((EUID == 0)) || die "must run as root, as brokers get users and namespaces of their own. $ELSEWHERE"
}
ELSEWHERE="Without that: docker compose up (compose.yaml), or set LEAT_TEST_KAFKA, LEAT_TEST_AMQP, LEAT_TEST_POSTGRES, LEAT_TEST_MYSQL, LEAT_TEST_REDIS to brokers of your own"
