#!/bin/sh
# Faults made for real, found by `ringctl doctor`, and mended by the command it prints. usage: doctor.sh BUILD
#
#     a = node 1 ══ cable1, always whole ══ b = node 2
#                ══ cable2, which gets the faults ══
#
# Needs root. No ringd-link runs, so cables have no subnets for other programs: that is a note, and stays one.
# SPDX-License-Identifier: MIT
set -u
LC_ALL=C
export LC_ALL
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
command -v jq >/dev/null || skip "jq is not installed"
# Instrumented builds are slower by this factor; deadlines are stretched by it.
slow=${RINGD_TEST_SLOW:-1}

on() { # NODE ARGS...: ringctl on that node
    who=$1
    shift
    ns_exec "$who" timeout $((20 * slow)) "$build/ringctl" --socket "$tmp/$who/ringd.sock" "$@"
}
await_line() { # FILE PATTERN: until the file has such a line
    timeout $((20 * slow)) tail -n +1 -F "$1" 2>/dev/null | grep -Eqm1 -- "$2" || fail "no line like \"$2\" in $(basename "$1")"
}
start_ringd() { # NODE [WRAPPER...]
    who=$1
    shift
    ns_spawn "$who" "$@" "$build/ringd" --state-dir "$tmp/$who" --name "n$who" --http-listen none --threads 1 --link-socket "$tmp/none" \
        2>>"$tmp/$who.log" </dev/null
    eval "ringd$who=$pid"
}
# What is wrong, one finding a line: SEVERITY NODE CHECK THING: TEXT
complaints() {
    on "${1:-1}" --json doctor >"$tmp/said" || [ $? = 1 ] || return 1
    jq -r '.findings[] | select(.severity == "warning" or .severity == "error") | "\(.severity) \(.node) \(.check) \(.thing): \(.text)"' "$tmp/said"
}
healthy() { [ -z "$(complaints)" ]; }
# Exactly this is wrong; the doctor may be asked from either node.
only() { # PATTERN
    found=$(complaints) && [ "$(echo "$found" | wc -l)" = 1 ] && echo "$found" | grep -Eq -- "$1"
}
expect() { # WHAT PATTERN
    wait_for $((6 * slow)) only "$2" || fail "$1: the doctor says: $(complaints)"
    ok "$1: $found"
}
mend() { # NODE: with the command the doctor gave, there
    fix=$(jq -r '[.findings[] | select(.severity == "warning" or .severity == "error")][0].fix' "$tmp/said")
    [ -n "$fix" ] || fail "no command is offered"
    ns_exec "$1" sh -c "$fix" || fail "the command offered fails: $fix"
    wait_for $((8 * slow)) healthy || fail "after \"$fix\" the doctor says: $(complaints)"
    ok "mended by: $fix"
}

# --- without a daemon: what can be seen from here
mkdir "$tmp/1" "$tmp/2"
ns_up 2
for node in 1 2; do
    : >"$tmp/$node.log"
    ns_exec $node sh -c 'for x in all default; do echo 0 >/proc/sys/net/ipv6/conf/$x/accept_dad; done'
done
cable 1 2
cable 1 2
on 1 doctor >"$tmp/alone"
[ $? = 1 ] || fail "without a daemon the doctor is content"
grep -q "no ringd answers on $tmp/1/ringd.sock: No such file" "$tmp/alone" && grep -q '^  ok .*memory' "$tmp/alone" ||
    fail "without a daemon: $(cat "$tmp/alone")"
ok "no daemon: $(sed -n 2p "$tmp/alone")"

# --- no cluster yet
for node in 1 2; do
    start_ringd $node
    await_line "$tmp/$node.log" 'API on'
done
expect "no cluster" '^warning n1 cluster cluster: this node is in no cluster yet'
on 1 init >/dev/null && on 2 join "$(on 1 invite)" >/dev/null || fail "b cannot join"
wait_for $((6 * slow)) healthy || fail "at the beginning: $(complaints)"
ok "nothing is wrong: $(on 1 doctor | tr '\n' ';')"

# --- both ends of a cable must take packets of one size
ns_exec 2 ip link set cable2 mtu 1400
expect "MTU" '^warning n2 mtu cable2: MTU 1400 here and 1500 at the other end, cable2 of n1'
mend 2

# --- a firewall that eats beacons at one end
if command -v nft >/dev/null && ns_exec 2 nft add table inet filter; then
    ns_exec 2 nft add chain inet filter input '{ type filter hook input priority 0; policy accept; }'
    ns_exec 2 nft add rule inet filter input iifname cable2 udp dport 17464 drop
    expect "firewall" '^error n2 cables cable2: a firewall here drops the beacons of n1'
    mend 2
else
    echo "note: no nftables here: the firewall is left out"
fi

# --- a cable that works one way only; asked from the other node too
mute 2 1
expect "one way" '^error n2 cables cable2: the cable works one way only: n1 hears this node on cable2'
complaints 2 | grep -q '^error n2 cables cable2: the cable works one way only' || fail "asked at n2: $(complaints 2)"
unmute 2 1
wait_for $((8 * slow)) healthy || fail "the cable works again: $(complaints)"
ok "both ways again"

# --- IPv6 switched off on a port
ns_exec 1 sh -c 'echo 1 >/proc/sys/net/ipv6/conf/cable2/disable_ipv6'
expect "no IPv6" '^warning n1 ports cable2: IPv6 is off'
mend 1

# --- a port that is down is a note with the command; the other end sees an empty port, which is no fault
ns_exec 1 ip link set cable2 down
wait_for $((5 * slow)) sh -c "\"$build/ringctl\" --socket \"$tmp/1/ringd.sock\" doctor >\"$tmp/down\"; grep -q 'note .*ports cable2: the port is down' \"$tmp/down\"" ||
    fail "a port that is down: $(cat "$tmp/down")"
ns_exec 1 sh -c "$(sed -n 's/.*fix: \(ip link set cable2 up\)/\1/p' "$tmp/down" | head -n 1)"
wait_for $((8 * slow)) healthy || fail "the port is up again: $(complaints)"
ok "up again"

# --- a daemon that hangs: the others say so within the deadline
kill -STOP $ringd2
complaints | grep -q '^error n2 answer ringd: it can be reached, and did not answer within 2 s' || fail "a daemon that hangs: $(complaints)"
kill -CONT $ringd2
wait_for $((10 * slow)) healthy || fail "it goes on: $(complaints)"
ok "a daemon that hung"

# --- a daemon that is gone
kill $ringd2
wait_for $((15 * slow)) only '^error n2 answer ringd: it cannot be reached from here' || fail "a daemon that is gone: $(complaints)"
ok "gone: $found"
