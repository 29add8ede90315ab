#!/bin/sh
# Postrider as a loopback relay for a scenario: `postrider.sh start|stop|describe`.
# Environment: SINK_PORT; LAB_DATA (its files; default mta in $LAB_WORK, the private directory of the run); LAB_PORT (default 2529);
# DURABILITY (of the spool; with "none" the reply does not wait for the disk); POSTRIDER (the binary); EXTRA (more configuration); LOG (instead of a log in a file); RUNNER (a script beside this one that runs it).
set -eu
data=${LAB_DATA:-${LAB_WORK:?is not set: postlab run sets it to a private directory}/mta}
port=${LAB_PORT:-2529}
binary=${POSTRIDER:-postrider}
group=/sys/fs/cgroup/cpuacct/postlab-mta
[ -d /sys/fs/cgroup/cpuacct ] || group=/sys/fs/cgroup/postlab-mta

stop() {
	[ -s "$data/pid" ] || return 0
	pid=$(cat "$data/pid")
	kill -TERM "$pid" 2>/dev/null || true
	for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
	kill -KILL "$pid" 2>/dev/null || true
	rm -f "$data/pid"
	rmdir "$group" 2>/dev/null || true
}

configuration() {
	durability=
	[ -z "${DURABILITY:-}" ] || durability=$(printf 'spool.durability = "%s"' "$DURABILITY")
	log=$(printf '[log]\nfile = "%s/mail.log"' "$data")
	cat <<END
$durability
hostname = "postrider.test"
data_dir = "$data/data"

[[listen]]
address = "127.0.0.1:$port"

[relay]
networks = ["127.0.0.0/8"]

[[route]]
domains = ["*"]
smarthost = "127.0.0.1:$SINK_PORT"
tls = "off"

[delivery]
connections_per_destination = 50

${LOG:-$log}
${EXTRA:-}
END
}

# The ports and places differ from run to run, and are no part of what is compared.
describe() {
	version=$("$binary" --version | head -n 1)
	echo Postrider
	echo "${version#postrider }"
	(data=DATA port=PORT SINK_PORT=PORT && configuration) | sed "s|${LAB_WORK:-DATA}|DATA|g" | sha256sum | cut -c -16
}

start() {
	stop
	mkdir -p "$data"
	rm -rf "$data/data" "$data/mail.log"
	configuration >"$data/postrider.toml"
	# Without the rights for a control group its processor time stays unknown, and the rest is measured.
	mkdir -p "$group" 2>/dev/null || true
	(
		echo 0 2>/dev/null >"$group/cgroup.procs" || true
		ulimit -n "$(ulimit -Hn)"
		set -- "$binary" serve --config "$data/postrider.toml"
		[ -z "${RUNNER:-}" ] || set -- sh "$SCENARIOS/$RUNNER.sh" "$@"
		exec "$@"
	) </dev/null >"$data/stderr.log" 2>&1 &
	pid=$!
	echo $pid >"$data/pid"
	# A daemon that cannot start says why here, and not as a port that refuses connections.
	for _ in $(seq 100); do
		grep -q 'listening on' "$data/stderr.log" && return
		kill -0 $pid 2>/dev/null || { echo "postrider did not start:" >&2; tail -n 20 "$data/stderr.log" >&2; rm -f "$data/pid"; exit 1; }
		sleep 0.05
	done
}

case ${1:-} in
start) start ;;
stop) stop ;;
describe) describe ;;
*) echo "usage: $0 start|stop|describe" >&2; exit 64 ;;
esac
