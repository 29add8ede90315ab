#!/bin/bash
# Submission with STARTTLS and AUTH PLAIN: Postfix with Dovecot SASL, and Postrider, in turn; each message has a connection of its own, whose TLS
# session is resumed. Prints messages a second and CPU time of both. Needs root, and the packages that `cargo xtask setup` unpacks:
# `unshare --mount bash submission.sh`. Environment: POSTRIDER and POSTLAB (the binaries), INTEROP (target/interop), ROUNDS (5).
set -eu
POSTRIDER=$(realpath "${POSTRIDER:-target/dist/postrider}") POSTLAB=$(realpath "${POSTLAB:-target/dist/postlab}")
I=$(realpath "${INTEROP:-target/interop}")
D=$(mktemp -d); mkdir -p $D/etc $D/pf/queue $D/pf/data $D/dv $D/pr; chmod 755 $D $D/pf $D/dv
for n in passwd group; do cp /etc/$n $D/etc/$n; done
grep -q ^postfix: $D/etc/passwd || { echo 'postfix:x:64321:64321::/nonexistent:/usr/sbin/nologin' >>$D/etc/passwd; echo 'postfix:x:64321:' >>$D/etc/group; echo 'postdrop:x:64322:' >>$D/etc/group; }
mount -t overlay overlay -o "lowerdir=$I/usr:/usr" /usr
mount -t overlay overlay -o "lowerdir=/etc:$I/etc" /etc
mount --bind $D/etc/passwd /etc/passwd; mount --bind $D/etc/group /etc/group
cd $D
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -keyout key.pem -out cert.pem -subj /CN=mx.test -addext subjectAltName=DNS:mx.test 2>/dev/null
chmod 644 key.pem
$POSTLAB sink 127.0.0.1:31999 >/dev/null 2>sink.log & sink=$!
HASH=$(printf 'secret\n' | $POSTRIDER auth hash jane@mx.test | cut -d: -f2-)
echo "jane@mx.test:$HASH" > users
DH=$(printf 'secret' | doveadm pw -s SHA512-CRYPT -p secret 2>/dev/null || echo '{PLAIN}secret')
echo "jane@mx.test:$DH" > dv/users
cat > dv/dovecot.conf <<E
base_dir = $D/dv/run
state_dir = $D/dv/run
log_path = $D/dv/log
protocols =
ssl = no
default_internal_user = nobody
default_internal_group = nogroup
default_login_user = nobody
auth_mechanisms = plain login
auth_cache_size = 10M
passdb {
  driver = passwd-file
  args = $D/dv/users
}
userdb {
  driver = static
  args = uid=nobody gid=nogroup home=/tmp allow_all_users=yes
}
service auth {
  unix_listener $D/dv/auth {
    mode = 0666
  }
}
E
dovecot -F -c dv/dovecot.conf & dv=$!
cat > pf/main.cf <<E
compatibility_level = 3.6
queue_directory = $D/pf/queue
data_directory = $D/pf/data
mail_owner = postfix
setgid_group = postdrop
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
myhostname = mx.test
mydestination =
alias_maps =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
maillog_file = $D/pf/log
maillog_file_prefixes = $D
relayhost = [127.0.0.1]:31999
smtp_tls_security_level = none
smtpd_tls_cert_file = $D/cert.pem
smtpd_tls_key_file = $D/key.pem
smtpd_tls_security_level = encrypt
smtpd_tls_session_cache_database = btree:$D/pf/data/smtpd_scache
smtpd_sasl_auth_enable = yes
smtpd_sasl_type = dovecot
smtpd_sasl_path = $D/dv/auth
smtpd_client_connection_count_limit = 0
mynetworks =
smtpd_relay_restrictions = permit_sasl_authenticated, reject
smtpd_recipient_restrictions = permit_sasl_authenticated, reject
default_process_limit = 200
E
cat > pf/master.cf <<E
127.0.0.1:31587 inet n - n - - smtpd
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
tlsmgr unix - - n 1000? 1 tlsmgr
postlog unix-dgram n - n - 1 postlogd
E
chown postfix pf/data; chmod +r pf/*
LD_LIBRARY_PATH=/usr/lib/postfix postfix -c $D/pf start-fg & pf=$!
cat > pr/postrider.toml <<E
hostname = "mx.test"
data_dir = "data"
[[listen]]
address = "127.0.0.1:31588"
kind = "submission"
[tls]
certificate = "$D/cert.pem"
key = "$D/key.pem"
[auth]
users = "passwd:$D/users"
[[route]]
domains = ["*"]
smarthost = "127.0.0.1:31999"
tls = "off"
[log]
file = "mail.log"
E
(cd pr && exec $POSTRIDER serve --config postrider.toml) 2>pr/err & pr=$!
trap 'kill $pr $pf $dv $sink 2>/dev/null; wait 2>/dev/null; rm -rf "$D"' EXIT
for p in 31587 31588 31999; do for i in $(seq 100); do (echo >/dev/tcp/127.0.0.1/$p) 2>/dev/null && break; sleep 0.1; done; done
cpu() { python3 - "$@" <<'P'
import sys,os
t=0
for r in sys.argv[1:]:
    todo=[int(r)]
    while todo:
        p=todo.pop()
        try:
            f=open(f'/proc/{p}/stat').read().rsplit(')',1)[1].split(); t+=sum(map(int,f[11:15]))
            todo+=[int(x) for x in open(f'/proc/{p}/task/{p}/children').read().split()]
        except Exception: pass
print(t*10)
P
}
run() { # NAME PORT N PIDS
  local n=$3 a b; a=$(cpu ${@:4});
  out=$($POSTLAB source -s 10 -m $n -l 1024 -f jane@mx.test -t x@sink.test --tls --auth jane@mx.test:secret --auth-mechanism PLAIN --json 127.0.0.1:$2 2>&1) || echo "$out" | tail -3
  b=$(cpu ${@:4})
  echo "$1 $(echo "$out" | python3 -c 'import sys,json; d=json.load(sys.stdin); print({k:d[k] for k in d if "rate" in k or "per_second" in k or "accepted" in k or "failed" in k or "seconds" in k} )' 2>/dev/null | cut -c1-300) cpu_ms $((b-a)) n $n"
}
run warm-postfix 31587 300 $pf $dv; run warm-postrider 31588 300 $pr
for _ in $(seq "${ROUNDS:-5}"); do run postfix 31587 3000 $pf $dv; run postrider 31588 15000 $pr; done
