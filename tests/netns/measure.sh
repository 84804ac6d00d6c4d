#!/bin/sh
# Cables are measured, the ring leaves the slow one out, and an order set by hand is followed. usage: measure.sh BUILD
#
#     a ══ 1, 100 Mb/s ══ b        every node has a cable to every other: 2 a-c, 3 a-d, 4 b-c, 5 b-d, 6 c-d;
#     ║ ╲               ╱ ║        of the three rings there are, two pass over cable 1
#     ║    ═══     ═══    ║
#     ║ ╱               ╲ ║
#     d ═════════════════ c
#
# Each node runs ringd; needs root.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh

ns_up 4
begin_logs 1 2 3 4
no_dad 1 2 3 4
cable 1 2 100mbit
cable 1 3
cable 1 4
cable 2 3
cable 2 4
cable 3 4
for node in 1 2 3 4; do
    start_ringd $node
done
for node in a b c d; do
    await_line "$tmp/$node.log" 'API on' 20
done
for node in 1 2 3 4; do
    enrol $node
done
await_all 'a ring of 4:' 20 a b c d

# --- every cable is measured, by both ends; the slow one is named
measured() {
    [ "$(cat "$tmp"/?.log | grep -cE 'cable on cable[1-6] to .: [0-9]+ Mb/s out, [0-9]+ Mb/s in')" -ge 12 ]
}
start=$(milliseconds)
wait_for $((40 * slow)) measured || fail "not all cables are measured"
took=$(($(milliseconds) - start))
ok "six cables measured at both ends after $took ms"
slow_rate=$(grep -hoE 'cable on cable1 to b: [0-9]+ Mb/s out' "$tmp/a.log" | grep -oE '[0-9]+ Mb' | tail -n 1)
[ "${slow_rate%% *}" -ge 30 ] && [ "${slow_rate%% *}" -le 200 ] || fail "cable1 of 100 Mb/s was measured at $slow_rate/s"
ok "100 Mb/s measured at $slow_rate/s; the others: $(grep -hoE 'cable[2-6] to .: [0-9]+ Mb/s out' "$tmp"/?.log | grep -oE '[0-9]+ Mb' | sort -n | sed -n '1p;$p' | tr '\n' ' ')"
on a links | grep -Eq '[0-9]+ of 10000 Mb/s' || fail "ringctl links does not tell what was measured"
on a links | grep -q 'the cable on cable1 to b carries .* were negotiated' || fail "ringctl links does not warn of cable1"

# --- the ring leaves it out, on all nodes alike. On a machine with too much else to do every cable is slow: then there is nothing to choose
slowest=$(grep -hoE 'cable[2-6] to .: .*' "$tmp"/?.log | grep -oE '[0-9]+ Mb' | sort -n | sed -n '1s/ .*//p')
leaves_out() {
    for _who in a b c d; do
        on $_who ring >"$tmp/ring.$_who" || return 1
        grep '^order' "$tmp/ring.$_who" | grep -Eq 'a - b|b - a' && return 1
        cmp -s "$tmp/ring.a" "$tmp/ring.$_who" || return 1
    done
}
if [ "$slowest" -ge 800 ]; then
    wait_for $((10 * slow)) leaves_out || fail "the ring goes over the slow cable, or not all say the same"
    ok "$(grep '^order' "$tmp/ring.a")"
else
    ok "this machine is busy, cables without a limit were measured at $slowest Mb/s: the choice of ring was not judged"
fi

# --- an order by hand, on one node, is everybody's; one that cannot be followed is told
mark a b c d
stop c TERM
start_ringd 3 --ring b,a,c,d
by_hand() {
    for _who in a b c d; do
        on $_who ring | grep -q '^order .*b - a - c - d - b  (set by --ring)' || return 1
    done
}
wait_for $((20 * slow)) by_hand || fail "--ring of c is not followed"
ok "--ring on one node is followed by all"
stop c TERM
start_ringd 3 --ring b,a,nobody,c,d
told() {
    on a ring | grep -q 'ring of c cannot be followed: no node called nobody can be reached; the computed ring is used'
}
wait_for $((20 * slow)) told || fail "nobody says what is wrong with --ring"
ok "an order that cannot be followed is told"
alive a b c d
