#!/bin/sh
# Enemies on the same switch. usage: hostile.sh BUILD
#
#     a   b   c   d        e   f         g             h
#     ║   ║   ║   ║        ║   ║         ║             ║
#     ╚═══╩═══╩═══╩══ switch ══╩═════════╩═════════════╝
#      one cluster;       another     in none,     sends whatever
#      d is removed       cluster     daemon runs  there is (flood.c)
#
# A job of a, b and c runs while h floods them with beacons and handshakes that are nonsense, cut short, too long, forged, or recorded. What that
# costs a's loop is told, a packet and a second; the ring must not notice.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
flood=$build/tests/netns/flood revoked=$build/tests/netns/revoked
[ -x "$flood" ] && [ -x "$revoked" ] || fail "$flood or $revoked is missing: make test-programs"
seconds=${FLOOD_SECONDS:-2} most_kib=8192 most_us=60

since() { # NAME: what it has logged since the mark
    tail -n "+$(cat "$tmp/$1.mark")" "$tmp/$1.log"
}
# What the loop of a spends on things that should cost it nothing; the job goes on meanwhile.
against() { # WHAT ARGUMENT...: of flood
    what=$1
    shift
    spent=$(loop_ns a) from=$(milliseconds) before=$(steps long)
    ns_exec 8 timeout 60 "$flood" "$@" >"$tmp/flood.number" 2>"$tmp/flood.log" &
    flooding=$! worst=0
    spawned="$spawned $flooding"
    while kill -0 $flooding 2>/dev/null; do # what people ask meanwhile is answered
        asked=$(milliseconds)
        on a nodes --json >/dev/null || fail "$what: a does not answer"
        asked=$(($(milliseconds) - asked))
        [ $asked -le $worst ] || worst=$asked
    done
    wait $flooding || fail "$what: $(cat "$tmp/flood.log")"
    forget $flooding
    number=$(cat "$tmp/flood.number")
    spent=$((($(loop_ns a) - spent) / 1000)) took=$(($(milliseconds) - from))
    [ "$number" -gt 0 ] || fail "$what: nothing was sent"
    ok "$what: $((number * 1000 / took)) a second; a spent $((spent / took)) ms a second, $((spent * 10 / number / 10)).$((spent * 10 / number % 10)) us on each, and answered within $worst ms"
    [ $((spent / number)) -le $((most_us * slow)) ] || fail "$what: $((spent / number)) us on each, $most_us are allowed"
    await_line "$tmp/long.steps" "\"step\":$((before + 2))[,}]" 20
    ring_is_whole
}
ring_is_whole() {
    for name in a b c; do
        since "$name" | grep -vE ' to d |[> ]job [0-9]' | grep -E 'is out|ended|gone|ring of|chain' && fail "$name lost something"
    done
    [ "$(rss a)" -le $((memory + most_kib)) ] || fail "a's memory grew from $memory to $(rss a) KiB"
}

# --- who there is
ns_up 8
begin_logs 1 2 3 4 5 6 7
no_dad 1 2 3 4 5 6 7 8
segment 1 2 3 4 5 6 7 8
for node in 1 2 3 4 5 6 7; do
    start_link $node
    start_ringd $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
done
for node in 1 2 3 4; do
    enrol $node
done
on e init >/dev/null
on f join "$(on e invite)" >/dev/null || fail "f cannot join"
await_all 'a ring of 4' 20 a b c d
await_all 'a ring of 2' 20 e f
[ "$(on a nodes --json | jq -r '[.nodes[].name] | sort | join(" ")')" = "a b c d" ] || fail "a knows: $(on a nodes)"
[ "$(on e nodes --json | jq -r '[.nodes[].name] | sort | join(" ")')" = "e f" ] || fail "e knows: $(on e nodes)"
[ "$(on g nodes --json | jq -r '[.nodes[].name] | join(" ")')" = "g" ] || fail "g knows: $(on g nodes)"
ok "two clusters and a node in none on one switch do not know each other"

# --- what b says is recorded at the switch, beacons and handshakes
ip netns exec "ring$$-switch" "$flood" record sw1-2 4 "$tmp/recorded" &
recorder=$!
spawned="$spawned $recorder"
mark a b c d
stop b TERM
await_all 'a ring of 3' 10 a c d
mark a b c d
start_ringd 2
await_all 'a ring of 4' 10 a b c d
wait $recorder
forget $recorder

# --- one that was removed comes back with all it had; one that was away meanwhile comes back as well
cp -a "$tmp/d" "$tmp/d-before"
mark a b c d
stop c TERM
on a remove d >/dev/null || fail "d cannot be removed"
await_all 'a ring of 2' 10 a b
stop d TERM
start=$(milliseconds)
start_ringd 3
await_all 'a ring of 3' 10 a b c
lasted "c was away while the key changed; from its start to the ring" "$start"
rm -rf "$tmp/d"
cp -a "$tmp/d-before" "$tmp/d-key"
mv "$tmp/d-before" "$tmp/d"
rm -f "$tmp/d/ringd.sock"
mark a b c d
start_ringd 4
turned_away() { # whoever dialled has logged what it heard
    for name in a b c d; do
        since "$name"
    done | grep -q 'd was removed from cluster'
}
wait_for $((15 * slow)) turned_away || fail "nobody turns d away"
for name in a b c; do
    since "$name" | grep -E 'connected to d|ring of 4' && fail "$name let d in again"
done
ok "a removed node that comes back with its old identity and roster is told so, and stays out"
stop d TERM

# --- what was removed does with the key it had, beside the others
mark a b c
victim=$(on a nodes --json | jq -r '.nodes[] | select(.name == "b") | .id')
opened=$(ns_exec 8 timeout 60 "$revoked" "$tmp/d-key" lan1 "$victim" $((6 * slow))) || fail "the removed member cannot speak"
[ "$opened" = 0 ] || fail "$opened beacons were sealed with the key of before"
for name in a b c; do
    # d itself is gone, and its cable with it
    since "$name" | grep -vE 'to d (is out|ended)' | grep -E 'is out|ended|identity on two machines|liar' && fail "$name believed a removed member"
done
ok "a removed member's beacons cut no cable, and it opens none of the others'"

# --- floods during a job
iters=100000
train a long
await_line "$tmp/long.steps" '"step":3[,}]' 20
mark a b c
memory=$(rss a)
for kind in garbage truncated oversized forged question; do
    against "$kind beacons" beacons $kind lan1 $seconds
done
against "beacons of b recorded and sent again" beacons replay lan1 $seconds "$tmp/recorded"
# longer than a neighbour on a switch may be silent: what crowds out its beacons does not end its cable
against "nonsense under a member's address" beacons spoofed lan1 20 "$tmp/recorded"
address=$(ns_exec 1 ip -6 -o addr show dev lan1 scope link | grep -o 'fe80[0-9a-f:]*')
most_us=400
for kind in garbage truncated oversized silent; do
    against "$kind handshakes" shakes $kind "$address%lan1" $seconds
done
against "handshakes recorded and begun again" shakes replay "$address%lan1" $seconds "$tmp/recorded"
ok "no cable and no connection was lost, the job went on to step $(steps long), a's memory from $memory to $(rss a) KiB"
kill $job
wait $job 2>/dev/null
forget $job
for number in $(on a jobs --json | jq -r '.jobs[] | select(.state == "running") | .id'); do
    on a cancel "$number" >/dev/null
done

# --- what a job makes is the same bits, whoever calls meanwhile
iters=20
train a quiet
await_job quiet
for kind in garbage replay; do
    ns_exec 8 "$flood" shakes $kind "$address%lan1" $((30 * slow)) "$tmp/recorded" >/dev/null 2>&1 &
    flooding=$!
    spawned="$spawned $flooding"
    train a loud
    await_job loud
    kill -0 $flooding || fail "the flood ended before the job"
    kill $flooding
    wait $flooding 2>/dev/null
    forget $flooding
    cmp "$tmp/quiet/adapter_model.safetensors" "$tmp/loud/adapter_model.safetensors" || fail "$kind handshakes change what a job makes"
    rm -r "$tmp/loud"
done
ring_is_whole
ok "a job makes the same bits during floods of handshakes"

# --- b dies without a word, and its recorded beacons go on
mark a b c
stop b KILL
await_all 'cable on lan1 to b is out' 25 a c
mark a b c
ns_exec 8 "$flood" beacons replay lan1 2 "$tmp/recorded" >/dev/null
for name in a c; do
    since "$name" | grep -E 'cable on lan1: b|connected to b|ring of 3' && fail "$name believes the recording"
done
ok "b is dead and stays so, whoever repeats its beacons"
start=$(milliseconds)
start_ringd 2
await_all 'a ring of 3' 10 a b c
lasted "from its start to the ring" "$start"
alive a b c e f g
