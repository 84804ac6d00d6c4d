#!/bin/sh
# How long two real daemons on one cable take until their ring stands again: a daemon that stood still goes on, the cable is plugged in again, and
# under a running job the cable is out for a moment, until the next step. The job must end with the bits of an undisturbed one. No time is demanded.
# Needs root, for network namespaces. usage: bench_faults.sh BUILD [TIMES [PARTS]]
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "$1")
times=${2:-50} parts=${3:-stalls replugs cuts}
cd "$(dirname "$0")/../.." || exit 2
if [ "$(id -u)" != 0 ]; then
    echo "ring after faults                      skipped: network namespaces need root"
    exit 0
fi
. tests/netns/lib.sh
. tests/netns/nodes.sh
ok() { :; }
slow=4 # nothing here is late
model=$PWD/share/tiny-llama data=$tmp/rows.jsonl

# WHAT: a row of the table out of milliseconds, one a line, in $tmp/took
row() {
    sort -n "$tmp/took" | awk -v what="$1" '{ms[NR] = $1} END {
        printf "%-38s %9d %-9s %-22s %8d %-8s %16s   %d times\n", what, ms[int((NR + 1) / 2)], "ms", "the longest", ms[NR], "ms", "", NR
    }'
    : >"$tmp/took"
}
took_since() {
    echo $(($(milliseconds) - $1)) >>"$tmp/took"
}
# The daemon says itself that the ring is whole: it answers as soon as it goes on.
has_ring() {
    on "$1" --json ring 2>/dev/null | jq -e '.nodes | length == 2' >/dev/null
}
stalls() { # SECONDS TIMES
    for _i in $(seq 1 "$2"); do
        mark a b
        kill -STOP "$(cat "$tmp/b.pid")"
        sleep "$1"
        start=$(milliseconds)
        kill -CONT "$(cat "$tmp/b.pid")"
        for _name in a b; do
            has_ring $_name || await_line "$tmp/$_name.log" 'a ring of 2' 60 "$(cat "$tmp/$_name.mark")"
        done
        took_since "$start"
        sleep 1.5 # beacons and heartbeats are even again
    done
    row "ring after a daemon stood still $1 s"
}
replugs() { # TIMES
    for _i in $(seq 1 "$1"); do
        mark a b
        cut 1
        await_all 'is alone' 20 a b
        mark a b
        start=$(milliseconds)
        plug 1
        await_all 'a ring of 2' 60 a b
        took_since "$start"
        sleep 0.5
    done
    row "ring after the cable is plugged in"
}
short_cuts() { # TIMES
    iters=$(($1 * 40))
    train a calm
    await_job calm
    train a rough
    await_line "$tmp/rough.steps" '"step":2[,}]' 60
    for _i in $(seq 1 "$1"); do
        cut 1
        sleep 0.03
        plug 1
        start=$(milliseconds)
        before=$(steps rough)
        await_line "$tmp/rough.steps" "\"step\":$((before + 2))[,}]" 60
        took_since "$start"
    done
    [ "$(steps rough)" -lt "$iters" ] || fail "the job was over before the cable was out $1 times: more steps are needed"
    await_job rough
    cmp "$tmp/calm/adapter_model.safetensors" "$tmp/rough/adapter_model.safetensors" || fail "the adapters of calm and rough differ"
    row "next step after a cut of 0.03 s"
}

awk 'BEGIN {
    srand(7)
    split("the ring of nodes and cables carries one model whose layers lie on all of them", word, " ")
    for (i = 0; i < 400; i++) {
        row = ""
        for (k = 0; k < 12; k++)
            row = row word[1 + int(rand() * 15)] " "
        printf "{\"text\": \"%s\"}\n", row
    }
}' >"$data"
ns_up 2
begin_logs 1 2
cable 1 2
for node in 1 2; do
    start_link $node
    start_ringd $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
    enrol $node
done
await_all 'a ring of 2' 20 a b
: >"$tmp/took"
for part in $parts; do
    case $part in
    stalls) stalls 2 "$times" && stalls 5 $(((times + 4) / 5)) ;;
    replugs) replugs "$times" ;;
    cuts) short_cuts "$times" ;;
    *) fail "bench_faults knows stalls, replugs and cuts, not $part" ;;
    esac
done
