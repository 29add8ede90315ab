#!/bin/bash
# Exim 4 as a loopback relay. Environment: PEER_PORT (2526), SINK_PORT, EXIM_EXTRA (more main options).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
name=exim port=${PEER_PORT:-2526}

configuration() {
  cat <<END
primary_hostname = exim.test
local_interfaces = 127.0.0.1
daemon_smtp_ports = $port
log_file_path = /var/log/exim4/%slog
keep_environment =
tls_advertise_hosts =
acl_smtp_rcpt = accept
acl_smtp_data = accept
host_lookup =
rfc1413_query_timeout = 0s
never_users =
END
  if [ "$1" = tuned ]; then cat <<END
# Limits that throttle one client and one destination:
split_spool_directory = true
smtp_accept_max = 300
smtp_accept_max_per_host = 0
smtp_accept_queue = 0
smtp_accept_queue_per_connection = 0
smtp_connect_backlog = 300
queue_run_max = 20
remote_max_parallel = 4
END
  fi
  cat <<END
${EXIM_EXTRA:-}
begin acl
begin routers
$(router)
begin transports
remote_smtp:
  driver = smtp
  port = $SINK_PORT
  allow_localhost
  hosts_avoid_tls = *
begin retry
* * F,2h,1m; G,16h,1h,1.5
END
}
router() {
  if [ -n "$PEER_MX" ]; then printf 'by_mx:\n  driver = dnslookup\n'
  else printf 'smarthost:\n  driver = manualroute\n  route_list = * 127.0.0.1 byname\n'; fi
  printf '  transport = remote_smtp\n  self = send\n'
}
configure() {
  local r; r=$(root)
  # Exim only takes a configuration file outside /etc/exim4 as root; this path is compiled in.
  configuration "$profile" > "$r/etc/exim4/exim4.conf"
  mkdir -p "$r/dev" "$r/run/exim4"
  [ -c "$r/dev/null" ] || mknod -m 666 "$r/dev/null" c 1 3
  [ -c "$r/dev/urandom" ] || mknod -m 666 "$r/dev/urandom" c 1 9
  chown --reference="$r/var/spool/exim4" "$r/run/exim4"
}
# -q10s: a message whose first delivery lost a race for a lock waits for a queue run.
launch() { inroot /usr/sbin/exim4 -bd -q10s -oP /run/exim4/exim.pid; }
shutdown() { kill $(pids); }
queue_path() { echo "$(root)/var/spool/exim4"; }
log_path() { echo "$(root)/var/log/exim4/mainlog"; }
durability() { echo "a power cut: header and data files are synced"; }
queue_find() { find "$(root)/var/spool/exim4/input" -name '*-H' 2>/dev/null; }
wipe() {
  local q; q=$(root)/var/spool/exim4
  find "$q/input" "$q/msglog" "$q/db" "$(root)/var/log/exim4" -type f -delete 2>/dev/null || true
}
version() { echo "Exim $(inroot /usr/sbin/exim4 --version | sed -n 's/^Exim version \([^ ]*\).*/\1/p')"; }
list() { inroot /usr/sbin/exim4 -bp; }
flush() { inroot /usr/sbin/exim4 -qff; }
peer_main "$@"
