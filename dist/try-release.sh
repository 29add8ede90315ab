#!/bin/bash
# Tries the files of a release as a stranger would, on a fresh Debian: `bash dist/try-release.sh target/release-files [ROOT]`.
# Needs root, debootstrap and iproute2. ROOT (default /var/tmp/postrider-try) is made anew; nothing else of this machine is changed, and the
# network of the try is its own.
set -euo pipefail
files=$(realpath "$1") root=${2:-/var/tmp/postrider-try} suite=${SUITE:-bookworm}
[ -f "$files/SHA256SUMS" ] || { echo "try-release: $files has no SHA256SUMS" >&2; exit 2; }
# The package manager knows where packages come from.
mirror=${MIRROR:-$(apt-get indextargets --format '$(SUITE) $(SITE)' 'Created-By: Packages' | awk '$1 !~ /-/ { print $2; exit }')}
rm -rf --one-file-system "$root"
debootstrap --variant=minbase "$suite" "$root" "$mirror" >/dev/null
mkdir "$root/release"
cp "$files"/* "$root/release/"
cat >"$root/release/inside" <<'END'
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
cd /release
say() { echo "== $*"; }
fail() { echo "try-release: $*" >&2; exit 1; }
wait_for() { # WHAT COMMAND...: up to a minute
  local what=$1 end=$((SECONDS + 60)); shift
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || fail "waited a minute for $what"; sleep 0.1; done
}
# Sends a message by SMTP as a shell can: PORT FROM TO
smtp() {
  exec 3<>"/dev/tcp/127.0.0.1/$1"
  local reply
  read -r reply <&3
  for command in "EHLO localhost" "MAIL FROM:<$2>" "RCPT TO:<$3>" DATA $'Subject: hello\r\n\r\nIt works.\r\n.' QUIT; do
    printf '%s\r\n' "$command" >&3
    while read -r reply <&3 && [ "${reply:3:1}" = - ]; do :; done
    case $reply in 2* | 3*) ;; *) fail "the reply to $command is $reply" ;; esac
  done
  exec 3>&-
}
has_files() { [ -n "$(ls -A "$1" 2>/dev/null)" ]; }

say "the checksums"
sha256sum --quiet --check SHA256SUMS

say "the archive: unpack, serve, send"
begin=$(date +%s%N)
mkdir /try && cd /try && tar xf /release/postrider-*-linux.tar.gz && cd postrider-*-linux
./postrider serve 2>serve.log & daemon=$!
wait_for "the daemon" grep -q "listening on" serve.log
smtp 2525 me@localhost you@localhost
wait_for "the first mail" has_files postrider-data/mail/you/new
echo "first mail $((($(date +%s%N) - begin) / 1000000)) ms after the archive was there"
kill $daemon && wait $daemon || true
./postrider config schema | grep -q '"\$schema"'
gzip -dc share/man/man1/postrider.1.gz | grep -q '^\.TH postrider'

say "the Debian package: install"
useradd --create-home --shell /bin/bash jane
begin=$(date +%s%N)
dpkg --install /release/postrider_*.deb
[ "$(stat -c %U /var/lib/postrider)" = postrider ] || fail "/var/lib/postrider is not the daemon's"
grep -q '^root: jane$' /etc/aliases || fail "nobody reads mail for root"
postrider --version
# There is no systemd here, so root opens the port.
sed -i 's/"systemd:smtp"/"127.0.0.1:25"/' /etc/postrider/postrider.toml
start() {
  postrider serve --config /etc/postrider/postrider.toml 2>/run/serve.log & daemon=$!
  wait_for "the daemon of the package" grep -q "listening on" /run/serve.log
}
stop() { kill $daemon && wait $daemon || true; }
start
printf 'Subject: test\n\nhello\n' | sendmail -v root
wait_for "mail in /var/mail/jane" test -s /var/mail/jane
echo "first mail $((($(date +%s%N) - begin) / 1000000)) ms after the package was there"
grep -q '^Subject: test' /var/mail/jane

say "upgrade: the configuration and the queue stay"
stop
echo '# mine' >>/etc/postrider/postrider.toml
dpkg --install /release/postrider_*.deb
grep -q '^# mine$' /etc/postrider/postrider.toml || fail "the upgrade changed the configuration"
start
smtp 25 someone@example.org jane@"$(hostname)"
wait_for "two messages" bash -c '[ "$(grep -c ^Subject: /var/mail/jane)" = 2 ]'
stop

say "remove and install again"
dpkg --remove postrider
[ -e /etc/postrider/postrider.toml ] && [ -d /var/lib/postrider/spool ] || fail "a removal took the configuration or the queue"
[ ! -e /usr/bin/postrider ] || fail "a removal left the program"
dpkg --install /release/postrider_*.deb
grep -q '^# mine$' /etc/postrider/postrider.toml || fail "the configuration has gone"
start && stop

say "purge"
dpkg --purge postrider
for left in /etc/postrider /var/lib/postrider /var/log/postrider /usr/share/postrider; do
  [ ! -e $left ] || fail "a purge left $left"
done
! getent passwd postrider || fail "a purge left the user"

say "Postlab's package"
dpkg --install /release/postlab_*.deb
postlab schema | grep -q '"\$schema"'
postlab sink -c 127.0.0.1:2600 >/dev/null & sink=$!
wait_for "the sink" bash -c '</dev/tcp/127.0.0.1/2600'
postlab source -s 2 -m 100 127.0.0.1:2600
kill $sink
dpkg --purge postlab
say "all is well"
END
unshare --mount --pid --net --uts --fork bash -c '
  ip link set lo up; hostname try.example
  mount -t proc proc "$0/proc"; mount -t tmpfs tmpfs "$0/run"; mount --rbind /dev "$0/dev"
  exec chroot "$0" /bin/bash /release/inside' "$root"
