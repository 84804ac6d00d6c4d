#!/bin/sh
# Outages of the only cable between two nodes while a job runs. usage: outage.sh BUILD
#
#     a = node 1 ══ cable1 ══ b = node 2
#
# Whatever is shorter than --dead-after costs nothing: the job ends with the bits of the run that nobody disturbed. What is longer ends the job with
# one sentence that names the node; and a daemon that is killed ends it without that wait. One that is asked to end leaves the job to the other.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
model=$PWD/share/tiny-llama data=$tmp/rows.jsonl
dead_after=6

# N rows of words, the same each time
make_rows() {
    awk -v n="$1" 'BEGIN {
        srand(7)
        split("the ring of nodes and cables carries one model whose layers lie on all of them", word, " ")
        for (i = 0; i < n; i++) {
            row = ""
            for (k = 0; k < 12; k++)
                row = row word[1 + int(rand() * 15)] " "
            printf "{\"text\": \"%s\"}\n", row
        }
    }'
}
same_as_calm() {
    cmp "$tmp/calm/adapter_model.safetensors" "$tmp/$1/adapter_model.safetensors" || fail "the adapters of calm and $1 differ"
}
steps_on() { # NAME: two steps more than there are
    await_line "$tmp/$1.steps" "\"step\":$(($(steps "$1") + 2))[,}]" 30
}
# The way through a cable that was out stands again in the eyes of both.
both_connected() {
    await_all 'connected to [ab]' 20 a b
}
job_ends_badly() { # NAME PATTERN
    wait $job
    _status=$?
    forget $job
    [ $_status != 0 ] || fail "job $1 ended well"
    on a jobs --all --json >"$tmp/jobs.json" || fail "a does not tell its jobs"
    _cause=$(jq -r '[.jobs[] | select(.type == "train")] | max_by(.id) | "\(.state): \(.error)"' "$tmp/jobs.json")
    echo "$_cause" | grep -Eq -- "$2" || fail "job $1 ended so: $_cause"
    ok "$1: $_cause"
}

make_rows 400 >"$data"
ns_up 2
begin_logs 1 2
no_dad 1 2
cable 1 2
for node in 1 2; do
    start_link $node
    start_ringd $node --dead-after $dead_after
    await_line "$tmp/$(name_of $node).log" 'API on' 20
    enrol $node
done
await_all 'a ring of 2' 20 a b

iters_for 35
train a calm
await_job calm
train a rough
await_line "$tmp/rough.steps" '"step":2[,}]' 20
for round in 1 2 3; do # shorter than anybody needs to notice it by a word
    mark a b
    cut 1
    plug 1
    both_connected
    steps_on rough
done
ok "three times out for a moment, at step $(steps rough)"
mark a b
cut 1
await_all 'connection to [ab] ended' 5 a b
await_line "$tmp/a.log" 'a data connection to rank 1 broke' 5 "$(cat "$tmp/a.mark")"
plug 1
both_connected
steps_on rough
ok "out for as long as it takes to notice it, at step $(steps rough)"
[ "$(steps rough)" -lt $iters ] || fail "the job was over before the last cable was plugged in: more steps are needed"
await_job rough
[ "$(steps rough)" = $iters ] || fail "$(steps rough) steps of $iters"
same_as_calm rough
ok "bit for bit the same adapter"

# --- a daemon that stands still, for longer than its beacons are waited for and shorter than the nodes wait for each other
for who in b a; do
    train a still
    await_line "$tmp/still.steps" '"step":5[,}]' 20
    other=$([ $who = a ] && echo b || echo a)
    mark a b
    kill -STOP "$(cat "$tmp/$who.pid")"
    await_all 'cable on cable1 to .* is out: nothing was heard any more' 20 $other
    kill -CONT "$(cat "$tmp/$who.pid")"
    both_connected
    steps_on still
    tail -n "+$(cat "$tmp/$who.mark")" "$tmp/$who.log" | grep 'does not hear us\|does not hear this node' && fail "$who takes its own standstill for a fault of the cable"
    ok "$who stood still for as long as it took $other to miss it, at step $(steps still)"
    [ "$(steps still)" -lt $iters ] || fail "the job was over before $who went on: more steps are needed"
    await_job still
    same_as_calm still
    ok "bit for bit the same adapter"
done

# --- longer than anybody waits
train a long
await_line "$tmp/long.steps" '"step":5[,}]' 20
cut 1
job_ends_badly long "failed: node b is gone: .*out of reach for $dead_after s"
mark a b
plug 1
both_connected

# --- a daemon that is killed, or asked to end, is not waited for: what would be awaited is then not said
for how in KILL TERM; do
    train a "end-$how"
    await_line "$tmp/end-$how.steps" '"step":5[,}]' 20
    mark a b
    stop b $how
    if [ $how = KILL ]; then
        job_ends_badly "end-$how" 'failed: node b is gone: .*(ended|said goodbye)'
    else
        wait $job || fail "job end-$how did not go on without b"
        forget $job
        same_as_calm "end-$how"
    fi
    tail -n "+$(cat "$tmp/a.mark")" "$tmp/a.log" | grep 'is waited for' && fail "a waits for a daemon that has ended"
    mark a b
    start_ringd 2 --dead-after $dead_after
    await_all 'a ring of 2' 20 a b
done
alive a b

# --- configured addresses alone: who stands still is missed long before it is given up
stop a TERM
stop b TERM
mark a b
for node in 1 2; do
    ns_exec $node ip addr add "10.99.0.$node/24" dev cable1
    start_ringd $node --dead-after 60 --discover off --peer "10.99.0.$((3 - node)):17464"
done
await_all 'a ring of 2' 20 a b
train a peer
await_line "$tmp/peer.steps" '"step":5[,}]' 20
mark a b
kill -STOP "$(cat "$tmp/b.pid")"
await_line "$tmp/a.log" 'connection to b ended: .* silent' 30 "$(cat "$tmp/a.mark")"
kill -CONT "$(cat "$tmp/b.pid")"
both_connected
await_job peer
same_as_calm peer
ok "a configured peer that stood still was missed, and the job went on: bit for bit the same adapter"
alive a b
