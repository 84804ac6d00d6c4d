#!/bin/sh
# A ring that grows by a node and a cable at a time, nothing configured: no peers, no addresses. usage: grow.sh BUILD
#
#     a ═══ b        a ═══ b       a ═══ b ═══ c
#                     ╲   ╱        ║           ║
#                       c          ╚════ d ════╝        and so on to six, then sixteen; at last sixteen on one switch
#
# At each size all daemons are started together; the time is from the start of the last to the ring in the eyes of all. Then
# each cable's subnet is looked at. At the end it is counted what an idle ring says. GROW="2 3" limits the sizes.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
sizes=${GROW:-2 3 4 5 6 16}

grow_to() { # N: the closing cable, if any, is pulled out; nodes and cables are added one by one, and the last closes the ring
    [ -z "${closing:-}" ] || cut "$closing"
    while [ $nodes -lt "$1" ]; do
        ns_up $((nodes + 1))
        no_dad $nodes
        begin_logs $nodes
        start_link $nodes
        start_ringd $nodes
        await_line "$tmp/$(name_of $nodes).log" 'API on' 20
        if [ $nodes -gt 1 ]; then
            cable $((nodes - 1)) $nodes
            echo "$cable $((nodes - 1)) $nodes" >>"$tmp/row"
        fi
        enrol $nodes
    done
    closing=
    if [ "$1" -gt 2 ]; then
        cable "$1" 1
        closing=$cable
    fi
}
check_subnets() { # N
    {
        cat "$tmp/row"
        [ -z "$closing" ] || echo "$closing $1 1"
    } >"$tmp/cables"
    while read -r k a b; do
        check_cable "$k" "$a" "$b" >"$tmp/said"
        subnet "$a" "$k"
    done <"$tmp/cables" >"$tmp/subnets"
    [ "$(sort -u "$tmp/subnets" | wc -l)" = "$(wc -l <"$tmp/cables")" ] || fail "two cables have one subnet: $(sort "$tmp/subnets" | uniq -d)"
    ok "as many subnets as cables, $(wc -l <"$tmp/cables"), each the same at both ends and reached from both"
}
# What the kernel of each node has counted so far, summed: bytes and packets sent, of these multicast
sent() { # N
    for _n in $(seq 1 "$1"); do
        ns_exec "$_n" cat /proc/net/snmp6
    done | awk '{sum[$1] += $2} END {printf "%.0f %.0f %.0f %.0f\n", sum["Ip6OutOctets"], sum["Ip6OutRequests"], sum["Ip6OutMcastOctets"], sum["Ip6OutMcastPkts"]}'
}
loops_ns() {
    _sum=0
    for _name in $(names 1 "$1"); do
        _sum=$((_sum + $(loop_ns "$_name")))
    done
    echo $_sum
}
# A ring that has just come up measures its cables once, which begins after some seconds.
have_measured() { # N
    for _name in $(names 1 "$1"); do
        [ "$(tail -n "+$(cat "$tmp/$_name.mark")" "$tmp/$_name.log" | grep -c 'Mb/s out, ')" -ge $(($1 > 2 ? 2 : 1)) ] || return 1
    done
}
until_idle() { # N MOST
    _from=$(milliseconds)
    until [ $(($(milliseconds) - _from)) -gt $((120000 * slow)) ]; do
        before=$(sent "$1") from=$(milliseconds)
        sleep 2 # the time over which it is counted
        after=$(sent "$1") took=$(($(milliseconds) - from))
        [ $(((${after%% *} - ${before%% *}) * 1000 / took / $1)) -gt "$2" ] || return 0
    done
    fail "$1 nodes are not idle after 120 s: each sends $(((${after%% *} - ${before%% *}) * 1000 / took / $1)) bytes/s"
}
# A cable that the machine was too busy to measure well is measured once more, perhaps just now: then the next ten seconds count.
count_traffic() { # N MOST: bytes a second and node
    start=$(milliseconds)
    wait_for $((120 * slow)) have_measured "$1" || fail "after 120 s not every cable has been measured"
    for _try in 1 2 3; do
        until_idle "$1" "$2"
        [ $_try -gt 1 ] || ok "cables are measured and all are idle after $(($(milliseconds) - start)) ms"
        before=$(sent "$1") spent=$(loops_ns "$1") from=$(milliseconds)
        sleep 10 # the time over which it is counted
        after=$(sent "$1") spent=$(($(loops_ns "$1") - spent)) took=$(($(milliseconds) - from))
        line=$(echo "$before $after $1 $took $spent" | awk '{f = $9 * $10 / 1000; printf "%d bytes/s in %.1f packets/s, of which beacons %d bytes/s in %.1f packets/s; %.2f ms/s of a processor",
            ($5 - $1) / f, ($6 - $2) / f, ($7 - $3) / f, ($8 - $4) / f, $11 / 1e3 / f / 1000}')
        [ "${line%% *}" -gt "$2" ] || break
    done
    [ "${line%% *}" -le "$2" ] || fail "an idle node of $1 sends $line: more than $2 bytes/s"
    ok "an idle node of $1 sends $line"
}

: >"$tmp/row"
for size in $sizes; do
    grow_to "$size"
    ring_again "$size"
    ok "from the last start to a ring of $size: $took ms"
    check_subnets "$size"
done
count_traffic "$size" 30000

# --- the same nodes on a switch: everybody is everybody's neighbour
{
    cut -d ' ' -f1 "$tmp/row"
    echo "$closing"
} >"$tmp/cables"
while read -r k; do
    [ -z "$k" ] || cut "$k"
done <"$tmp/cables"
segment $(seq 1 "$size")
ring_again "$size"
spent=$(($(loops_ns "$size") / 1000000)) # what a machine with other work to do takes for it says little of us: what it takes of a processor does
[ $spent -le 8000 ] || fail "a ring of $size on a switch took $spent ms of a processor in all, allowed are 8000"
ok "from the last start to a ring of $size on a switch: $took ms, and $spent ms of a processor in all"

# --- and measures some of its cables at once, not all: what is sent is little
before=$(sent "$size") from=$(milliseconds)
sleep 20 # the time over which it is counted
after=$(sent "$size") took=$(($(milliseconds) - from))
each=$(((${after%% *} - ${before%% *}) / size))
[ $each -le 300000000 ] || fail "each node sent $each bytes in the first $took ms"
ok "each node sent $each bytes in the first $took ms: four measurements, and the rest as it is when idle"
