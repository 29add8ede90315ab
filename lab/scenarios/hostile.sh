#!/bin/bash
# Good mail beside hostile clients: `bash hostile.sh [SECONDS]` (20). Postrider works in a memory cgroup of 320 MiB. First the good
# mail alone, then beside 10,000 idle sessions, 2,000 slow ones, 5,000 connections a second and 200 guessed passwords a second. Prints
# the rates of both, and the memory of the server. Needs root for the cgroup; without one it measures, and says so.
# Environment: POSTRIDER and POSTLAB (the binaries), RATE (good messages a second: 500), IDLE, SLOW, CONNECTS, GUESSES, LIMIT (320M).
set -euo pipefail
seconds=${1:-20}
POSTRIDER=${POSTRIDER:-postrider} POSTLAB=${POSTLAB:-postlab} RATE=${RATE:-500} LIMIT=${LIMIT:-320M}
for program in "$POSTRIDER" "$POSTLAB"; do
	command -v "$program" >/dev/null || { echo "hostile.sh: there is no $program; set POSTRIDER and POSTLAB" >&2; exit 1; }
done
idle=${IDLE:-10000} slow=${SLOW:-2000} connects=${CONNECTS:-5000} guesses=${GUESSES:-200}
data=$(mktemp -d)
pids=()
group=
finish() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait 2>/dev/null || true
	[ -z "$group" ] || rmdir "$group" 2>/dev/null || true
	rm -rf "$data"
}
trap finish EXIT
trap 'exit 130' INT TERM
ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)"

"$POSTLAB" sink 127.0.0.1:0 >"$data/tally" 2>"$data/sink" &
pids+=($!)
until grep -q 'listens on' "$data/sink"; do sleep 0.1; done
sink=127.0.0.1:$(sed -n 's/.*listens on .*://p' "$data/sink")
port=$((31000 + RANDOM % 1700))
# One password for all, of the strength that `postrider auth hash` has.
hash=$(printf 'secret\n' | "$POSTRIDER" auth hash user0 | cut -d: -f2-)
seq 0 999 | sed "s|.*|user&:$hash|" >"$data/users"
cat >"$data/postrider.toml" <<END
hostname = "mx.test"
data_dir = "data"
[[listen]]
address = "127.0.0.1:$port"
[relay]
networks = ["127.0.0.1"]
[auth]
users = "passwd:users"
allow_clear_text = true
[inbound]
max_sessions = 16000
max_content_memory = "32MiB"
[[route]]
domains = ["*"]
smarthost = "$sink"
tls = "off"
END
if mkdir "/sys/fs/cgroup/memory/postlab-hostile-$$" 2>/dev/null; then
	group=/sys/fs/cgroup/memory/postlab-hostile-$$
	echo "$LIMIT" >"$group/memory.limit_in_bytes"
elif mkdir "/sys/fs/cgroup/postlab-hostile-$$" 2>/dev/null; then
	group=/sys/fs/cgroup/postlab-hostile-$$
	echo "$LIMIT" >"$group/memory.max"
else echo "hostile.sh: no memory cgroup here: the memory is not limited" >&2; fi
(
	[ -z "$group" ] || echo "$BASHPID" >"$group/cgroup.procs"
	cd "$data" && exec "$POSTRIDER" serve --config postrider.toml
) >"$data/out" 2>"$data/log" &
server=$!
pids+=("$server")
until grep -q 'listening on' "$data/log"; do kill -0 "$server"; sleep 0.1; done

good() { # NAME
	"$POSTLAB" source -s 20 -d -l 2000 --rate "$RATE" --duration "$seconds" --json "127.0.0.1:$port" >"$data/$1.json" 2>"$data/$1.err" ||
		{ cat "$data/$1.err" >&2; return 1; }
}
memory() { awk '/^VmHWM/ { printf "%.0f", $2 / 1024 }' "/proc/$server/status"; }

good alone
alone_memory=$(memory)
"$POSTLAB" hostile --idle "$idle" --slow "$slow" --connects "$connects" --guesses "$guesses" --for $((seconds + 15)) "127.0.0.1:$port" \
	>"$data/hostile" 2>"$data/hostile.err" &
hostile=$!
pids+=("$hostile")
# The floods begin when the sessions are open.
wanted=$(((idle + slow) * 95 / 100))
for _ in $(seq 1200); do
	kill -0 "$hostile" 2>/dev/null || { cat "$data/hostile.err" >&2; exit 1; }
	open=$(ls "/proc/$server/fd" | wc -l)
	[ "$open" -lt "$wanted" ] || break
	sleep 0.1
done
sleep 3
good hostile
wait "$hostile" || true
cat "$data/hostile"
python3 - "$data" "$RATE" "$alone_memory" "$(memory)" <<'END'
import json, sys
data, rate, before, after = sys.argv[1:]
def read(name):
    record = json.load(open(f"{data}/{name}.json"))
    return record[0] if isinstance(record, list) else record
alone, beside = read("alone"), read("hostile")
print(json.dumps({"offered": rate, "alone": alone, "beside": beside}) if "-v" in sys.argv else "")
def rate_of(record):
    for key in ("messages_per_second", "accepted_per_second", "rate"):
        if key in record: return record[key]
    raise SystemExit(f"no rate in {sorted(record)}")
a, b = rate_of(alone), rate_of(beside)
print(f"good mail: {a:.1f}/s alone, {b:.1f}/s beside the hostile clients, {100 * b / a:.1f} % kept")
print(f"memory of the server (peak): {before} MiB alone, {after} MiB beside the hostile clients")
END
if [ -n "$group" ]; then
	for file in memory.failcnt memory.oom_control memory.events; do
		[ ! -e "$group/$file" ] || sed "s/^/$file: /" "$group/$file"
	done
fi
kill -0 "$server" || { echo "hostile.sh: the server has ended" >&2; exit 1; }
