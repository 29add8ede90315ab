#!/bin/bash
# Postrider as a loopback relay. Environment: POSTRIDER (the binary; else target/dist/postrider or target/release/postrider below the current
# folder, else the one on PATH), PEER_PORT (2529), SINK_PORT, POSTRIDER_EXTRA (more configuration). Needs no root; without it
# its CPU time is that of its processes while they run.
. "$(dirname "$(readlink -f "$0")")/lib.sh"
more_profiles='unsynced queue-dirs'
name=postrider port=${PEER_PORT:-2529}
binary=${POSTRIDER:-}
if [ -z "$binary" ]; then
  # A figure of another profile than `dist` is none to publish, but better than none.
  for profile in dist release; do
    if [ -x target/$profile/postrider ]; then binary=$PWD/target/$profile/postrider; break; fi
  done
  [ -n "$binary" ] || binary=$(command -v postrider || true)
fi
config=$(root)/postrider.toml

configuration() {
  cat <<END
$(case $1 in
    unsynced) echo 'spool.durability = "none"' ;;
    queue-dirs) echo 'spool.backend = "queue-dirs"' ;;
  esac)
hostname = "postrider.test"
data_dir = "$(root)/data"

[[listen]]
address = "127.0.0.1:$port"

[relay]
networks = ["127.0.0.0/8"]

[[route]]
domains = ["*"]
$(if [ -n "$PEER_MX" ]; then echo 'mx = true'; else echo "smarthost = \"127.0.0.1:$SINK_PORT\""; fi)
tls = "off"

[log]
file = "$(root)/mail.log"
END
  if [ "$1" != stock ]; then cat <<END

# A limit that throttles one destination:
[delivery]
connections_per_destination = 50
END
  elif [ -n "$PEER_MX" ]; then printf '\n[delivery]\n'
  fi
  if [ -n "$PEER_MX" ]; then echo "mx_port = $SINK_PORT"; fi
  printf '%s\n' "${POSTRIDER_EXTRA:-}"
}
configure() {
  configuration "$profile" > "$config"
}
no_dns() { :; }
# Measurements may be made in memory.
launch() { POSTRIDER_EPHEMERAL=true "$binary" serve --config "$config" >>"$(root)/stderr.log" 2>&1 & }
shutdown() { kill -TERM $(pids); }
queue_path() { mkdir -p "$(root)/data"; echo "$(root)/data"; }
log_path() { echo "$(root)/mail.log"; }
durability() { case $profile in
    unsynced) echo "nothing: the reply does not wait for the disk" ;;
    queue-dirs) echo "a power cut: files and directories are synced" ;;
    *) echo "a power cut: the log is synced" ;;
  esac; }
queue_find() { "$binary" queue list --config "$config" --ids; }
wipe() { rm -rf "$(root)/data" "$(root)/mail.log" "$(root)/stderr.log"; }
version() { "$binary" --version | sed 's/^p/P/'; }
list() { "$binary" queue list --config "$config"; }
flush() { "$binary" queue flush --config "$config"; }
installed() {
  [ -n "$binary" ] || { echo "postrider: no binary: set POSTRIDER to its path" >&2; exit 1; }
  mkdir -p "$(root)"
}
peer_main "$@"
