#!/bin/sh
# The service under a kernel of its own, which tests in containers have not: a machine of qemu boots Debian with the package. AppArmor is
# enforced and has nothing to say of a job, so the profiles name what the programs open; a stage has its profile on top of ringd's, and a
# control group with a limit; and the service can write no other control group. usage: kernel.sh BUILD
#
# Needs root, debootstrap and qemu-system-x86; without the help of a processor it takes three minutes.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
. tests/boot/lib.sh
deb=$(ls -t "$build"/ringd_*.deb 2>/dev/null | head -n 1)
[ -n "$deb" ] || skip "there is no package in $build: make deb makes one"
[ "$(dpkg --print-architecture)" = amd64 ] || skip "the machine of this test is an amd64"
command -v qemu-system-x86_64 >/dev/null || skip "qemu-system-x86_64 is missing: apt-get install qemu-system-x86"
base_root "$deb" linux-image-cloud-amd64,initramfs-tools,apparmor

# What the machine does, as root, when it has booted: one line for each thing seen.
cat >"$tmp/guest" <<'END'
echo
state=/var/lib/ringd
model=/usr/share/ringd/tiny-llama
fail() {
    echo "FAILED: $*"
    journalctl -b -u 'ringd*' -n 20 --no-pager
    exit 1
}
dpkg -i /root/ringd.deb >/root/install.log 2>&1 || fail "$(tail -n 1 /root/install.log)"
systemctl is-active --quiet ringd ringd-link || fail "not everything runs"
for unit in ringd ringd-link; do
    is=$(cat "/proc/$(systemctl show -P MainPID $unit)/attr/current")
    [ "$is" = "$unit (enforce)" ] || fail "$unit.service is confined as \"$is\""
done
echo "ok: Linux $(uname -r): ringd and ringd-link are confined by AppArmor, which enforces it"
ringctl init >/dev/null || fail "no cluster can be made"
printf '{"text": "a row of text"}\n{"text": "and another one"}\n' >$state/models/rows.jsonl
id=$(ringctl train --model $model --data $state/models/rows.jsonl --adapter-out $state/results/first --iters 20 --detach)
# A group is named after the job and the process. While the job is planned its stage has no limit yet.
until group=$(echo /sys/fs/cgroup/system.slice/ringd.service/job-"$id"-*) && limit=$(cat "$group/memory.max" 2>/dev/null) && [ -n "$limit" ] &&
    [ "$limit" != max ]; do
    ringctl job "$id" --json | grep -qE '"state": *"(done|failed)"' && fail "the job has ended without a control group: $(ringctl job "$id")"
done
stage=$(head -n 1 "$group/cgroup.procs")
is=$(cat "/proc/$stage/attr/current")
[ "$is" = "ringd//&ringd//stage (enforce)" ] || fail "a stage is confined as \"$is\""
nsenter -t "$(systemctl show -P MainPID ringd)" -m sh -c 'mkdir /sys/fs/cgroup/system.slice/other' 2>/dev/null && fail "the service sees other control groups as writable"
echo "ok: a stage is confined as \"$is\", with a limit of $limit bytes in a group that the service may write, and no other"
until ringctl job "$id" --json | grep -qE '"state": *"(done|failed|cancelled)"'; do sleep 1; done
ringctl job "$id" --json | grep -q '"state": *"done"' || fail "the job: $(ringctl job "$id")"
ringctl generate --model $model --adapter $state/results/first --max-tokens 3 The >/dev/null 2>&1 || fail "no text is generated"
refused=$(journalctl -b -k --no-pager -o cat | grep 'apparmor="\(DENIED\|ALLOWED\)"' | grep ringd)
[ -z "$refused" ] || fail "AppArmor has refused something: $refused"
ringctl doctor | grep -q '^ *ok .*apparmor' || fail "the doctor does not say that AppArmor confines it: $(ringctl doctor)"
echo "ok: a model was trained and used, nothing was refused, and the doctor says so"
echo "ok: that was all"
END

root=$tmp/machine
cp -a "$base" "$root" # a file system is made of a folder
cp "$deb" "$root/root/ringd.deb"
cp "$tmp/guest" "$root/root/guest"
cat >"$root/etc/systemd/system/guest.service" <<'END'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh /root/guest
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStopPost=/bin/systemctl poweroff -f
END
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../guest.service "$root/etc/systemd/system/multi-user.target.wants/guest.service"
ln -s /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
echo a >"$root/etc/hostname"
truncate -s 3G "$tmp/disk"
mkfs.ext4 -q -d "$root" "$tmp/disk" || fail "no disk can be made for the machine"
# Emulated: a machine that is virtual itself may offer /dev/kvm and hang in it.
timeout $((600 * slow)) qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 2048 -smp 2 -nographic -no-reboot -nodefaults -serial stdio \
    -kernel "$(ls "$root"/boot/vmlinuz-* | tail -n 1)" -initrd "$(ls "$root"/boot/initrd.img-* | tail -n 1)" \
    -drive "file=$tmp/disk,format=raw,if=virtio,cache=unsafe" -append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=no" \
    </dev/null >"$tmp/console" 2>&1
tr -d '\r' <"$tmp/console" | grep '^ok: ' | grep -v 'that was all'
tr -d '\r' <"$tmp/console" | grep -q '^ok: that was all' || fail "$(tr -d '\r' <"$tmp/console" | grep -A 20 '^FAILED' || tail -n 5 "$tmp/console")"
