#!/bin/sh
# Prints what the picture of README.md shows: `postrider why` for a message whose destination refuses connections.
# Needs root, for a network of its own. `sh why.sh [SECONDS] >why.txt`; then `python3 terminal.py <why.txt >why.svg`, and
# `python3 terminal.py 47 <why.txt >why-narrow.svg` for telephones.
set -eu
seconds=${1:-840}
postrider=$(realpath "${POSTRIDER:-target/release/postrider}")
if [ -z "${WHY_INSIDE:-}" ]; then
    export WHY_INSIDE=1
    exec unshare --net --mount -- sh "$0" "$seconds"
fi

# Addresses for documentation (RFC 5737). Nothing listens on port 25 of 198.51.100.3.
ip link set lo up
ip address add 192.0.2.1/32 dev lo
ip address add 192.0.2.7/32 dev lo
ip address add 198.51.100.3/32 dev lo
folder=$(mktemp -d)
mount --bind "$folder" /srv

cat >/srv/postrider.toml <<'END'
hostname = "mx.example.com"
data_dir = "/srv/mail"

[[listen]]
address = "192.0.2.1:25"

[relay]
networks = ["192.0.2.0/24"]

[local]
domains = ["example.com", "mx.example.com", "localhost"]
maildir = "/srv/home/{local}"

[hosts]
"example.net" = ["198.51.100.3"]
END
export POSTRIDER_CONFIG=/srv/postrider.toml
"$postrider" serve 2>/srv/log &
daemon=$!
trap 'kill $daemon; wait; rm -rf "$folder"' EXIT
until "$postrider" status >/dev/null 2>&1; do sleep 0.2; done

send() {    # the recipients
    { printf 'From: Ann <ann@example.com>\r\nTo: joe@example.net\r\nSubject: The contract\r\n\r\n'
        head -c 15000 /dev/zero | base64 | sed 's/$/\r/'
    } >/srv/message
    options=
    for recipient; do options="$options --mail-rcpt $recipient"; done
    # shellcheck disable=SC2086
    curl -sS --interface 192.0.2.7 smtp://192.0.2.1:25/pc.example.com --mail-from ann@example.com $options -T /srv/message
}
send joe@example.net ben@example.com
id=$("$postrider" queue list | grep -o '^0[a-z0-9]*' | head -n 1)
for number in $(seq 41); do send "news-$number@example.net"; done
sleep "$seconds"
echo "$ postrider why $id"
"$postrider" why "$id"
