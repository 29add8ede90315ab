#!/bin/bash
# What the checks of incoming mail cost: `bash checked.sh [MESSAGES]` (4000). A message of 10 KiB with one RSA signature from a client
# that is not trusted, for which SPF, DKIM, DMARC, two lists in DNS, the greylist and limits are asked; the answers of the DNS are
# in its cache. In turn: Postrider without checks, with them, Postfix with OpenDKIM, OpenDMARC and policyd-spf, and both with the
# same rspamd as a milter. Then signing, with RSA-2048 and Ed25519. Prints messages a second and CPU µs a message, one line a run.
# Needs root (a network and a mount name space of its own) and Debian's packages postfix, opendkim, opendmarc,
# postfix-policyd-spf-python, rspamd, unbound, python3-dkim. Environment: POSTRIDER, POSTLAB (the binaries), ROUNDS (5), SESSIONS (10),
# ONLY (names of the sides, separated by spaces), STRACE (1: print the system calls of one run instead).
set -eu
if [ -z "${CHECKED_INSIDE:-}" ]; then
	POSTRIDER=$(realpath "${POSTRIDER:-target/dist/postrider}") POSTLAB=$(realpath "${POSTLAB:-target/dist/postlab}")
	export POSTRIDER POSTLAB CHECKED_INSIDE=1
	exec unshare --mount --net --pid --fork --kill-child bash "$(realpath "$0")" "$@"
fi
messages=${1:-4000}
for program in "$POSTRIDER" "$POSTLAB" postfix opendkim opendmarc policyd-spf rspamd unbound dkimsign; do
	command -v "$program" >/dev/null || { echo "checked.sh: there is no $program" >&2; exit 1; }
done
here=198.51.100.1 client=203.0.113.9
mount -t proc proc /proc
ip link set lo up
ip address add $here/32 dev lo
ip address add $client/32 dev lo
D=$(mktemp -d)
chmod 755 "$D"
cd "$D"
trap 'rm -rf "$D"' EXIT
echo 'nameserver 127.0.0.1' >resolv.conf
mount --bind resolv.conf "$(realpath /etc/resolv.conf)"

# The domain of the sender, and its key.
openssl genrsa -traditional -out rsa.pem 2048 2>/dev/null
key=$(openssl rsa -in rsa.pem -pubout -outform DER 2>/dev/null | base64 -w0)
cat >unbound.conf <<END
server:
	interface: 127.0.0.1
	do-daemonize: no
	use-syslog: no
	logfile: "$D/unbound.log"
	pidfile: ""
	username: ""
	chroot: ""
	module-config: "iterator"
	local-zone: "." static
	local-data: 'sender.test. 3600 IN TXT "v=spf1 ip4:$client -all"'
	local-data: "sender.test. 3600 IN A $client"
	local-data: "sender.test. 3600 IN MX 10 mail.sender.test."
	local-data: "mail.sender.test. 3600 IN A $client"
	local-data: 'mail.sender.test. 3600 IN TXT "v=spf1 a -all"'
	local-data-ptr: "$client mail.sender.test"
	local-data: '_dmarc.sender.test. 3600 IN TXT "v=DMARC1; p=reject"'
	local-data: 's1._domainkey.sender.test. 3600 IN TXT "v=DKIM1; k=rsa; p=${key:0:200}" "${key:200}"'
	local-data: "sink.test. 3600 IN A 127.0.0.1"
remote-control:
	control-enable: no
END
pids=()
unbound -d -c unbound.conf & pids+=($!)

# The message, signed by another program than those that are measured.
{
	printf 'From: Joe <joe@sender.test>\r\nTo: Ann <ann@sink.test>\r\nSubject: Figures of the week\r\n'
	printf 'Date: %s\r\nMessage-ID: <1@sender.test>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\n' "$(date -R)"
	for line in $(seq 140); do printf '%3d The figures of this line are as good as those of the line before it, or better.\r\n' "$line"; done
} >plain.eml
dkimsign s1 sender.test rsa.pem <plain.eml >signed.eml

sink=31999
"$POSTLAB" sink 127.0.0.1:$sink >/dev/null 2>sink.log & pids+=($!)

mkdir -p od
cat >opendkim.conf <<END
Mode v
Socket inet:8891@127.0.0.1
Nameservers 127.0.0.1
InternalHosts 127.0.0.1
UserID root
Syslog no
END
cat >opendmarc.conf <<END
Socket inet:8893@127.0.0.1
AuthservID mx.test
TrustedAuthservIDs mx.test
Syslog no
RejectFailures true
PidFile $D/od/pid
END
cat >policyd.conf <<END
debugLevel = 0
TestOnly = 1
HELO_reject = Fail
Mail_From_reject = Fail
skip_addresses = 127.0.0.0/8
Header_Type = AR
Authserv_Id = mx.test
END
opendkim -f -x opendkim.conf & pids+=($!)
opendkim=$!
opendmarc -f -c opendmarc.conf & pids+=($!)
opendmarc=$!
mkdir -p rs/data rs/log
rspamd -f --insecure -c /etc/rspamd/rspamd.conf --var=DBDIR="$D/rs/data" --var=RUNDIR="$D/rs" --var=LOGDIR="$D/rs/log" \
	>rs/out 2>&1 & pids+=($!)
rspamd=${pids[-1]}

# NAME PORT EXTRA…: a Postfix of its own.
postfix_of() {
	local name=$1 port=$2
	mkdir -p "$name/queue" "$name/data"
	chown postfix "$name/data"
	cat >"$name/main.cf" <<END
compatibility_level = 3.6
queue_directory = $D/$name/queue
data_directory = $D/$name/data
mail_owner = postfix
setgid_group = postdrop
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
myhostname = mx.test
mydestination =
relay_domains = sink.test
relay_transport = relay:[127.0.0.1]:$sink
alias_maps =
inet_interfaces = $here
inet_protocols = ipv4
maillog_file = $D/$name/log
maillog_file_prefixes = $D
smtp_tls_security_level = none
smtpd_client_connection_count_limit = 0
mynetworks =
default_process_limit = 200
smtpd_relay_restrictions = reject_unauth_destination
$3
END
	cat >"$name/master.cf" <<END
$here:$port inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
error unix - - n - - error
retry unix - - n - - error
smtp unix - - n - - smtp
relay unix - - n - - smtp
proxymap unix - - n - - proxymap
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
policyd-spf unix - n n - 0 spawn user=nobody argv=/usr/bin/policyd-spf $D/policyd.conf
END
	chmod -R a+r "$name"/*.cf
	postfix -c "$D/$name" start-fg & pids+=($!)
	pid_of[$name]=$!
}
# NAME PORT EXTRA: a Postrider of its own.
postrider_of() {
	mkdir -p "$1"
	cat >"$1/postrider.toml" <<END
hostname = "mx.test"
data_dir = "data"
[[listen]]
address = "$here:$2"
[local]
domains = ["mx.test", "sink.test"]
[relay]
networks = [$networks]
[dns]
nameservers = ["127.0.0.1"]
[log]
file = "mail.log"
[[route]]
domains = ["*"]
smarthost = "127.0.0.1:$sink"
tls = "off"
$3
END
	(cd "$1" && exec "$POSTRIDER" serve --config postrider.toml) 2>"$1/err" & pids+=($!)
	pid_of[$1]=$!
}
wants() { [ -z "${ONLY:-}" ] || [[ " $ONLY " == *" $1 "* ]]; }
declare -A pid_of port_of
sides=() networks=
side() { # NAME PORT KIND EXTRA
	wants "$1" || return 0
	port_of[$1]=$2
	sides+=("$1")
	"$3" "$1" "$2" "$4"
}
key_file() { openssl genpkey "${@:2}" -out "$1" 2>/dev/null; chmod 600 "$1"; }
key_file ed.pem -algorithm ed25519
key_file rsa2048.pem -algorithm RSA -pkeyopt rsa_keygen_bits:2048
checks='[checks]
dmarc = "enforce"
greylist = "all"
[greylist]
wait = "1s"
[[rule]]
dns_list = ["bl.test"]
reject = "550 5.7.1 listed"
[[rule]]
from_dns_list = ["dbl.test"]
reject = "550 5.7.1 listed"
[[limit]]
per = "client"
messages = "10000000/h"'
side unchecked 31601 postrider_of ""
side checked 31602 postrider_of "$checks"
side postfix-milters 31603 postfix_of "smtpd_milters = inet:127.0.0.1:8891, inet:127.0.0.1:8893
milter_default_action = tempfail
policyd-spf_time_limit = 3600
smtpd_recipient_restrictions = reject_rbl_client bl.test, reject_rhsbl_sender dbl.test, check_policy_service unix:private/policyd-spf"
side rspamd 31604 postrider_of '[filter.rspamd]
milter = "127.0.0.1:11332"'
side postfix-rspamd 31605 postfix_of "smtpd_milters = inet:127.0.0.1:11332
milter_default_action = tempfail"
networks="\"$client\""
sign() { printf '[[sign]]\ndomains = ["sender.test"]\nselector = "s"\nkey = "%s"\n' "$D/$1"; }
side trusted 31606 postrider_of ""
side sign-rsa 31607 postrider_of "$(sign rsa2048.pem)"
side sign-ed25519 31608 postrider_of "$(sign ed.pem)"

trap 'kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$D"' EXIT
listens() { (echo >"/dev/tcp/$1/$2") 2>/dev/null; }
for name in "${sides[@]}"; do
	until listens $here "${port_of[$name]}"; do
		kill -0 "${pid_of[$name]}" || { cat "$name/err" "$name/log" >&2; exit 1; }
		sleep 0.1
	done
done
for port in 8891 8893 11332; do for _ in $(seq 300); do listens 127.0.0.1 $port && break; sleep 0.1; done; done

# CPU time in ms of these processes and their children, also of those that have ended.
cpu() { python3 - "$@" <<'P'
import sys
ticks, todo = 0, [int(pid) for pid in sys.argv[1:]]
while todo:
    pid = todo.pop()
    try:
        ticks += sum(map(int, open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[11:15]))
        todo += open(f'/proc/{pid}/task/{pid}/children').read().split()
    except OSError:
        pass
print(ticks * 10)
P
}
run() { # NAME MESSAGES
	local name=$1 file=signed.eml of=(${pid_of[$1]}) before after out
	case $name in
	postfix-milters) of+=($opendkim $opendmarc) ;;
	trusted | sign-*) file=plain.eml ;;
	esac
	before=$(cpu "${of[@]}")
	out=$("$POSTLAB" source -s "${SESSIONS:-10}" -m "$2" -F $file -f joe@sender.test -t ann@sink.test -M mail.sender.test \
		--bind $client --json $here:"${port_of[$name]}" 2>"$name/source") || { tail -3 "$name/source" >&2; true; }
	after=$(cpu "${of[@]}")
	echo "$out" | python3 -c '
import json, sys
name, count, cpu, whole = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.load(sys.stdin)
print(name, "sent", whole["messages_sent"], "failed", whole["messages_failed"] + whole["recipients_refused"], "messages/s", round(whole["rate"]), "cpu_us", round(cpu * 1000 / count, 1))
' "$name" "$2" $((after - before)) || echo "$out" | head -c 600
}
# The greylist knows the client from its second attempt on, and caches are filled.
for name in "${sides[@]}"; do
	for _ in $(seq 60); do run "$name" 20 >"$name/warm"; grep -q 'failed 0' "$name/warm" && break; sleep 0.2; done
	cat "$name/warm"
done
# The checks find what they are to find.
if wants checked; then
	# The command has no part in the daemon's greylist.
	sed '/^greylist = /d; /^\[greylist\]/,/^wait/d' checked/postrider.toml >checked/test.toml
	"$POSTRIDER" test --config checked/test.toml --client $client --hello mail.sender.test --from joe@sender.test \
		--to ann@sink.test --file signed.eml >checked/test
	for found in "spf  *pass" "dkim  *pass" "dmarc  *pass"; do
		grep -q "$found" checked/test || { cat checked/test >&2; exit 1; }
	done
fi
if [ -n "${STRACE:-}" ]; then
	for name in "${sides[@]}"; do
		case $name in postfix-*) continue ;; esac
		strace -f -c -U calls -o "$name/calls" -p "${pid_of[$name]}" 2>/dev/null & tracer=$!
		until grep -q "TracerPid:[[:space:]]*[1-9]" "/proc/${pid_of[$name]}/status"; do sleep 0.1; done
		run "$name" "$messages" >/dev/null
		kill -INT $tracer
		wait $tracer || true
		echo "$name $(awk -v n="$messages" '/total$/ { printf "%.1f system calls a message", $1 / n }' "$name/calls")"
	done
	exit
fi
for _ in $(seq "${ROUNDS:-5}"); do
	for name in "${sides[@]}"; do
		case $name in
		# They are slow.
		postfix-* | rspamd) run "$name" $((messages / 5)) ;;
		*) run "$name" "$messages" ;;
		esac
	done
done
