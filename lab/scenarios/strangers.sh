#!/bin/bash
# Good mail beside mail for servers that do not take it: `postlab dns-packets -- bash strangers.sh [SECONDS]` (120). A local mailbox, an
# LMTP server and 20 domains get one message a second each. After WARM seconds (10; 0 for good domains that were never tried before) come
# MESSAGES (20,000) messages for DOMAINS (1,000) domains whose servers accept connections and say nothing, as many that refuse
# everything, and as many that greylist for GREYLIST seconds (60). Prints percentiles of the time from 250 to the delivery of good mail for
# each kind, and the largest numbers that `postrider status` showed.
# Environment: POSTRIDER and POSTLAB (the binaries), POSTRIDER_EXTRA (more configuration), OUT (a folder that keeps log and status).
set -euo pipefail
seconds=${1:-120}
POSTRIDER=${POSTRIDER:-postrider} POSTLAB=${POSTLAB:-postlab} WARM=${WARM:-10} MESSAGES=${MESSAGES:-20000} DOMAINS=${DOMAINS:-1000}
: "${DNS_SERVER:?strangers.sh: run it by postlab dns-packets}"
[ "$DOMAINS" -le 1000 ] || { echo "strangers.sh: DOMAINS is at most 1000" >&2; exit 64; }
data=$(mktemp -d)
pids=()
finish() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait 2>/dev/null || true
	[ -z "${OUT:-}" ] || { mkdir -p "$OUT" && cp -r "$data" "$OUT"; }
	rm -rf "$data"
}
trap finish EXIT
trap 'exit 130' INT TERM
ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)"
mx_port=$((31000 + RANDOM % 800)) lmtp_port=$((31800 + RANDOM % 400)) port=$((32200 + RANDOM % 400))

sink() { # NAME ARGUMENTS...
	local name=$1
	shift
	"$POSTLAB" sink -m 20000 "$@" >"$data/$name.tally" 2>"$data/$name.sink" &
	pids+=($!)
	until grep -qs 'listens on' "$data/$name.sink"; do
		kill -0 $! 2>/dev/null || { cat "$data/$name.sink" >&2; exit 1; }
		sleep 0.1
	done
}
sink silent -t 3600 -W CONNECT:3600 --addresses "$DOMAINS" "127.10.0.1:$mx_port"
sink refusing -f CONNECT --addresses "$DOMAINS" "127.20.0.1:$mx_port"
sink greylisting --greylist "${GREYLIST:-60}" --addresses "$DOMAINS" "127.30.0.1:$mx_port"
sink good --addresses 20 "127.40.0.1:$mx_port"
sink lmtp -L "127.0.0.1:$lmtp_port"

domains() { # BLOCK COUNT: names that tell their address
	local n
	for ((n = 1; n <= $2; n++)); do echo "user@ip-127-$1-$((n / 256))-$((n % 256)).test"; done
}
{ domains 10 "$DOMAINS"; domains 20 "$DOMAINS"; domains 30 "$DOMAINS"; } | shuf --random-source=<(yes) >"$data/strangers"
{ domains 40 20; echo user@local.test; echo user@lmtp.test; } >"$data/good"

cat >"$data/postrider.toml" <<END
hostname = "mx.test"
data_dir = "data"
[[listen]]
address = "127.0.0.1:$port"
[relay]
networks = ["127.0.0.1"]
[inbound]
max_sessions_per_client = 1000
[dns]
nameservers = ["$DNS_SERVER"]
[log]
file = "log"
connections = false
[[route]]
domains = ["local.test"]
maildir = "mailbox"
[[route]]
domains = ["lmtp.test"]
lmtp = "127.0.0.1:$lmtp_port"
tls = "off"
[[route]]
domains = ["*"]
mx = true
tls = "off"
[delivery]
mx_port = $mx_port
${POSTRIDER_EXTRA:-}
END
(cd "$data" && exec "$POSTRIDER" serve --config postrider.toml) >"$data/out" 2>"$data/status.daemon" &
pids+=($!)
server=$!
until grep -q 'listening on' "$data/status.daemon"; do kill -0 "$server"; sleep 0.1; done

# source -d would draw recipients at random; each user in turn comes from one message each, from a process of its own.
count=$((seconds + WARM))
good=()
while read -r user; do
	"$POSTLAB" source -s 4 -t "$user" -f "good@sender.test" --rate 1 --duration "$count" "127.0.0.1:$port" \
		>"$data/source.$user" 2>&1 &
	good+=($!)
	pids+=($!)
done <"$data/good"
sleep "$WARM"
"$POSTLAB" source -s 20 -d -m "$MESSAGES" --users "$data/strangers" -f strangers@sender.test --json "127.0.0.1:$port" \
	>"$data/burst.json" 2>"$data/burst" || { cat "$data/burst" >&2; exit 1; }
echo "$MESSAGES messages for strangers were accepted $SECONDS s after the begin"
for ((n = 0; n < seconds / 5; n++)); do
	(cd "$data" && "$POSTRIDER" status --config postrider.toml --json) >>"$data/status.jsonl" || true
	(cd "$data" && "$POSTRIDER" status --config postrider.toml) >"$data/status.$n" || true
	kill -0 "${good[0]}" 2>/dev/null || break
	sleep 5
done
for pid in "${good[@]}"; do wait "$pid"; done
sleep 15
kill -0 "$server" || { echo "strangers.sh: the server has ended" >&2; exit 1; }
sent=$(cat "$data"/source.* | grep -o '[0-9]* messages' | awk '{ n += $1 } END { print n + 0 }')
echo "good messages sent: $sent"
python3 - "$data/log" "$data/status.jsonl" $((count * 22)) <<'END'
import collections, json, sys
log, status, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
ages, tally, unproven = collections.defaultdict(list), collections.Counter(), 0
for line in open(log):
    event = json.loads(line)
    if event["event"] not in ("attempt", "waiting"): continue
    outcome = event.get("status", "waiting")
    if event["from"] != "good@sender.test":
        tally[event["to"].split("-")[2] + " " + outcome] += 1
        continue
    kind = {"user@local.test": "local", "user@lmtp.test": "lmtp"}.get(event["to"], "domains")
    if outcome == "sent": ages[kind].append(event["age_ms"])
    else: tally["good " + outcome] += 1
done = 0
for kind, list in sorted(ages.items()):
    list.sort()
    done += len(list)
    at = lambda q: list[min(len(list) - 1, int(q * len(list)))]
    print(f"{kind}: {len(list)} delivered, median {at(.5)} ms, p99 {at(.99)} ms, longest {list[-1]} ms")
print(f"good messages: {done} delivered of {wanted}")
names = {"10": "silent", "20": "refusing", "30": "greylisting"}
for what, n in sorted(tally.items()): print(f"{names.get(what.split()[0], what.split()[0])} {what.split()[1]}: {n}")
most = collections.defaultdict(int)
for line in open(status):
    for share in json.loads(line)["spool"]["shares"]:
        for key in "used", "waiting": most[share["share"], key] = max(most[share["share"], key], share[key])
for name in "local", "routes", "remote", "newcomers":
    print(f"connections of {name}: at most {most[name, 'used']} in use, {most[name, 'waiting']} destinations waiting")
END
