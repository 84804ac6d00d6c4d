#!/bin/sh
# A node that dies and comes back, with nothing restarted elsewhere. usage: gone.sh BUILD
#
#             a = node 1
#            ╱          ╲ cable3
#     cable1╱            ╲
#        b = node 2 ═════ c = node 3
#                  cable2
#
# b's daemon is killed while the ring is idle, and while a job runs; its machine and its cables stay. At last it is off while a fourth node is
# removed again and again, and the network key changes each time. Needs root and the shared test data.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
dead_after=4

start_node() {
    start_ringd "$1" --dead-after $dead_after
}
next_job() { # NAME
    iters=5
    train a "$1"
    await_job "$1"
    [ "$(steps "$1")" = 5 ] || fail "$1: $(steps "$1") steps of 5"
    grep -q 'planned: a .*b .*c \|planned: a .*c .*b ' "$tmp/$1.train.log" || fail "$1 was not on all three: $(cat "$tmp/$1.train.log")"
}

begin_logs 1 2 3
ns_up 3
no_dad 1 2 3
cable 1 2
cable 2 3
cable 3 1
for node in 1 2 3; do
    start_link $node
    start_node $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
    enrol $node
done
await_all 'a ring of 3' 15 a b c
on b members --json >"$tmp/before.json" || on b members >"$tmp/before.json"
a_daemon=$(cat "$tmp/a.pid") c_daemon=$(cat "$tmp/c.pid")

# --- idle
mark a b c
start=$(milliseconds)
stop b KILL
await_all 'a ring of 2: (a, c|c, a)' $((dead_after + 2)) a c
lasted "idle: from the kill to a ring without b" "$start"
mark a b c
start=$(milliseconds)
start_node 2
await_all 'a ring of 3' 10 a b c
lasted "idle: from its start to the ring of three" "$start"
on b members --json >"$tmp/after.json" || on b members >"$tmp/after.json"
cmp "$tmp/before.json" "$tmp/after.json" || fail "b came back without what it knew"
next_job idle
ok "the next job runs on all three"

# --- during a job
mark a b c
iters=5000
train a doomed
await_line "$tmp/doomed.steps" '"step":5[,}]' 30
start=$(milliseconds)
stop b KILL
wait $job && fail "the job ended well without b"
forget $job
lasted "job: from the kill to its end" "$start"
cause=$(on a --json jobs | jq -r '[.jobs[] | select(.state == "failed")] | "\(length) \(.[0].error)"')
case $cause in
"1 node b"*) ok "one cause: ${cause#1 }" ;;
*) fail "the cause is \"$cause\"" ;;
esac
mark a b c
start=$(milliseconds)
start_node 2
await_all 'a ring of 3' 10 a b c
lasted "job: from its start to the ring of three" "$start"
next_job after
ok "the next job runs on all three"

# --- off while the network key changes, more often than beacons remember
begin_logs 4
ns_up 4
no_dad 4
cable 4 1
start_link 4
start_node 4
await_line "$tmp/d.log" 'API on' 20
stop b TERM
for time in 1 2 3; do
    mark a d
    enrol 4
    await_all 'connected to d' 15 a
    on a remove d >/dev/null || fail "d cannot be removed"
    await_all 'was removed from' 10 d
done
mark a b c
start=$(milliseconds)
start_node 2
await_all 'a ring of 3' 15 a b c
lasted "the key changed three times meanwhile: from b's start to the ring of three" "$start"
await_all 'back in cluster' 5 b
next_job returned
ok "the next job runs on all three"
[ "$(cat "$tmp/a.pid") $(cat "$tmp/c.pid")" = "$a_daemon $c_daemon" ] && alive a b c || fail "another daemon ended"
ok "no other daemon ended"
