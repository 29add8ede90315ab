#!/bin/sh
# Runs a command whose standard error goes to the system's log, a line an entry.
set -eu
pipe=$(mktemp -u)
mkfifo "$pipe"
logger -t postlab-mta <"$pipe" &
exec "$@" 2>"$pipe"
