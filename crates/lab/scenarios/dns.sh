#!/bin/sh
# For `postlab dns-packets -m 1000 -- sh dns.sh [MESSAGES [DOMAINS]]`: a Postrider that finds the way by MX, with mail to
# several domains. Environment: DNS_SERVER; POSTRIDER and POSTLAB (the binaries).
set -eu
messages=${1:-1000}
domains=${2:-10}
postlab=${POSTLAB:-postlab}
data=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null || true; wait; rm -rf "$data"' EXIT
trap 'exit 1' INT TERM

"$postlab" sink 127.0.0.1:0 2>"$data/sink" &
pids=$!
until grep -q 'listens on' "$data/sink"; do sleep 0.1; done
sink_port=$(sed -n 's/.*listens on .*://p' "$data/sink")
port=$((30000 + $$ % 30000))
cat >"$data/postrider.toml" <<END
hostname = "postrider.test"
data_dir = "$data/data"
[[listen]]
address = "127.0.0.1:$port"
tls = "off"
[relay]
networks = ["127.0.0.0/8"]
[[route]]
domains = ["*"]
mx = true
tls = "off"
[delivery]
mx_port = $sink_port
[dns]
nameservers = ["$DNS_SERVER"]
[log]
file = "$data/mail.log"
[control]
socket = "$data/control.sock"
submit_socket = "$data/submit.sock"
END
"${POSTRIDER:-postrider}" serve --config "$data/postrider.toml" 2>"$data/stderr" &
pids="$pids $!"
i=0
while [ "$i" -lt "$domains" ]; do echo "user@domain$i.example.net"; i=$((i + 1)); done >"$data/users"
for _ in $(seq 100); do
	"$postlab" source -m "$messages" -s 10 -d --users "$data/users" "127.0.0.1:$port" >"$data/source" 2>&1 && break
	kill -0 "$!" 2>/dev/null || { cat "$data/stderr" >&2; exit 1; }
	sleep 0.1
done
for _ in $(seq 300); do
	arrived=$(grep -c '"status":"sent"' "$data/mail.log" || true)
	[ "$arrived" -lt "$messages" ] || exit 0
	sleep 0.1
done
echo "dns.sh: $arrived of $messages messages were delivered" >&2
tail -3 "$data/stderr" "$data/mail.log" "$data/source" >&2
exit 1
