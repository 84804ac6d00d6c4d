#!/bin/sh
# How long the others of four nodes take to get the weights of their layers from the one that has a model, over cables of 1 Gbit/s,
# against what the cables allow; and how many bytes cross the fullest of them. A chain, a ring, and at last ten nodes on a switch.
# Needs root, for namespaces. usage: bench_carry.sh BUILD NAME MODEL [SHAPES]
#
#     a = node 1 ══ cable1 ══ b = node 2 ══ cable2 ══ c = node 3 ══ cable3 ══ d = node 4 (══ cable4 ══ a)
#
# Node a has the model in a cache of Hugging Face, and nobody reaches a hub.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "$1") what=$2 from=$(realpath "$3")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
skip() {
    printf '%-38s skipped: %s\n' "a model to four nodes, $what" "$1"
    exit 0
}
command -v tc >/dev/null || skip "tc is not installed (iproute2)"
mbit=1000

start_all() { # NODES
    for n in $(seq "$1"); do
        HF_HOME=$tmp/nothing HF_HUB_OFFLINE=1
        [ $n != 1 ] || HF_HOME=$tmp/home
        export HF_HOME HF_HUB_OFFLINE
        start_ringd $n
    done
}
# As the rate counts them, each packet with its head: the interface counts large pieces that are cut into packets later.
sent() { # INTERFACE NODE: bytes that have left that end
    ns_exec "$2" tc -s qdisc show dev "$1" root | awk '/Sent/ { print $2; exit }'
}
crossed() { # SHAPE: of each cable, the sum of both directions; of a switch what each node sends
    case $1 in
    chain) for k in 1 2 3; do echo $(($(sent cable$k $k) + $(sent cable$k $((k + 1))))); done ;;
    ring) for k in 1 2 3 4; do echo $(($(sent cable$k $k) + $(sent cable$k $((k % 4 + 1))))); done ;;
    switch) for n in $(seq "$nodes"); do sent "lan$cable" "$n"; done ;;
    esac
}

disk_of() { # NODE: bytes of weights that it has
    echo $(($(stat -c %b "$tmp/$1/models/$big/model.safetensors") * 512))
}
enrol_new() { # FIRST LAST
    for n in $(seq "$1" "$2"); do
        begin_logs "$n"
        start_link "$n"
        start_ringd "$n"
        await_line "$tmp/$(name_of "$n").log" 'API on' 20
        enrol "$n"
    done
}
stop_all() { # NODES
    for n in $(seq "$1"); do
        stop "$(name_of "$n")" TERM
    done
}
# measure SHAPE NODES: in a chain the first cable carries what all others get, in a ring one of two that of two nodes, and to a switch the
# node that has the model sends all
measure() {
    all=$(names 1 "$2") others=$(names 2 "$2")
    [ "$1" = chain ] && stands='a chain' || stands='a ring'
    [ "$1" = switch ] && goal=110 || goal=105
    begin_logs $(seq "$2")
    for name in $all; do
        rm -rf "${tmp:?}/$name/models"
    done
    mark $all
    start_all "$2"
    await_all "$stands of $2:" 60 $all
    await_all ': [0-9]+ Mb/s out' 60 $all # it is measured with the cable's own bytes
    on a pull test/big >/dev/null || fail 'pull'
    mark $all
    crossed "$1" >"$tmp/before"
    start=$(milliseconds)
    on a generate --model test/big --ids 1 --max-tokens 1 >"$tmp/said" 2>&1 &
    job=$!
    await_all "is here, as far as a job needs it" 120 $others
    took=$(($(milliseconds) - start))
    crossed "$1" >"$tmp/after"
    wait $job || fail "generate: $(cat "$tmp/said")"
    outline=$((4 << 20)) bytes=0
    for name in $others; do
        bytes=$((bytes + $(disk_of "$name")))
    done
    case $1 in
    chain) bytes=$((bytes - 2 * outline)) ;;
    ring) b=$(disk_of b) c=$(disk_of c) d=$(disk_of d) && bytes=$((c + (b > d ? b : d) - outline)) ;;
    esac
    what_shape="$1 of $2"
    paste "$tmp/before" "$tmp/after" | awk -v took=$took -v bytes="$bytes" -v mbit=$mbit -v goal=$goal -v what="shares of a model, $what_shape, $what" '
        { n = $2 - $1; sum += n; if (n > most) most = n }
        END {
            bound = most * 8 / mbit / 1000
            printf "%-38s %9.0f %-9s %-22s %8.0f %-8s %7.1f%% %7s   <= %d %%\n", what, took, "ms", "its fullest cable", bound, "ms", took / bound * 100, "-", goal
            least = bytes * 1514 / 1448 # packets of 1500 bytes have heads
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %7.1f%% %7s   <= 101 %%\n", "  bytes over that cable", most / 1e6, "MB", "shares behind it, packed", least / 1e6, "MB", most / least * 100, "-"
        }'
    stop_all "$2"
}

ns_up 4
no_dad 1 2 3 4
mkdir "$tmp/whole"
ln -s "$from"/*.json "$from"/*.safetensors "$PWD/share/tiny-llama/tokenizer.json" "$tmp/whole/"
make_cache "$tmp/whole"
for n in 1 2 3; do
    cable $n $((n + 1)) ${mbit}mbit
done
enrol_new 1 4
stop_all 4
for shape in ${4:-chain ring switch}; do
    case $shape in
    chain) measure chain 4 ;;
    ring)
        cable 4 1 ${mbit}mbit
        measure ring 4
        cut 4
        ;;
    switch)
        for k in 1 2 3; do
            cut $k
        done
        ns_up 10
        no_dad 5 6 7 8 9 10
        RATE=${mbit}mbit segment 1 2 3 4 5 6 7 8 9 10
        start_all 4
        enrol_new 5 10
        stop_all 10
        measure switch 10
        ;;
    *) fail "bench_carry knows chain, ring and switch, not $shape" ;;
    esac
done
