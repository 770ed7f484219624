# shellcheck shell=bash
# MariaDB.

mariadb_folder() { echo "$ROOT"; }
mariadb_user() { echo mysql; }
mariadb_uses() { echo client; }
mariadb_url() { echo "mysql://root@127.0.0.1:$(port "$1" client)/leat"; }

mariadb_init() {
	once "$1" mariadb-install-db --no-defaults --datadir=/srv/db --auth-root-authentication-method=normal --skip-test-db
}

mariadb_command() {
	printf '%s\n' MYSQL_HOST=127.0.0.1 MYSQL_TCP_PORT="$(port "$1" client)" \
		mariadbd --no-defaults --datadir=/srv/db --port="$(port "$1" client)" \
		--bind-address=127.0.0.1 --skip-name-resolve --socket=/srv/mariadb.sock \
		--character-set-server=utf8mb4 --max-connections=200
}

mariadb_ready() { exec_in "$1" timeout 2 mariadb --no-defaults --user=root -e 'SELECT 1' >/dev/null 2>&1; }

mariadb_setup() {
	exec_in "$1" mariadb --no-defaults --user=root <<-'SQL'
		CREATE DATABASE IF NOT EXISTS leat CHARACTER SET utf8mb4;
		CREATE USER IF NOT EXISTS leat IDENTIFIED BY 'leat';
		GRANT ALL ON leat.* TO leat;
	SQL
}
