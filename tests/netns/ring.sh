#!/bin/sh
# A ring of cables between three nodes that know nothing of each other: no peers, no addresses. usage: ring.sh BUILD
#
#             a = node 1
#            ╱ ║       ╲
#     cable1 ╱  ║ cable2  ╲ cable4
#          ╱   ║           ╲
#        b = node 2 ═══════ c = node 3
#                   cable3
#
#     (cable1 and cable2 both go from a to b)
#
# Each node runs ringd-link and ringd. Needs root and the shared test data. A veth cable that is cut is gone, as Thunderbolt's
# are; plugged in again it is another interface.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh

# --- the cables
ns_up 3
begin_logs 1 2 3
no_dad 1 2 3
cable 1 2
cable 1 2
cable 2 3
cable 3 1

# --- enrolment
for node in 1 2 3; do
    start_link $node
    start_ringd $node
done
for node in a b c; do
    await_line "$tmp/$node.log" 'API on' 20
done
on a init
on b join "$(on a invite)" || fail "b cannot join"
token=$(on a invite)
start=$(milliseconds)
on c join "$token" || fail "c cannot join"
await_all 'a ring of 3' 10 a b c
lasted "from the last join to the ring" "$start"

# --- addresses
check_cable 1 1 2
check_cable 2 1 2
check_cable 3 2 3
check_cable 4 3 1
[ "$({ subnet 1 1; subnet 1 2; subnet 2 3; subnet 3 4; } | sort -u | wc -l)" = 4 ] || fail "two cables have one subnet"
ok "four cables, four subnets"

# --- all are enrolled and start again
mark a b c
for node in a b c; do
    stop $node TERM
done
start_ringd 1
start_ringd 2
start=$(milliseconds)
start_ringd 3
await_all 'a ring of 3' 10 a b c
lasted "from the last start to the ring" "$start"
mark a b c

# --- a job, and the same with cables pulled out under it
iters=300
start=$(milliseconds)
train a calm
await_job calm
lasted "undisturbed run" "$start"
mark a b c
train a rough
await_line "$tmp/rough.steps" '"step":5[,}]' 20
cut 1
await_all 'cable on cable1 to [ab] is out' 5 a b
mark a b c
plug 1
await_all 'cable on cable1: [ab]$' 10 a b
before=$(steps rough)
ok "cable1 was out and is back, at step $before"
await_line "$tmp/rough.steps" "\"step\":$((before + 2))[,}]" 20
mark a b c
cut 3
# The cable stays out for 1.2 s: that is what is tested. It is too short for the job to be given up.
sleep 1.2
plug 3
after=$(steps rough)
await_all 'cable on cable3: [bc]$' 10 b c
[ "$after" -lt $iters ] || fail "the job was over before cable3 was plugged in again: more steps are needed"
ok "cable3 was out for 1.2 s and is back, at step $after"
await_job rough
[ "$(steps rough)" = $iters ] || fail "$(steps rough) steps of $iters"
cmp "$tmp/calm/adapter_model.safetensors" "$tmp/rough/adapter_model.safetensors" || fail "the adapters differ"
ok "bit for bit the same adapter"
check_cable 1 1 2
check_cable 3 2 3

# --- one is thrown out
mark a b c
start=$(milliseconds)
on a remove c >"$tmp/remove.txt" || fail "c cannot be removed"
grep -q 'c is removed' "$tmp/remove.txt" || fail "ringctl remove said: $(cat "$tmp/remove.txt")"
await_all 'c was removed from cluster' 5 a b c
await_all 'a ring of 2: (a, b|b, a)' 5 a b
await_all 'c is alone' 5 c
lasted "from the removal to c being out" "$start"
on c members >"$tmp/members.txt"
grep -q 'this node was removed from it' "$tmp/members.txt" || fail "c says: $(cat "$tmp/members.txt")"
ok "c says so: $(head -n 1 "$tmp/members.txt")"

# --- a client of ringd-link is killed: its helper, its cables and the others live on
mark a b c
subnet_before=$(subnet 1 1)
stop b KILL
await_all 'connection to b ended' 10 a
alive a c link-a link-b link-c
[ "$(subnet 2 1)" = "$subnet_before" ] || fail "b's address on cable1 went with its daemon"
on a status >/dev/null || fail "a does not answer"
on a --json generate --model "$model" --max-tokens 4 --ids 1 >"$tmp/alone.txt" 2>&1 || fail "a alone cannot work: $(cat "$tmp/alone.txt")"
mark a b c
start=$(milliseconds)
start_ringd 2
await_all 'a ring of 2' 10 a b
lasted "from the start of the killed one to the ring" "$start"
check_cable 1 1 2
check_cable 2 1 2
on b --json generate --model "$model" --max-tokens 4 --ids 1 >"$tmp/both.txt" 2>&1 || fail "the next job fails: $(cat "$tmp/both.txt")"
alive a b c link-a link-b link-c
ok "nothing else broke"
