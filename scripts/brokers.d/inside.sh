#!/usr/bin/env bash
# inside.sh ROOT DATA PIDFILE COMMAND...
#
# The first process of new mount, pid and ipc namespaces. It becomes COMMAND, which
# therefore has process id 1 there: when it ends, for whatever reason, the kernel kills
# what it left behind and drops the mounts and shared memory. With ROOT, COMMAND runs in
# that root, read-only, with DATA at /srv; with ROOT empty, in the machine's own.
# PIDFILE, if not empty, gets the process id as seen from outside, its start time, and
# the id of its parent, which waits for it.
set -euo pipefail
root=$1 data=$2 pidfile=$3
shift 3

if [[ $pidfile ]]; then
	read -ra stat </proc/self/stat # the outer /proc still
	printf '%s %s %s\n' "${stat[0]}" "${stat[21]}" "${stat[3]}" >"$pidfile.new"
	mv "$pidfile.new" "$pidfile"
fi
umask 022
ulimit -n 65536 2>/dev/null || true

if [[ ! $root ]]; then
	mount -t proc proc /proc
	exec "$@"
fi
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
# Devices of its own: those of the machine may not be open to the broker's user.
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
	mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
for folder in dev/shm run tmp; do
	mount -t tmpfs -o mode=1777 tmpfs "$root/$folder"
done
mount --bind "$data" "$root/srv"
exec chroot "$root" "$@"
