#!/bin/bash
# Postfix as a loopback relay. Environment: PEER_PORT (2525), SINK_PORT, POSTFIX_EXTRA (more main.cf lines).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
name=postfix port=${PEER_PORT:-2525}

# Of a parameter that is set twice only the last line: for each other, every process would log a warning, and
# postlogd, which logs its own, can wait for itself for ever.
configuration() { settings "$1" | tac | awk '/^[a-z]/ { if (seen[$1]++) next } { print }' | tac; }
settings() {
  cat <<END
compatibility_level = 3.6
myhostname = postfix.test
mydomain = postfix.test
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
mydestination =
local_recipient_maps =
alias_maps =
alias_database =
local_transport = error:no local delivery here
relayhost = [127.0.0.1]:$SINK_PORT
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_peername_lookup = no
smtp_dns_support_level = disabled
smtp_host_lookup = native
smtp_tls_security_level = none
smtpd_tls_security_level = none
biff = no
maillog_file = /var/log/mail.log
END
  if [ "$1" = tuned ]; then cat <<END
# Limits that throttle one client and one destination. The default process limit is 100 already, and
# the limits on a client's connections do not apply to mynetworks.
default_destination_concurrency_limit = 50
initial_destination_concurrency = 20
in_flow_delay = 0
END
  fi
  if [ -n "$PEER_MX" ]; then cat <<END
relayhost =
smtp_tcp_port = $SINK_PORT
smtp_dns_support_level = enabled
smtp_host_lookup = dns
END
  fi
  printf '%s\n' "${POSTFIX_EXTRA:-}"
}
configure() {
  local r; r=$(root)
  configuration "$profile" > "$r/etc/postfix/main.cf"
  # The tree is the change of root: no server changes it again.
  sed -e "/^smtp  *inet/s/^smtp  */127.0.0.1:$port /" \
      -e '/^[^# ]/s/^\(\S* *\S* *\S* *\S* *\)y /\1n /' \
      "$r/usr/share/postfix/master.cf.dist" > "$r/etc/postfix/master.cf"
  mkdir -p "$r/dev" "$r/var/log"
  [ -c "$r/dev/null" ] || mknod -m 666 "$r/dev/null" c 1 3
}
launch() {
  if [ -n "${PEER_SYSLOGD:-}" ]; then start_syslogd; fi
  # What it prints is of interest only if it fails.
  if inroot /usr/sbin/postfix -c /etc/postfix start >"$(root)/start.log" 2>&1; then return 0; fi
  cat "$(root)/start.log" >&2
  # Without a terminal it writes to the log only, which may not be there yet.
  if [ ! -s "$(root)/start.log" ] && command -v script >/dev/null; then
    script -qec "chroot '$(root)' /usr/sbin/postfix -c /etc/postfix check" /dev/null < /dev/null >&2 || true
  fi
  return 1
}
shutdown() {
  inroot /usr/sbin/postfix -c /etc/postfix stop
  # What is left is the syslogd.
  if [ -n "${PEER_SYSLOGD:-}" ]; then kill $(pids) 2>/dev/null || true; fi
}
queue_path() { echo "$(root)/var/spool/postfix"; }
log_path() { echo "$(root)/var/log/mail.log"; }
durability() { echo "a power cut: each queue file is synced"; }
queue_find() { find "$(root)"/var/spool/postfix/{maildrop,incoming,active,deferred,hold} -type f 2>/dev/null; }
wipe() {
  local q; q=$(root)/var/spool/postfix
  find "$q"/{maildrop,incoming,active,deferred,hold,defer,bounce,corrupt} -type f -delete 2>/dev/null || true
  rm -f "$(root)/var/log/mail.log" "$(root)/dev/log"
}
version() { echo "Postfix $(inroot /usr/sbin/postconf -h mail_version)"; }
list() { inroot /usr/sbin/postqueue -p; }
flush() { inroot /usr/sbin/postqueue -f; }
peer_main "$@"
