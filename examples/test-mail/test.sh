#!/bin/sh
# An example of a test: starts a server that captures all mail, runs a program that sends, and looks at what arrived.
# `sh test.sh COMMAND...`; without a command, curl sends a message. The port is 2525: SMTP_HOST=127.0.0.1 SMTP_PORT=2525.
set -eu
postrider=${POSTRIDER:-postrider}
folder=$(mktemp -d)
(cd "$folder" && exec "$postrider" serve --capture >capture.log 2>&1) &
daemon=$!
trap 'kill $daemon; rm -rf "$folder"' EXIT
# Nothing is sent to another server that may have the port.
until grep -q 'listening on' "$folder/capture.log" 2>/dev/null; do
    kill -0 $daemon 2>/dev/null || { cat "$folder/capture.log" >&2; exit 1; }
    sleep 0.1
done

if [ $# -gt 0 ]; then
    SMTP_HOST=127.0.0.1 SMTP_PORT=2525 "$@"
else
    printf 'Subject: Your order\r\n\r\nThank you.\r\n' |
        curl -sS smtp://127.0.0.1:2525 --mail-from shop@example.com --mail-rcpt ann@example.net -T -
fi

sleep 0.5
cd "$folder/postrider-capture/captured"
echo "messages: $(find . -name '*.eml' | wc -l)"
grep -h '^Subject:' ./*.eml
