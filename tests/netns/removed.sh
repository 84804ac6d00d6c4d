#!/bin/sh
# A member that is removed while it works in a job, and then stays on the switch as an enemy. usage: removed.sh BUILD [SECONDS]
#
#     a   b   c           d
#     ║   ║   ║           ║
#     ╚═══╩═══╩══ switch ═╝
#
# The others end the job and every connection with d as soon as they have the roster. For SECONDS (6) d speaks with the key that it had (revoked.c),
# while a job of a, b and c runs: no cable goes down, no beacon is opened by its key, and no key of theirs gets older than three minutes.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
seconds=${2:-6}
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
revoked=$build/tests/netns/revoked
[ -x "$revoked" ] || fail "$revoked is missing: make test-programs"
iters=16777216 key_most=180

since() { # NAME: what it has logged since the mark
    tail -n "+$(cat "$tmp/$1.mark")" "$tmp/$1.log"
}
go() { # NAME: a job that does not end by itself
    : >"$tmp/$1.steps"
    RINGD_SOCKET=$tmp/a/ringd.sock timeout 36000 "$build/ringctl" --json train --model "$model" --data "$data" --adapter-out "$tmp/$1" --iters $iters \
        --seed 5 --log "$tmp/$1.steps" >"$tmp/$1.train.log" 2>&1 </dev/null &
    spawned="$spawned $!"
    job=$!
    await_line "$tmp/$1.steps" '"step":3[,}]' 60
}
# The oldest key of all connections of the ring, in whole seconds: that of a control connection, that of a lane.
oldest() {
    for _name in a b c; do
        curl -s --unix-socket "$tmp/$_name/ringd.sock" http://localhost/metrics
    done | awk -v what="^ringd_link_$1_seconds[{]" '$0 ~ what && $NF > most {most = $NF} END {printf "%d\n", most}'
}

ns_up 4
begin_logs 1 2 3 4
no_dad 1 2 3 4
segment 1 2 3 4
for node in 1 2 3 4; do
    start_ringd $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
    enrol $node
done
await_all 'a ring of 4' 20 a b c d
victim=$(on a nodes --json | jq -r '.nodes[] | select(.name == "b") | .id')
cp -a "$tmp/d" "$tmp/d-key"
go first

mark a b c d
start=$(milliseconds)
on a remove d >/dev/null || fail "d cannot be removed"
for name in a b c; do
    await_line "$tmp/$name.log" 'connection to d ended' 5 "$(cat "$tmp/$name.mark")"
done
lasted "d was removed; until a, b and c have ended their connections with it" "$start"
wait $job
forget $job
grep -q 'd was removed from the cluster' "$tmp/first.train.log" || fail "the job does not say why it ended: $(tail -3 "$tmp/first.train.log")"
lasted "until the job with d had ended everywhere" "$start"
stop d TERM
await_all 'a ring of 3' 20 a b c

go second
mark a b c
at=$(steps second)
ns_exec 4 timeout $((seconds + 60)) "$revoked" "$tmp/d-key" lan1 "$victim" "$seconds" >"$tmp/opened" 2>"$tmp/revoked.log" &
liar=$! until=$(($(date +%s) + seconds)) control=0 lane=0
spawned="$spawned $liar"
while kill -0 $liar 2>/dev/null; do
    _control=$(oldest key) _lane=$(oldest data_key)
    [ "$_control" -le "$control" ] || control=$_control
    [ "$_lane" -le "$lane" ] || lane=$_lane
    _left=$((until - $(date +%s)))
    [ $_left -le 20 ] || _left=20
    [ $_left -le 0 ] || timeout $_left tail --pid=$liar -f /dev/null
done
wait $liar || fail "the removed member cannot speak: $(cat "$tmp/revoked.log")"
forget $liar
[ "$(cat "$tmp/opened")" = 0 ] || fail "$(cat "$tmp/opened") beacons were sealed with the key of before"
for name in a b c; do
    since $name | grep -v ' d ' | grep -E 'is out|ended|gone|chain|identity on two machines|liar' && fail "$name believed a removed member"
    since $name | grep -E 'connected to d|ring of 4' && fail "$name let d in again"
done
for kind in "$control" "$lane"; do
    [ "$kind" -lt $key_most ] || fail "a key is $kind s old"
done
[ "$(steps second)" -gt "$at" ] || fail "the job stands still"
ok "for $seconds s a removed member cut no cable and opened no beacon; the oldest keys were $control s (control) and $lane s (lanes); $(($(steps second) - at)) steps"
alive a b c
