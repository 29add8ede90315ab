#!/bin/sh
# Debian's Postfix as a loopback relay for a scenario, beside a Postfix that may run already: `postfix.sh start|stop|describe`.
# Needs root. Environment: SINK_PORT; LAB_DATA (default mta in $LAB_WORK, the private directory of the run); LAB_PORT (default 2529); EXTRA (more
# lines for main.cf).
set -eu
PATH=/usr/sbin:$PATH
data=${LAB_DATA:-${LAB_WORK:?is not set: postlab run sets it to a private directory}/mta}
port=${LAB_PORT:-2529}
group=/sys/fs/cgroup/cpuacct/postlab-mta
[ -d /sys/fs/cgroup/cpuacct ] || group=/sys/fs/cgroup/postlab-mta

stop() {
	[ -d "$data/etc" ] || return 0
	postfix -c "$data/etc" stop >/dev/null 2>&1 || true
	for _ in $(seq 50); do [ -s "$group/cgroup.procs" ] && [ -n "$(cat "$group/cgroup.procs")" ] || break; sleep 0.1; done
	rmdir "$group" 2>/dev/null || true
}

configuration() {
	cat <<END
compatibility_level = 3.6
queue_directory = $data/queue
data_directory = $data/data
maillog_file = $data/mail.log
maillog_file_prefixes = $data
multi_instance_name =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = postfix.test
mydestination =
mynetworks = 127.0.0.0/8
relayhost = [127.0.0.1]:$SINK_PORT
smtp_dns_support_level = disabled
smtp_host_lookup = native
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
default_process_limit = 200
default_destination_concurrency_limit = 50
${EXTRA:-}
END
}

# The ports and places differ from run to run, and are no part of what is compared.
describe() {
	command -v postfix >/dev/null || { echo "postfix.sh: Postfix is not installed: apt-get install postfix" >&2; exit 1; }
	echo Postfix
	postconf -h mail_version
	(data=DATA SINK_PORT=PORT && configuration) | sha256sum | cut -c -16
}

start() {
	[ -z "${DURABILITY:-}" ] || { echo "postfix.sh: Postfix has no durability \"$DURABILITY\"" >&2; exit 64; }
	command -v postfix >/dev/null || { echo "postfix.sh: Postfix is not installed: apt-get install postfix" >&2; exit 1; }
	[ "$(id -u)" = 0 ] || { echo "postfix.sh: only root can start Postfix" >&2; exit 1; }
	stop
	rm -rf "$data"
	mkdir -p "$data/etc" "$data/queue" "$data/data"
	# Its servers run as postfix and have to get there.
	chmod 755 "$data" "$data/etc" "$data/queue"
	chown postfix "$data/data"
	configuration >"$data/etc/main.cf"
	sed "s/^smtp      *inet .*/127.0.0.1:$port inet n - n - - smtpd/; s/^\([a-z]*  *unix  *[^ ]*  *[^ ]*  *\)y /\1n /" \
		/usr/share/postfix/master.cf.dist >"$data/etc/master.cf"
	mkdir -p "$group" 2>/dev/null || true
	(
		echo 0 2>/dev/null >"$group/cgroup.procs" || true
		exec postfix -c "$data/etc" start
	) </dev/null >>"$data/start.log" 2>&1
}

case ${1:-} in
start) start ;;
stop) stop ;;
describe) describe ;;
*) echo "usage: $0 start|stop|describe" >&2; exit 64 ;;
esac
