#!/bin/bash
# For `postlab dns-packets -m 1000 -- bash dns.sh [MESSAGES [DOMAINS]]`: a mail server that finds the way by MX gets mail to
# several domains and delivers it to a sink. Exits when the sink has all of it.
# Environment: MTA (postrider, or another script of lab/peers: postfix, exim, sendmail), PROFILE (stock), PEERS_ROOT,
# POSTRIDER and POSTLAB (the binaries), SESSIONS (10). The sink listens on a free port of $DNS_ANSWER. Only Postrider can ask
# another port than 53: the others need --listen ADDRESS:53, and --answer 127.0.0.2, as Postfix takes 127.0.0.1 for itself.
set -euo pipefail
messages=${1:-1000}
domains=${2:-10}
postlab=${POSTLAB:-postlab}
MTA=${MTA:-postrider}
peer=$(dirname "$(readlink -f "$0")")/../peers/$MTA.sh
[ -x "$peer" ] || { echo "dns.sh: MTA=$MTA: no script $peer" >&2; exit 64; }
: "${DNS_HOST:?dns.sh: run it by postlab dns-packets}" "${DNS_PORT:?}"
if [ "$MTA" != postrider ]; then
	[ "$DNS_PORT" = 53 ] || {
		echo "dns.sh: $MTA asks port 53 only: postlab dns-packets --listen 127.0.0.53:53 (as root)" >&2; exit 64; }
elif ! grep -qx "nameserver $DNS_HOST" /etc/resolv.conf; then
	POSTRIDER_EXTRA=${POSTRIDER_EXTRA:-}$'\n[dns]\n'"nameservers = [\"$DNS_SERVER\"]"
	export POSTRIDER_EXTRA
fi
data=$(mktemp -d)
sink_pid=
# The queue and the log belong to this run.
trap '[ -z "$sink_pid" ] || kill "$sink_pid" 2>/dev/null || true; "$peer" reset >/dev/null || true; rm -rf "$data"' EXIT
trap 'exit 1' INT TERM

# The sink ends when it has all messages. The file is there before grep looks.
: >"$data/sink"
"$postlab" sink -M "$messages" "$DNS_ANSWER:0" 2>"$data/sink" >"$data/tally" &
sink_pid=$!
until grep -q 'listens on' "$data/sink"; do
	kill -0 "$sink_pid" 2>/dev/null || { cat "$data/sink" >&2; exit 1; }
	sleep 0.1
done
SINK_PORT=$(sed -n 's/.*listens on .*://p' "$data/sink")
PEER_NAMESERVER=$DNS_HOST
export SINK_PORT PEER_NAMESERVER PEER_MX=1
"$peer" reset >/dev/null
"$peer" start "${PROFILE:-stock}"
i=0
while [ "$i" -lt "$domains" ]; do echo "user@domain$i.example.net"; i=$((i + 1)); done >"$data/users"
"$postlab" source -m "$messages" -s "${SESSIONS:-10}" -d --users "$data/users" "127.0.0.1:$("$peer" port)" >"$data/source" 2>&1 ||
	{ cat "$data/source" >&2; exit 1; }
for _ in $(seq 600); do
	kill -0 "$sink_pid" 2>/dev/null || { ended=$sink_pid sink_pid=; wait "$ended"; exit; }
	sleep 0.1
done
echo "dns.sh: the sink does not have all of the $messages messages after 60 s; $("$peer" queue-count) are in the queue of $MTA" >&2
tail -3 "$data/source" "$("$peer" log)" >&2
exit 1
