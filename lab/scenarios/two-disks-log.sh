#!/bin/bash
# What a log gains if content is on a disk of its own: a commit then syncs two files at once, one on each disk. Two slow disks of memory
# (disks.sh), and one of them for both. Needs root, nbdkit, nbdfuse and e2fsprogs.
#   two-disks-log.sh [ROUNDS [MESSAGES]]
# Environment: POSTLAB (default target/dist/postlab), DISK_WRITE (the time of a write, default 1ms).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
postlab=${POSTLAB:-target/dist/postlab}
LAB_WORK=$(mktemp -d)
export LAB_WORK
trap 'sh "$here/disks.sh" unmount; rmdir "$LAB_WORK"' EXIT
sh "$here/disks.sh" mount 2
for length in 1024 65536; do
  for content in "" "$LAB_WORK/disks/2"; do
    if [ -n "$content" ]; then place="on a second disk"; else place="in the log"; fi
    echo "content of $length octets $place"
    "$postlab" commit-window -w 0 -s 1,50 -m "${2:-1000}" -l "$length" --rounds "${1:-5}" ${content:+--content "$content"} "$LAB_WORK/disks/1"
  done
done
