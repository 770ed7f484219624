# shellcheck shell=bash
# Redis.

redis_folder() { echo "$ROOT"; }
redis_user() { echo redis; }
redis_uses() { echo client; }
redis_url() { echo "redis://127.0.0.1:$(port "$1" client)"; }
redis_init() { :; }

redis_command() {
	printf '%s\n' REDISCLI_HOST=127.0.0.1 redis-server --bind 127.0.0.1 --port "$(port "$1" client)" \
		--dir /srv --appendonly yes --daemonize no
}

redis_ready() { [[ $(ask "$(port "$1" client)" 'PING\r\n' 5) == ' 2b 50 4f 4e 47' ]]; }
