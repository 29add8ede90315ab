#!/bin/sh
# A file system in a file: `loop.sh mount TYPE OPTIONS`, `loop.sh unmount`. Needs root.
# Environment: LAB_WORK, the directory that has both.
set -eu
PATH=/usr/sbin:/sbin:$PATH
base=${LAB_WORK:?is not set: postlab run sets it to a private directory}/loop

# Only the pool of this run.
pool=postlab-$(echo "$base" | cksum | cut -d ' ' -f 1)

unmount() {
	if command -v zpool >/dev/null && zpool list "$pool" >/dev/null 2>&1; then zpool destroy -f "$pool"; fi
	if mountpoint -q "$base/mnt"; then umount "$base/mnt"; fi
	rm -f "$base/disk"
}

mount_one() {
	unmount
	mkdir -p "$base/mnt"
	case $1 in
	tmpfs) maker=true ;;
	zfs) maker=zpool ;;
	*) maker=mkfs.$1 ;;
	esac
	if ! command -v "$maker" >/dev/null; then
		echo "loop.sh: $1: NOT AVAILABLE: $maker is not installed" >&2
		exit 69
	fi
	if ! grep -qw "$1" /proc/filesystems && ! modprobe -q "$1" 2>/dev/null; then
		echo "loop.sh: $1: NOT AVAILABLE: this kernel does not have it" >&2
		exit 69
	fi
	if [ "$1" = tmpfs ]; then
		mount -t tmpfs -o "$2" tmpfs "$base/mnt"
		return
	fi
	# Written, not sparse: else the first writes find room for themselves twice.
	dd if=/dev/zero of="$base/disk" bs=1M count=1024 status=none
	case $1 in
	ext4) mkfs.ext4 -q -F "$base/disk" ;;
	xfs) mkfs.xfs -q -f "$base/disk" ;;
	btrfs) mkfs.btrfs -q -f "$base/disk" ;;
	f2fs) mkfs.f2fs -q -f "$base/disk" ;;
	jfs) mkfs.jfs -q "$base/disk" >/dev/null ;;
	reiserfs) mkfs.reiserfs -q -ff "$base/disk" >/dev/null 2>&1 ;;
	zfs)
		# A pool knows no loop device: it takes the file.
		zpool create -f -m "$base/mnt" "$pool" "$base/disk"
		return
		;;
	*) echo "loop.sh: $1 is none of ext4, xfs, btrfs, f2fs, zfs, jfs, reiserfs, tmpfs" >&2; exit 64 ;;
	esac
	mount -t "$1" -o "loop,$2" "$base/disk" "$base/mnt"
}

case ${1:-} in
mount) mount_one "$2" "${3:-defaults}" ;;
unmount) unmount ;;
*) echo "usage: $0 mount TYPE OPTIONS | unmount" >&2; exit 64 ;;
esac
