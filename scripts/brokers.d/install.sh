# shellcheck shell=bash
# What is downloaded, once, into BROKERS_HOME. Each part is built beside its place and
# renamed, so that what has its name is whole; after that no network is needed.

SUITE=${LEAT_BROKERS_SUITE:-trixie} # of Debian
case $SUITE in
bookworm) POSTGRES=15 MYSQL=mariadb ;;
trixie) POSTGRES=17 MYSQL=mariadb ;;
sid) POSTGRES=18 MYSQL=mysql ;;
*) die "LEAT_BROKERS_SUITE is $SUITE: there are bookworm, trixie and sid" ;;
esac
PACKAGES=rabbitmq-server,postgresql-$POSTGRES,$MYSQL-server,redis-server
ROOT=$BROKERS_HOME/$SUITE-$(cksum <<<"$PACKAGES" | cut -d' ' -f1)
KAFKA=$BROKERS_HOME/kafka-$(cksum "$LIB/kafka/pom.xml" | cut -d' ' -f1)

install_all() {
	local name folder
	for name; do known "$name"; done
	need_root
	for name; do
		folder=$(call "$name" folder)
		[[ -d $folder ]] || with_lock "$BROKERS_HOME/locks/install" install_folder "$folder"
	done
}

install_folder() {
	local folder=$1 began=$EPOCHREALTIME
	[[ ! -d $folder ]] || return 0 # by another clone, while this one waited
	rm -rf --one-file-system "$folder.new"
	case $folder in
	"$ROOT") install_root "$folder.new" ;;
	"$KAFKA") install_kafka "$folder.new" ;;
	esac
	mv "$folder.new" "$folder"
	say "installed into $folder ($(du -sh "$folder" | cut -f1), $(seconds_since "$began") s)"
}

# install_root makes a Debian root of its own: the machine's packages and services
# stay as they are, and every machine runs the same versions. In private namespaces,
# as debootstrap mounts, and packages may start daemons. MySQL gets MariaDB's client by name.
install_root() {
	local root=$1 mirror proxy log=$BROKERS_HOME/install.log
	mirror=$(debian_mirror)
	proxy=${http_proxy:-$(apt-config dump --format '%v%n' Acquire::http::Proxy)}
	install_debootstrap
	say "installing $PACKAGES of Debian $SUITE; takes a minute or two"
	mkdir -p "$BROKERS_HOME"
	http_proxy=$proxy unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
		debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$root" "$mirror" >"$log" 2>&1 ||
		die "debootstrap failed; the end of $log:
$(tail -n 20 "$log")"
	[[ $MYSQL == mariadb ]] || ln -s mysql "$root/usr/bin/mariadb"
	printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
	: >"$root/etc/resolv.conf"
	rm -rf --one-file-system "$root"/var/{cache/apt,lib/apt/lists,lib/mysql,lib/postgresql}/* \
		"$root"/usr/share/{doc,man,locale}/*
}

install_debootstrap() {
	if ! command -v debootstrap >/dev/null || ! [[ -f /usr/share/keyrings/debian-archive-keyring.gpg ]]; then
		say "installing debootstrap by apt-get"
		{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends debootstrap debian-archive-keyring; } \
			>"$BROKERS_HOME/install.log" 2>&1 || die "apt-get could not install debootstrap:
$(tail -n 20 "$BROKERS_HOME/install.log")"
	fi
}

# debian_mirror prints where apt gets Debian from on this machine.
debian_mirror() {
	local mirror=${LEAT_BROKERS_MIRROR:-}
	command -v apt-get >/dev/null || die "needs Debian: there is no apt-get here. $ELSEWHERE"
	if [[ ! $mirror && $(. /etc/os-release && echo "$ID") == debian ]]; then
		# shellcheck disable=SC2016 # the dollar is apt's
		mirror=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
			awk '$2 == "main" && $1 ~ /\/debian\/?$/ { print $1; exit }')
	fi
	[[ $mirror ]] || die "apt's sources name no Debian mirror; set LEAT_BROKERS_MIRROR to one. $ELSEWHERE"
	echo "$mirror"
}

install_kafka() {
	local folder=$1 log=$BROKERS_HOME/install.log
	need_java
	command -v mvn >/dev/null || die "kafka needs Maven to be installed: apt-get install maven"
	say "installing Kafka by Maven"
	mkdir -p "$folder"
	cp "$LIB/kafka/pom.xml" "$folder"
	mvn -q -B -f "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$folder/libs" >"$log" 2>&1 ||
		die "mvn could not get the jars of Kafka; the end of $log:
$(tail -n 20 "$log")"
}

need_java() {
	local version
	version=$(java -version 2>&1 | sed -nE '1s/.*"([0-9]+).*/\1/p') || true
	((${version:-0} >= 17)) || die "kafka needs Java 17 or newer in PATH (found: ${version:-none}): apt-get install openjdk-17-jre-headless"
}
