#!/bin/bash
# Stalwart on RocksDB as a loopback relay (install stalwart builds it). Environment: PEER_PORT (2530; it takes the next two ports, too),
# SINK_PORT, STALWART_EXTRA (more configuration).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
name=stalwart port=${PEER_PORT:-2530} secret=peers
management=$((port + 1)) dns=$((port + 2))
binary=/usr/local/sbin/stalwart

# Only 50 of its deliveries run at a time as it comes, which makes it deliver a third of what it accepts: 1,000 here. What would look
# up names, judge content or limit one client is off, as with the other peers.
configuration() {
  cat <<END
config.local-keys = ["*"]
version.spam-filter = "99.0.0"
oauth.key = "one-that-need-not-be-secret-here"

[authentication.fallback-admin]
user = "admin"
secret = "$secret"

[server]
hostname = "stalwart.test"
max-connections = 8192
[server.listener.smtp]
bind = ["127.0.0.1:$port"]
protocol = "smtp"
[server.listener.management]
bind = ["127.0.0.1:$management"]
protocol = "http"

[storage]
data = "rocksdb"
fts = "rocksdb"
blob = "rocksdb"
lookup = "rocksdb"
directory = "internal"
[store.rocksdb]
type = "rocksdb"
path = "/var/lib/stalwart"
compression = "lz4"
[directory.internal]
type = "internal"
store = "rocksdb"

[session.auth]
require = false
[session.mail]
is-allowed = true
[session.rcpt]
relay = true
directory = false
[session.data]
spam-filter = false
[session.data.add-headers]
received = true

[auth]
iprev.verify = "disable"
dkim.verify = "disable"
dkim.sign = false
arc.verify = "disable"
arc.seal = false
dmarc.verify = "disable"
spf.verify.ehlo = "disable"
spf.verify.mail-from = "disable"

[resolver]
type = "custom"
custom = ["udp://127.0.0.1:$dns"]

[queue.strategy]
route = "'sink'"
schedule = "'remote'"
connection = "'default'"
tls = "'none'"
[queue.route.sink]
type = "relay"
address = "sink.test"
port = $SINK_PORT
protocol = "smtp"
tls.implicit = false
[queue.tls.none]
dane = "disable"
mta-sts = "disable"
starttls = "disable"
allow-invalid-certs = true
[queue.connection.default]
timeout.connect = "5m"
[queue.schedule.remote]
queue-name = "remote"
retry = ["2m", "5m", "10m"]
expire = "3d"

[tracer.log]
type = "log"
level = "info"
path = "/var/log/stalwart"
enable = true
END
  # The name of a queue needs a queue; 50 is what its own configuration has.
  if [ "$1" = stock ]; then printf '\n[queue.virtual.remote]\nthreads-per-node = 50\n'
  else cat <<END

# Limits that throttle one client and one destination:
[queue.virtual.remote]
threads-per-node = 1000
[session]
transfer-limit = 100000000000
duration = "1h"
[session.data.limits]
messages = 1000000
END
  fi
  printf '%s\n' "${STALWART_EXTRA:-}"
}
configure() {
  local r; r=$(root)
  mkdir -p "$r/var/log/stalwart" "$r/var/lib/stalwart"
  configuration "$profile" > "$r/etc/stalwart.toml"
  answer_names > "$r/usr/local/sbin/answer-names"
}
no_dns() { :; }
# It takes no address for a next hop, reads no /etc/hosts, and refuses loopback addresses: here every name has 0.0.0.0,
# which is this machine, too.
answer_names() {
  cat <<'END'
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", int(sys.argv[1])))
while True:
    query, peer = server.recvfrom(512)
    end = query.index(0, 12) + 5
    is_a = query[end - 4:end - 2] == b"\x00\x01"
    head = query[:2] + b"\x85\x80" + query[4:6] + bytes([0, is_a, 0, 0, 0, 0])
    answer = b"\xc0\x0c\x00\x01\x00\x01\x00\x01\x51\x80\x00\x04\x00\x00\x00\x00" if is_a else b""
    server.sendto(head + query[12:end] + answer, peer)
END
}
# Neither goes to the background by itself.
launch() {
  inroot /bin/sh -c "exec >>/var/log/stalwart.err 2>&1
    python3 /usr/local/sbin/answer-names $dns & $binary --config /etc/stalwart.toml &"
}
# Trees of before had the program alone.
installed() {
  [ -x "$(root)$binary" ] || { echo "$name: not in $(root): run \`$PEERS_DIR/install $name\` as root first" >&2; exit 1; }
}
shutdown() { kill -TERM $(pids); }
queue_path() { mkdir -p "$(root)/var/lib/stalwart"; echo "$(root)/var/lib/stalwart"; }
log_path() { echo "$(root)/var/log/stalwart"; }
durability() { echo "a crash of the program: RocksDB does not sync its write-ahead log"; }
queue_find() {
  listening "$management" || return 0
  curl -sS --fail -u "admin:$secret" "http://127.0.0.1:$management/api/queue/messages?limit=1" |
    python3 -c 'import json, sys; print("a message\n" * json.load(sys.stdin)["data"]["total"], end="")'
}
wipe() { rm -rf "$(root)"/var/lib/stalwart "$(root)"/var/log/stalwart{,.err}; }
version() { echo "Stalwart $(inroot "$binary" --version 2>&1)"; }
peer_main "$@"
