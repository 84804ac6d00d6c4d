#!/bin/sh
# A cable on a machine whose network belongs to systemd-networkd, for real: what it flushes is set again, and a port that was
# adopted is left alone. usage: networkd.sh BUILD
#
#     a = node 1, with systemd-networkd ═══ cable1 ═══ b = node 2
#
# networkd runs in node a's namespace, with a /run and an /etc/systemd/network of its own and its own message bus. Needs root,
# systemd and dbus-daemon.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
networkd=/lib/systemd/systemd-networkd
[ -x $networkd ] || skip "systemd-networkd is not installed"
command -v dbus-daemon >/dev/null && command -v networkctl >/dev/null || skip "dbus-daemon or networkctl is not installed"

inside() { # CMD...: where networkd runs
    nsenter -t "$manager" -m -n --pid="/proc/$manager/ns/pid_for_children" "$@"
}
begin_logs 1 2
ns_up 2
no_dad 1 2
cable 1 2

# A read-only /sys tells networkd not to wait for udev. In a process namespace of their own both end with its first process.
cat >"$tmp/manager.sh" <<'EOF'
mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount -o remount,ro /sys || exit 1
mkdir -p /etc/systemd/network && mount -t tmpfs tmpfs /etc/systemd/network || exit 1
mkdir -p /run/dbus /run/systemd
printf '[Match]\nName=*\nKind=!bridge\n[Network]\nDHCP=yes\nLinkLocalAddressing=ipv6\n' >/etc/systemd/network/90-all.network
dbus-daemon --system --nofork --nopidfile --address=unix:path=/run/dbus/system_bus_socket &
until [ -S /run/dbus/system_bus_socket ] || ! kill -0 $!; do sleep 0.05; done
"$1" &
wait
EOF
ns_spawn 1 unshare -m -p --fork --kill-child --mount-proc sh "$tmp/manager.sh" $networkd >"$tmp/manager.log" 2>&1 </dev/null
manager=$pid
manages() { # FILE: networkd goes by that for the cable
    inside grep -qs "^NETWORK_FILE=.*$1" "/run/systemd/netif/links/$(ns_index 1 cable1)"
}
wait_for $((10 * slow)) manages 90-all.network || skip "systemd-networkd does not run in a namespace here: $(tail -n 1 "$tmp/manager.log")"
# Its bus may be a moment behind.
wait_for $((10 * slow)) inside networkctl --no-pager list >/dev/null 2>&1 || skip "networkctl does not reach systemd-networkd here"
ok "systemd-networkd manages cable1"

for node in 1 2; do
    start_link $node
    start_ringd $node
done
for node in a b; do
    await_line "$tmp/$node.log" 'API on' 20
done
enrol 1
enrol 2
check_cable 1 1 2

# --- it takes away what it does not know
before=$(address 1 1)
start=$(milliseconds)
inside networkctl reconfigure cable1 || fail "networkctl reconfigure"
has_again() {
    [ "$(address 1 1)" = "$before" ]
}
watch_deletions() { # what is removed from cable1 from here on is in deleted.log
    ns_spawn 1 ip monitor address dev cable1 >"$tmp/deleted.log" 2>&1 </dev/null
    watcher=$pid
}
check_cable 1 1 2
has_again || fail "$before became $(address 1 1)"
lasted "set again after networkctl reconfigure" "$start"
ns_exec 1 ip addr add 192.0.2.1/24 dev cable1
inside networkctl reconfigure cable1
foreign_gone() {
    ! ns_exec 1 ip addr show dev cable1 | grep -qF 192.0.2.1/24
}
wait_for $((5 * slow)) foreign_gone || fail "this systemd-networkd keeps foreign addresses: nothing is tested here"

# --- adopted: it leaves the port alone
said=$(inside "$build/ringctl" link adopt cable1 --dry-run) || fail "adopt --dry-run: $said"
[ ! -e "/proc/$manager/root/etc/systemd/network/10-ringd-cable1.network" ] || fail "--dry-run has written"
said=$(inside "$build/ringctl" link adopt cable1) || fail "adopt: $said"
ok "$(echo "$said" | head -n 1)"
apply=$(echo "$said" | sed -n 's/^to be applied with: //p')
inside $apply || fail "$apply"
wait_for $((5 * slow)) manages 10-ringd-cable1.network || fail "after \"$apply\" networkd goes by $(inside grep NETWORK_FILE "/run/systemd/netif/links/$(ns_index 1 cable1)")"
check_cable 1 1 2
ns_exec 1 ip addr add 192.0.2.1/24 dev cable1
watch_deletions
inside networkctl reconfigure cable1 || fail "networkctl reconfigure, adopted"
configured() {
    inside grep -q '^ADMIN_STATE=configured' "/run/systemd/netif/links/$(ns_index 1 cable1)"
}
wait_for $((5 * slow)) configured || fail "networkd does not finish with cable1"
foreign_gone && fail "a foreign address went, though the port is adopted"
kill "$watcher"
wait "$watcher" 2>/dev/null
forget "$watcher"
grep "^Deleted.*${before%/*}" "$tmp/deleted.log" && fail "our address went, though the port is adopted"
check_cable 1 1 2
ok "adopted, networkctl reconfigure takes nothing away"

# --- and back
said=$(inside "$build/ringctl" link release cable1) || fail "release: $said"
ok "$(echo "$said" | head -n 1)"
inside $(echo "$said" | sed -n 's/^to be applied with: //p') || fail "after release"
wait_for $((5 * slow)) manages 90-all.network || fail "released, networkd does not go by its own file"
inside networkctl reconfigure cable1
wait_for $((5 * slow)) foreign_gone || fail "released, the foreign address stays"
check_cable 1 1 2
alive a b link-a link-b
