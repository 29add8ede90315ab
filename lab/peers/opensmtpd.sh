#!/bin/bash
# OpenSMTPD as a loopback relay. Environment: PEER_PORT (2527), SINK_PORT, OPENSMTPD_EXTRA (more smtpd.conf lines).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
name=opensmtpd port=${PEER_PORT:-2527}

configuration() {
  echo "listen on 127.0.0.1 port $port hostname opensmtpd.test"
  if [ "$1" = tuned ]; then cat <<END
# Limits that throttle one client and one destination
# (by default 100 messages a connection, and one connection to a route every 5 s, 5 in all):
smtp limit max-mails 1000000
mta limit conn-delay-route 0
mta limit conn-delay-relay 0
mta limit reconn-delay-route 0
# by default 10 envelopes are scheduled at a time:
scheduler limit max-schedule 1000
mta limit max-conn-per-host 50
mta limit max-conn-per-route 50
mta limit max-conn-per-connector 50
END
  fi
  cat <<END
${OPENSMTPD_EXTRA:-}
action "relay" relay host smtp://127.0.0.1:$SINK_PORT
match from any for any action "relay"
END
}
configure() {
  [ -z "$PEER_MX" ] || { echo "opensmtpd: PEER_MX: OpenSMTPD connects to port 25 of an exchanger only" >&2; exit 64; }
  local r; r=$(root)
  configuration "$profile" > "$r/etc/smtpd.conf"
  echo opensmtpd.test > "$r/etc/mailname"
}
launch() { start_syslogd; inroot /usr/sbin/smtpd -f /etc/smtpd.conf; }
shutdown() { inroot /usr/sbin/smtpctl stop || kill $(pids); kill $(pids) 2>/dev/null; }
queue_path() { echo "$(root)/var/spool/smtpd"; }
log_path() { echo "$(root)/var/log/mail.log"; }
durability() { echo "a crash of the program: queue files are not synced"; }
queue_find() { find "$(root)/var/spool/smtpd/queue" -mindepth 3 -name message 2>/dev/null; }
wipe() {
  local q; q=$(root)/var/spool/smtpd
  find "$q/queue" "$q/temporary" "$q/incoming" "$q/offline" "$q/corrupt" "$q/purge" -mindepth 1 -delete 2>/dev/null || true
  rm -f "$(root)/var/log/mail.log"
}
version() { echo "OpenSMTPD $(inroot /usr/sbin/smtpd -h 2>&1 | sed -n 's/^version: *\(OpenSMTPD \)*//p')"; }
list() { inroot /usr/sbin/smtpctl show queue; }
flush() { inroot /usr/sbin/smtpctl schedule all; }
peer_main "$@"
