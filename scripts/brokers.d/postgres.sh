# shellcheck shell=bash
# PostgreSQL.

postgres_folder() { echo "$ROOT"; }
postgres_user() { echo postgres; }
postgres_uses() { echo client; }
postgres_url() { echo "postgres://postgres@127.0.0.1:$(port "$1" client)/leat?sslmode=disable"; }

POSTGRES_PATH=PATH=/usr/lib/postgresql/$POSTGRES/bin:/usr/bin:/bin

# leat needs its password, all others come in without one.
postgres_init() {
	once "$1" "$POSTGRES_PATH" initdb -D /srv/db -A trust -U postgres --encoding=UTF8 --no-locale --no-sync &&
		cat >"$RUN/$1/data/db/pg_hba.conf" <<-HBA
			local all all trust
			host all leat 127.0.0.1/32 scram-sha-256
			host all all 127.0.0.1/32 trust
		HBA
}

postgres_command() {
	printf '%s\n' "$POSTGRES_PATH" PGHOST=127.0.0.1 PGPORT="$(port "$1" client)" PGUSER=postgres \
		postgres -D /srv/db -p "$(port "$1" client)" \
		-c listen_addresses=127.0.0.1 -c unix_socket_directories=/srv -c max_connections=200
}

postgres_ready() { exec_in "$1" pg_isready -q -t 2; }

postgres_setup() {
	exec_in "$1" psql -qX -v ON_ERROR_STOP=1 <<-'SQL'
		SELECT $$CREATE ROLE leat LOGIN PASSWORD 'leat'$$ WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'leat') \gexec
		SELECT 'CREATE DATABASE leat OWNER leat' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'leat') \gexec
	SQL
}
