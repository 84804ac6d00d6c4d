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
LC_ALL=C
export LC_ALL
shared=${RINGD_SHARED:-$PWD/../shared/data}
case $shared in /*) ;; *) shared=$PWD/$shared ;; esac
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
model=$shared/models/stories260K data=$shared/datasets/wikisql-mlx
for needed in "$model" "$data"; do
    [ -e "$needed" ] || skip "$needed is missing: RINGD_SHARED names the folder of shared test data"
done
# Instrumented builds are slower by this factor; deadlines are stretched by it.
slow=${RINGD_TEST_SLOW:-1}

name_of() {
    case $1 in 1) echo a ;; 2) echo b ;; 3) echo c ;; esac
}
on() { # NODE ARGS...: ringctl towards that node
    socket=$tmp/$1/ringd.sock
    shift
    RINGD_SOCKET=$socket timeout $((90 * slow)) "$build/ringctl" "$@"
}
milliseconds() {
    echo $(($(date +%s%N) / 1000000))
}
within() { # WHAT LIMIT_MS SINCE
    took=$(($(milliseconds) - $3))
    [ $took -le $(($2 * slow)) ] || fail "$1: took $took ms, allowed are $2"
    ok "$1: $took ms"
}
next_line() {
    echo $(($(wc -l <"$1") + 1))
}
await_line() { # FILE PATTERN SECONDS [FIRST]: until the file has such a line, from line FIRST on
    timeout $(($3 * slow)) tail -n "+${4:-1}" -f "$1" 2>/dev/null | grep -Eqm1 -- "$2" ||
        fail "no line like \"$2\" in $(basename "$1") within $3 s"
}
# Here each log begins to count: what await_all looks for comes later.
mark() {
    for node in a b c; do
        next_line "$tmp/$node.log" >"$tmp/$node.mark"
    done
}
await_all() { # PATTERN SECONDS NODE...
    pattern=$1 seconds=$2
    shift 2
    for node in "$@"; do
        await_line "$tmp/$node.log" "$pattern" "$seconds" "$(command cut -d' ' -f1 "$tmp/$node.mark")"
    done
}
start_link() { # NODE
    who=$(name_of "$1")
    ns_spawn "$1" "$build/ringd-link" --socket "$tmp/link-$who.sock" --uid 0 2>>"$tmp/link-$who.log" </dev/null
    echo $pid >"$tmp/link-$who.pid"
}
start_ringd() { # NODE
    who=$(name_of "$1")
    ns_spawn "$1" "$build/ringd" --state-dir "$tmp/$who" --name "$who" --http-listen none --threads 1 \
        --link-socket "$tmp/link-$who.sock" 2>>"$tmp/$who.log" </dev/null
    echo $pid >"$tmp/$who.pid"
}
stop() { # a b c or link-a..., SIGNAL: and wait for its end; then it is no longer ours to kill
    read -r gone <"$tmp/$1.pid"
    kill "-$2" "$gone" 2>/dev/null || fail "$1 has ended by itself"
    timeout $((10 * slow)) tail --pid="$gone" -f /dev/null || fail "$1 did not end within 10 s of SIG$2"
    wait "$gone" 2>/dev/null
    left=
    for one in $spawned; do
        [ "$one" = "$gone" ] || left="$left $one"
    done
    spawned=$left
}
alive() { # NAME...
    for one in "$@"; do
        kill -0 "$(cat "$tmp/$one.pid")" 2>/dev/null || fail "$one is gone"
    done
}
# The network of the cable at that node, and the node's own address there.
subnet() {
    ns_exec "$1" ip -6 route show dev "cable$2" | grep -o '^fd[0-9a-f:]*/127'
}
address() {
    ns_exec "$1" ip -6 -o addr show dev "cable$2" scope global | grep -o 'fd[0-9a-f:]*/127'
}
joined_subnet() { # CABLE A B
    one=$(subnet "$2" "$1") && other=$(subnet "$3" "$1") && [ "$one" = "$other" ] &&
        address "$2" "$1" >/dev/null && address "$3" "$1" >/dev/null
}
check_cable() { # CABLE A B: a /127 on both ends, the same, and each end reaches the other
    wait_for $((4 * slow)) joined_subnet "$@" || fail "cable$1: $(name_of "$2") has \"$(subnet "$2" "$1")\", $(name_of "$3") has \"$(subnet "$3" "$1")\""
    at_a=$(address "$2" "$1") && at_b=$(address "$3" "$1") || fail "cable$1: a route without an address"
    [ "$(echo "$at_a" | wc -l)$(echo "$at_b" | wc -l)" = 11 ] || fail "cable$1: more than one address: $at_a; $at_b"
    [ "$at_a" != "$at_b" ] || fail "cable$1: both ends are $at_a"
    wait_for 2 reach "$2" "${at_b%/*}" && wait_for 2 reach "$3" "${at_a%/*}" || fail "cable$1: $at_a and $at_b do not reach each other"
    ok "cable$1: $at_a at $(name_of "$2"), $at_b at $(name_of "$3"), both reached"
}
train() { # NAME: in the background, its process in $job, what it said in NAME.train.log, its steps in NAME.steps
    : >"$tmp/$1.steps"
    RINGD_SOCKET=$tmp/a/ringd.sock timeout $((30 * slow)) "$build/ringctl" --json train --model "$model" --data "$data" --adapter-out "$tmp/$1" \
        --iters $iters --seed 5 --dropout 0.05 --log "$tmp/$1.steps" >"$tmp/$1.train.log" 2>&1 </dev/null &
    job=$!
    spawned="$spawned $job"
}
await_job() { # NAME
    wait $job || fail "job $1 ended with status $?"
}
steps() {
    grep -c '"step"' "$tmp/$1.steps"
}

# --- the cables. Without DAD a veth's link-local address is there at once, as it is after a second or two with it.
for node in a b c; do
    : >"$tmp/$node.log"
done
ns_up 3
for node in 1 2 3; do
    ns_exec $node sh -c 'for x in all default; do echo 0 >/proc/sys/net/ipv6/conf/$x/accept_dad; done'
done
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
for node in a b c; do
    echo 1 >"$tmp/$node.mark"
done
await_all 'a ring of 3' 10 a b c
within "from the last join to the ring" 4000 "$start"

# --- addresses
check_cable 1 1 2
check_cable 2 1 2
check_cable 3 2 3
check_cable 4 3 1
[ "$({ subnet 1 1; subnet 1 2; subnet 2 3; subnet 3 4; } | sort -u | wc -l)" = 4 ] || fail "two cables have one subnet"
ok "four cables, four subnets"

# --- all are enrolled and start again
mark
for node in a b c; do
    stop $node TERM
done
start_ringd 1
start_ringd 2
start=$(milliseconds)
start_ringd 3
await_all 'a ring of 3' 10 a b c
within "from the last start to the ring" 2000 "$start"
mark

# --- a job, and the same with cables pulled out under it
iters=100
start=$(milliseconds)
train calm
await_job calm
within "undisturbed run" 60000 "$start"
mark
train rough
await_line "$tmp/rough.steps" '"step":5[,}]' 20
cut 1
await_all 'cable on (cable1|a port that is gone) to [ab] is out' 5 a b
mark
plug 1
await_all 'cable on cable1: [ab]$' 10 a b
before=$(steps rough)
ok "cable1 was out and is back, at step $before"
await_line "$tmp/rough.steps" "\"step\":$((before + 2))[,}]" 20
mark
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
mark
start=$(milliseconds)
on a remove c >"$tmp/remove.txt" || fail "c cannot be removed"
grep -q 'c is removed' "$tmp/remove.txt" || fail "ringctl remove said: $(cat "$tmp/remove.txt")"
await_all 'c was removed from cluster' 5 a b c
await_all 'a ring of 2: (a, b|b, a)' 5 a b
await_all 'c is alone' 5 c
within "from the removal to c being out" 3000 "$start"
on c members >"$tmp/members.txt"
grep -q 'this node was removed from it' "$tmp/members.txt" || fail "c says: $(cat "$tmp/members.txt")"
ok "c says so: $(head -n 1 "$tmp/members.txt")"

# --- a client of ringd-link is killed: its helper, its cables and the others live on
mark
subnet_before=$(subnet 1 1)
stop b KILL
await_all 'connection to b ended' 10 a
alive a c link-a link-b link-c
[ "$(subnet 2 1)" = "$subnet_before" ] || fail "b's address on cable1 went with its daemon"
on a status >/dev/null || fail "a does not answer"
on a --json generate --model "$model" --max-tokens 4 --ids 1 >"$tmp/alone.txt" 2>&1 || fail "a alone cannot work: $(cat "$tmp/alone.txt")"
mark
start=$(milliseconds)
start_ringd 2
await_all 'a ring of 2' 10 a b
within "from the start of the killed one to the ring" 3000 "$start"
check_cable 1 1 2
check_cable 2 1 2
on b --json generate --model "$model" --max-tokens 4 --ids 1 >"$tmp/both.txt" 2>&1 || fail "the next job fails: $(cat "$tmp/both.txt")"
alive a b c link-a link-b link-c
ok "nothing else broke"
