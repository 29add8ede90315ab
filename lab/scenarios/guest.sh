#!/bin/bash
# A virtual machine with Debian's kernel, which has file systems that this machine's kernel may lack (f2fs, jfs, reiserfs, zfs).
#   guest.sh install             once: a Debian tree with a kernel, 2 GB below /var/lib/postlab/guest; a quarter of an hour, since
#                                zfs is compiled; needs root, mmdebstrap and the section contrib of Debian's archive
#   guest.sh run OPTION...       `postlab run OPTION...` in it, with the scenarios beside this script; the results are copied into
#                                ./results
# Environment: POSTLAB, POSTRIDER (the binaries, of this Debian release), GUEST_ROOT, GUEST_MIRROR, GUEST_SUITE; GUEST_ZFS=no installs the guest
# without zfs, in three minutes; GUEST_MEMORY (MiB, default 4096); GUEST_SETUP (a command of the guest's root before the run, such
# as `ulimit -n 1048576`).
# The processors are emulated, or with GUEST_ACCEL=kvm used directly, which a virtual machine in a virtual machine may refuse. Figures are
# comparable with each other only.
set -euo pipefail
PATH=/usr/sbin:/sbin:$PATH
here=$(dirname "$(readlink -f "$0")")
base=${GUEST_ROOT:-/var/lib/postlab/guest}
tree=$base/tree work=

install_tree() {
  local suite=${GUEST_SUITE:-bookworm} mirror
  mirror=${GUEST_MIRROR:-$(apt-get indextargets --format '$(SUITE) $(SITE)' 'Created-By: Packages' | awk '$1 !~ /-/ { print $2; exit }')}
  local packages=linux-image-amd64,initramfs-tools,kmod,procps,iproute2,mount
  packages+=,e2fsprogs,xfsprogs,btrfs-progs,f2fs-tools,jfsutils,reiserfsprogs
  [ "${GUEST_ZFS:-yes}" = no ] || packages+=,linux-headers-amd64,zfs-dkms,zfsutils-linux
  mkdir -p "$base"
  if [ ! -e "$base/.installed" ]; then
    rm -rf --one-file-system "$tree"
    mmdebstrap --quiet --variant=minbase --mode=root --format=directory --aptopt='APT::Install-Recommends "false"' \
      --include="$packages" "$suite" "$tree" "deb $mirror $suite main contrib"
    touch "$base/.installed"
  fi
  cat > "$tree/sbin/lab-init" <<'END'
#!/bin/sh
# The first process of the guest: it does one job and switches off.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /tmp; mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /lab /data /dev/pts
mount /dev/vdb /lab && mount /dev/vdc /data
ip link set lo up; hostname guest; modprobe loop; modprobe zfs 2>/dev/null
cd /lab
sh /lab/job > /lab/output 2>&1 < /dev/null
echo $? > /lab/status
cd /; umount /data /lab; sync
echo o > /proc/sysrq-trigger
sleep 10
END
  chmod 755 "$tree/sbin/lab-init"
  rm -f "$base/root.img"
  mke2fs -q -t ext4 -L root -d "$tree" "$base/root.img" 4G
  cp "$(readlink -f "$tree/vmlinuz")" "$base/vmlinuz" 2>/dev/null || cp "$tree"/boot/vmlinuz-* "$base/vmlinuz"
  cp "$(readlink -f "$tree/initrd.img")" "$base/initrd.img" 2>/dev/null || cp "$tree"/boot/initrd.img-* "$base/initrd.img"
  echo "guest: $(cd "$tree/boot"; echo vmlinuz-*)"
}

run_guest() { # OPTION...
  [ -e "$base/root.img" ] || { echo "guest.sh: no guest in $base: run \`$0 install\` as root first" >&2; exit 1; }
  command -v qemu-system-x86_64 >/dev/null || { echo "guest.sh: run \`apt-get install qemu-system-x86\` first" >&2; exit 1; }
  local machine word
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lab"
  cp -r "$here" "$work/lab/scenarios"
  cp "${POSTLAB:-$(command -v postlab)}" "$work/lab/postlab"; cp "${POSTRIDER:-$(command -v postrider)}" "$work/lab/postrider"
  { echo 'export POSTRIDER=/lab/postrider TMPDIR=/data SCENARIOS=/lab/scenarios; ulimit -n 8192'
    echo "${GUEST_SETUP:-:}"
    printf 'exec /lab/postlab run --results /lab/results'
    for word in "$@"; do
      # Scenarios are named by their files here.
      if [ -e "$word" ] && [ "$(dirname "$(readlink -f "$word")")" = "$here" ]; then word=/lab/scenarios/$(basename "$word"); fi
      printf " '%s'" "${word//\'/\'\\\'\'}"
    done; echo; } > "$work/lab/job"
  mke2fs -q -t ext4 -d "$work/lab" "$work/lab.img" 1G
  # Written, not sparse: a write of the guest finds its room.
  dd if=/dev/zero of="$work/data.img" bs=1M count=3072 status=none; mke2fs -q -t ext4 -F "$work/data.img"
  machine="q35,accel=tcg -cpu max"; [ "${GUEST_ACCEL:-tcg}" != kvm ] || machine="q35,accel=kvm -cpu host,-arch-capabilities"
  echo "guest.sh: ${machine#*accel=}, 2 processors, ${GUEST_MEMORY:=4096} MiB" >&2
  # shellcheck disable=SC2086
  qemu-system-x86_64 -M $machine -smp 2 -m "$GUEST_MEMORY" -nodefaults -display none -no-reboot -serial "file:$work/console" \
    -kernel "$base/vmlinuz" -initrd "$base/initrd.img" -append "root=/dev/vda rw init=/sbin/lab-init console=ttyS0 quiet" \
    -drive "file=$base/root.img,if=virtio,format=raw,snapshot=on" -drive "file=$work/lab.img,if=virtio,format=raw,cache=none" \
    -drive "file=$work/data.img,if=virtio,format=raw,cache=none"
  mkdir "$work/out"
  debugfs -R "rdump / $work/out" "$work/lab.img" >/dev/null 2>&1
  if [ ! -s "$work/out/status" ]; then
    echo "guest.sh: the guest ended before its job did:" >&2; tail -n 20 "$work/console" >&2; exit 2
  fi
  cat "$work/out/output"
  mkdir -p results; cp -r "$work/out/results/." results/
  return "$(cat "$work/out/status")"
}

case ${1:-} in
install) install_tree ;;
run) shift; run_guest "$@" ;;
*) echo "usage: $0 install | run OPTION..." >&2; exit 64 ;;
esac
