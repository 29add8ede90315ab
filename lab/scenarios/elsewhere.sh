#!/bin/bash
# The sink with a store, with its load from this machine and from another: `elsewhere.sh [SESSIONS...]`, default 1 10 100. The other
# machine is an agent of Postlab in a network namespace, with an interface, an address and TCP of its own; the processors are
# shared. An agent on this machine does the same over the loopback, in turn.
# With AGENT=HOST:PORT and KEY=FILE the other machine is one where `postlab agent listen` runs; SINK=HOST:PORT is then the address
# of this machine as that one sees it.
# Needs root and ip(8), unless AGENT is set. Environment: POSTLAB (the binary), ROUNDS (default 5), STORES (default: none threads files log;
# threads is no store in a sink with threads, which is the sink that stores files).
# Prints a line for each run, and at the end the medians, also of the times with a store divided by those without, in each round.
set -euo pipefail; shopt -s inherit_errexit
POSTLAB=${POSTLAB:-postlab}
name=postlab$$ work=$(mktemp -d -p .) pids=() sink_pid=
end() {
  for pid in ${sink_pid:+"$sink_pid"} ${pids[@]+"${pids[@]}"}; do kill "$pid" 2>/dev/null || true; done
  [ -n "${AGENT:-}" ] || ip netns delete "$name" 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT

await() { # FILE: the program that writes it listens
  for _ in $(seq 50); do if grep -q listens "$1"; then return; fi; sleep 0.1; done
  cat "$1" >&2; exit 2
}
listen() { # NAME ADDRESS COMMAND...: an agent there
  local place=$1 address=$2
  shift 2
  "$@" "$POSTLAB" agent listen -k "$key" "$address" > /dev/null 2> "$work/$place" & pids+=($!)
  await "$work/$place"
}

key=${KEY:-$work/key}
[ -n "${KEY:-}" ] || "$POSTLAB" agent key "$key"
declare -A agent=([here]=127.0.0.1:2580) sink=([here]=127.0.0.1:2600)
listen here "${agent[here]}"
if [ -n "${AGENT:-}" ]; then agent[elsewhere]=$AGENT sink[elsewhere]=${SINK:?}
else
  # 198.18.0.0/15 is for benchmarks (RFC 2544).
  net=198.18.$((RANDOM % 250))
  ip netns add "$name"
  ip link add "pl$$a" type veth peer name "pl$$b" netns "$name"
  ip address add "$net.1/30" dev "pl$$a"; ip link set "pl$$a" up
  ip -n "$name" address add "$net.2/30" dev "pl$$b"; ip -n "$name" link set "pl$$b" up; ip -n "$name" link set lo up
  agent[elsewhere]=$net.2:2580 sink[elsewhere]=$net.1:2600
  listen elsewhere "${agent[elsewhere]}" ip netns exec "$name"
fi

run() { # PLACE STORE SESSIONS
  local messages=$(($3 < 10 ? 20000 : 60000)) options=(--store "$2")
  case $2 in
    threads) options=(--store none --model pool --threads 100) ;;
    # Fewer where each is a file, so that no run lasts minutes.
    files) messages=$((messages / 6)) options=(--store files --model pool --threads 100) ;;
  esac
  "$POSTLAB" sink "${options[@]}" --store-directory "$work" "${sink[$1]}" > /dev/null 2> "$work/sink" & sink_pid=$!
  await "$work/sink"
  "$POSTLAB" agent run -k "$key" -a "${agent[$1]}" --json -- -d -l 1024 -s "$3" -m "$messages" "${sink[$1]}" > "$work/json"
  python3 - "$work/json" "$1" "$2" "$3" <<'END' | tee -a "$work/runs"
import json, sys
row = json.load(open(sys.argv[1]))["rows"][-1]
print(f'{sys.argv[2]:9} {sys.argv[3]:6} {sys.argv[4]:>4} {row["messages_per_second"]:9.0f} {row["p50_ms"]:8.2f} {row["p99_ms"]:8.2f}')
END
  kill "$sink_pid"; wait "$sink_pid" || true; sink_pid=
}

[ $# -gt 0 ] || set -- 1 10 100
echo "place     store  sessions messages/s, p50 ms, p99 ms"
for _ in $(seq "${ROUNDS:-5}"); do
  for sessions in "$@"; do
    for store in ${STORES:-none threads files log}; do
      for place in here elsewhere; do run "$place" "$store" "$sessions"; done
    done
  done
done
python3 - "$work/runs" <<'END'
import statistics, sys
runs = {}
for line in open(sys.argv[1]):
    place, store, sessions, rate, *_ = line.split()
    runs.setdefault((store, int(sessions), place), []).append(float(rate))
print("messages a second, median (smallest-largest, N)")
for (store, sessions, place), rates in sorted(runs.items(), key=lambda run: (run[0][0], run[0][1], run[0][2] != "here")):
    print(f"{store:7} {sessions:4} {place:9} {statistics.median(rates):6.0f} ({min(rates):.0f}-{max(rates):.0f}, N={len(rates)})")
print("time with a store to that without")
for (store, sessions, place), rates in sorted(runs.items()):
    for base in ["none", "threads"] if store in ("files", "log") else []:
        if without := runs.get((base, sessions, place)):
            ratios = [b / a for a, b in zip(rates, without)]
            print(f"{store:7} {sessions:4} {place:9} to {base:7} {statistics.median(ratios):5.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
END
