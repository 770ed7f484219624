# shellcheck shell=bash
# RabbitMQ: rabbitmq is one node, rabbitmq3-1 to rabbitmq3-3 are a cluster. Its epmd,
# which outlives it elsewhere, ends with its namespace.

rabbitmq_folder() { echo "$ROOT"; }
rabbitmq_user() { echo rabbitmq; }
rabbitmq_uses() { echo client nodes epmd tls; }

rabbitmq_url() {
	local node addresses=()
	for node in $(members "$1"); do addresses+=("127.0.0.1:$(port "$node" client)"); done
	(
		IFS=,
		echo "amqp://guest:guest@${addresses[*]}"
	)
}

# The nodes of a cluster find each other by their names, and know each other by a cookie.
rabbitmq_init() {
	local node data=$RUN/$1/data
	[[ $1 != rabbitmq ]] || return 0
	for node in $(members "${1%-[123]}"); do
		printf 'cluster_formation.classic_config.nodes.%s = %s\n' "${node##*-}" "$(rabbitmq_node "$node")"
	done >"$data/rabbitmq.conf" &&
		printf 'leat' >"$data/.erlang.cookie" &&
		chmod 400 "$data/.erlang.cookie" &&
		chown "$(ids "$1")" "$data/.erlang.cookie"
}

rabbitmq_node() { echo "leat${1#rabbitmq}@localhost"; }

# Idle schedulers would spin for a while, which other processes pay for: +sbwt none.
# Nodes of a cluster share one epmd, which any of them has: when that one is killed,
# another one's takes its place, and the nodes that are left enter themselves again.
# TLS_PORT is for tests that configure TLS.
rabbitmq_command() {
	local loopback='-kernel inet_dist_use_interface {127,0,0,1}' epmd=$1
	local words=(rabbitmq-server)
	if [[ $1 != rabbitmq ]]; then
		epmd=${1%-[123]}-1
		words=(sh -c 'while :; do epmd; sleep 1; done & exec rabbitmq-server')
	fi
	printf '%s\n' PATH=/usr/lib/rabbitmq/bin:/usr/bin:/bin \
		ERL_EPMD_PORT="$(port "$epmd" epmd)" \
		ERL_EPMD_ADDRESS=127.0.0.1 \
		RABBITMQ_NODENAME="$(rabbitmq_node "$1")" \
		RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 \
		RABBITMQ_NODE_PORT="$(port "$1" client)" \
		RABBITMQ_DIST_PORT="$(port "$1" nodes)" \
		RABBITMQ_MNESIA_BASE=/srv/mnesia \
		RABBITMQ_LOG_BASE=/srv/log \
		RABBITMQ_LOGS=- \
		RABBITMQ_CONFIG_FILE=/srv/rabbitmq \
		RABBITMQ_ENABLED_PLUGINS_FILE=/srv/enabled_plugins \
		RABBITMQ_GENERATED_CONFIG_DIR=/srv/config \
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none $loopback" \
		RABBITMQ_CTL_ERL_ARGS="$loopback" \
		TLS_PORT="$(port "$1" tls)" \
		"${words[@]}"
}

# The answer to an AMQP header is a method frame, of type 1.
rabbitmq_ready() {
	[[ $(ask "$(port "$1" client)" 'AMQP\0\0\11\1' 1) == ' 01' ]]
}
