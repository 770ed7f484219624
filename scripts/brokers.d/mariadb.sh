# shellcheck shell=bash
# MariaDB, or MySQL in a suite that has no MariaDB here.

mariadb_folder() { echo "$ROOT"; }
mariadb_user() { echo mysql; }
mariadb_uses() { echo client; }
mariadb_url() { echo "mysql://root@127.0.0.1:$(port "$1" client)/leat"; }

mariadb_init() {
	if [[ $MYSQL == mysql ]]; then
		# Root is let in from localhost alone, and here addresses have no names.
		echo "RENAME USER root@localhost TO root@127.0.0.1;" >"$RUN/$1/data/root.sql"
		once "$1" mysqld --no-defaults --initialize-insecure --datadir=/srv/db --init-file=/srv/root.sql
	else
		once "$1" mariadb-install-db --no-defaults --datadir=/srv/db --auth-root-authentication-method=normal --skip-test-db
	fi
}

mariadb_command() {
	local words=(mariadbd)
	[[ $MYSQL == mariadb ]] || words=(mysqld --mysqlx=OFF --max-allowed-packet=16M)
	printf '%s\n' MYSQL_HOST=127.0.0.1 MYSQL_TCP_PORT="$(port "$1" client)" \
		"${words[0]}" --no-defaults "${words[@]:1}" --datadir=/srv/db --port="$(port "$1" client)" \
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
