#!/bin/sh
# Slow disks of their own: `disks.sh mount COUNT`, `disks.sh unmount`. Needs root, nbdkit, nbdfuse (Debian's libnbd-bin) and e2fsprogs.
# Each is memory behind a queue that does one request at a time, and takes DISK_WRITE (default 1ms) for a write: a spindle, whose
# speed is that of no other. Mounted as $LAB_WORK/disks/1 and so on, with ext4.
set -eu
PATH=/usr/sbin:/sbin:$PATH
base=${LAB_WORK:?is not set: postlab run sets it to a private directory}/disks

unmount() {
	for disk in "$base"/*.disk; do
		[ -e "$disk" ] || continue
		one=${disk%.disk}
		mountpoint -q "$one" && umount "$one"
		[ ! -s "$one.loop" ] || losetup -d "$(cat "$one.loop")" || true
		# nbdfuse ends with its mount, and nbdkit with nbdfuse; the loop device lets go of it a bit later.
		for _ in $(seq 50); do mountpoint -q "$disk" || break; umount "$disk" 2>/dev/null || sleep 0.1; done
		! mountpoint -q "$disk" || umount --lazy "$disk"
		rm -f "$one.loop"
	done
	rm -rf --one-file-system "$base"
}

mount_one() { # NUMBER
	one=$base/$1
	mkdir -p "$one"
	: >"$one.disk"
	nbdfuse "$one.disk" --command nbdkit -s --exit-with-parent --filter=noparallel --filter=delay memory 768M \
		serialize=requests "delay-write=${DISK_WRITE:-1ms}" </dev/null >"$one.log" 2>&1 &
	for _ in $(seq 50); do [ "$(stat -c %s "$one.disk")" -gt 0 ] && break; sleep 0.1; done
	# Each write of the file system is one request of the disk.
	loop=$(losetup --direct-io=on -f --show "$one.disk") || { echo "disks.sh: NOT AVAILABLE: no loop device on nbdfuse: $(cat "$one.log")" >&2; exit 69; }
	echo "$loop" >"$one.loop"
	# Without a journal to initialize later, and without inodes to clear later: nothing writes but the mail server.
	mkfs.ext4 -q -N 65536 -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
	mount "$loop" "$one"
}

case ${1:-} in
mount)
	for tool in nbdkit nbdfuse losetup mkfs.ext4; do
		command -v "$tool" >/dev/null || { echo "disks.sh: NOT AVAILABLE: $tool is not installed" >&2; exit 69; }
	done
	unmount
	for number in $(seq "${2:-1}"); do mount_one "$number"; done
	;;
unmount) unmount ;;
*) echo "usage: $0 mount COUNT | unmount" >&2; exit 64 ;;
esac
