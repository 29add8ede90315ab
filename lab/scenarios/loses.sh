#!/bin/bash
# What a durability mode of Postrider loses when the power goes: `loses.sh [MODE...]`, default: durable after-checks deliver-first none.
# A file system of its own (a loop device on a file of 1 GB) holds the spool. While 50 sessions send, the daemon is stopped with SIGSTOP,
# so that no reply follows, and the file is copied: that is what a disk has which loses its power, without what only the memory had.
# Then a daemon starts on the copy. Accepted messages that are not in its queue are lost.
# Environment: POSTLAB, POSTRIDER (the binaries), ROUNDS (default 5). Needs root.
set -euo pipefail; shopt -s inherit_errexit
export PATH=/usr/sbin:/sbin:$PATH SCENARIOS
SCENARIOS=$(dirname "$(readlink -f "$0")")
POSTLAB=${POSTLAB:-postlab} POSTRIDER=${POSTRIDER:-postrider}
LAB_WORK=$(mktemp -d) daemon=
export LAB_WORK POSTRIDER LAB_PORT=${LAB_PORT:-2529} SINK_PORT=9
mnt=$LAB_WORK/mnt

close() {
  if [ -n "$daemon" ]; then kill -KILL "$daemon" 2>/dev/null || true; while kill -0 "$daemon" 2>/dev/null; do sleep 0.05; done; daemon=; fi
  rmdir /sys/fs/cgroup/cpuacct/postlab-mta /sys/fs/cgroup/postlab-mta 2>/dev/null || true
  if mountpoint -q "$mnt"; then umount "$mnt"; fi
}
trap 'close; rm -rf --one-file-system "$LAB_WORK"' EXIT

round() { # MODE: prints accepted and lost
  local accepted queued
  rm -f "$LAB_WORK/disk"; truncate -s 1G "$LAB_WORK/disk"
  mkfs.ext4 -q -F "$LAB_WORK/disk"; mkdir -p "$mnt"; mount -o loop "$LAB_WORK/disk" "$mnt"
  LAB_DATA=$mnt/mta DURABILITY=$1 sh "$SCENARIOS/postrider.sh" start
  daemon=$(cat "$mnt/mta/pid")
  # The configuration is to be there afterwards.
  sync -f "$mnt"; cp "$mnt/mta/postrider.toml" "$LAB_WORK/"
  "$POSTLAB" source -s 50 -d -l 1024 --duration 3 --json "127.0.0.1:$LAB_PORT" > "$LAB_WORK/json" 2>/dev/null &
  local source=$!
  sleep 1.$((RANDOM % 10))
  kill -STOP "$daemon"
  cp --sparse=always "$LAB_WORK/disk" "$LAB_WORK/after"
  close
  wait "$source" || true
  accepted=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["messages_sent"])' "$LAB_WORK/json")
  mount -o loop "$LAB_WORK/after" "$mnt"
  "$POSTRIDER" serve --config "$LAB_WORK/postrider.toml" > "$LAB_WORK/log" 2>&1 & daemon=$!
  for _ in $(seq 100); do grep -q 'listening on' "$LAB_WORK/log" && break; sleep 0.1; done
  queued=$("$POSTRIDER" queue list --config "$LAB_WORK/postrider.toml" --ids | wc -l)
  close
  echo "$accepted $((accepted > queued ? accepted - queued : 0))"
}

modes=("$@"); [ ${#modes[@]} -gt 0 ] || modes=(durable after-checks deliver-first none)
printf '%-14s %10s %10s\n' durability accepted lost
# In turn, as all experiments are.
for _ in $(seq "${ROUNDS:-5}"); do
  for mode in "${modes[@]}"; do
    result=$(round "$mode")
    printf '%-14s %10s %10s\n' "$mode" $result
  done
done
