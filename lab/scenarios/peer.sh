#!/bin/sh
# A peer of lab/peers as the relay of a scenario, tuned, with its queue in another directory: `peer.sh start|stop|describe`.
# Needs root. Environment: PEER (its name, such as sendmail); LAB_DATA (the directory; default mta in $LAB_WORK, the private directory of
# the run); LAB_PORT (default 2529); SINK_PORT.
set -eu
peer=$SCENARIOS/../peers/${PEER:?is not set: name a script of lab/peers}.sh
data=${LAB_DATA:-${LAB_WORK:?is not set: postlab run sets it to a private directory}/mta}
queue=$("$peer" queue)
export PEER_PORT="${LAB_PORT:-2529}"

stop() {
	"$peer" stop >/dev/null
	# It was mounted by the start of this run, or of one that was killed.
	while mountpoint -q "$queue"; do umount "$queue"; done
	"$peer" reset
}

start() {
	stop
	rm -rf "$data"
	# Postfix needs the directories of its queue, with their owners.
	cp -a "$queue" "$data"
	mount --bind "$data" "$queue"
	"$peer" start tuned
}

case ${1:-} in
start) start ;;
stop) stop ;;
describe)
	"$peer" version | sed 's/ .*//'
	"$peer" version | sed 's/^[^ ]* //'
	"$peer" config-hash tuned
	;;
*) echo "usage: $0 start|stop|describe" >&2; exit 64 ;;
esac
