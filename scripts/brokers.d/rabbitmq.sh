# shellcheck shell=bash
# RabbitMQ. Its epmd, which outlives it elsewhere, ends with its namespace.

rabbitmq_folder() { echo "$ROOT"; }
rabbitmq_user() { echo rabbitmq; }
rabbitmq_uses() { echo client nodes epmd; }
rabbitmq_url() { echo "amqp://guest:guest@127.0.0.1:$(port "$1" client)"; }
rabbitmq_init() { :; }

# Idle schedulers would spin for a while, which other processes pay for: +sbwt none.
rabbitmq_command() {
	local loopback='-kernel inet_dist_use_interface {127,0,0,1}'
	printf '%s\n' PATH=/usr/lib/rabbitmq/bin:/usr/bin:/bin \
		ERL_EPMD_PORT="$(port "$1" epmd)" \
		ERL_EPMD_ADDRESS=127.0.0.1 \
		RABBITMQ_NODENAME=leat@localhost \
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
		rabbitmq-server
}

# The answer to an AMQP header is a method frame, of type 1.
rabbitmq_ready() {
	[[ $(ask "$(port "$1" client)" 'AMQP\0\0\11\1' 1) == ' 01' ]]
}
