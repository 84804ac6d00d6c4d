#!/bin/sh
# Two cables of unlike speed between a pair, used at once: what both carry of a job's data, held against the sum of what each
# carries alone in the same run. Then a third, slow one, for one message after the other: it carries no more than its part of the rates.
# usage: stripe.sh BUILD
#
#     a = node 1 ══ cable1 (fast) ══ b = node 2
#        ╠═════════ cable2 (slow) ═══════╣
#        ╚═════════ cable3 ══════════════╝
#
# The rates are set by tc. What is measured is the exchange of the stages, lanes, chunks, seals and acknowledgements (stripe.c): a model
# small enough for a test computes longer than it sends, and would fill neither cable.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
command -v tc >/dev/null || skip "tc is not installed (iproute2)"
stripe=$build/tests/netns/stripe
[ -x "$stripe" ] || fail "$stripe is missing: make test-programs"
least=90 seconds=3 port=7400 messages=8 margin=3

# What stripe prints of these cables: Mbit/s, or the ms of a message and the part of each cable; in $rate
measure() { # send SECONDS|step COUNT K...
    mode=$1 amount=$2
    shift 2
    port=$((port + 1))
    : >"$tmp/receive.txt"
    ns_spawn 2 timeout 60 "$stripe" receive $port $# >"$tmp/receive.txt" 2>"$tmp/receive.log"
    receiver=$pid
    await_line "$tmp/receive.txt" listening 10
    ways=
    for k in "$@"; do
        far=$(ns_exec 2 ip -6 -o addr show dev "cable$k" scope link | grep -o 'fe80[0-9a-f:]*')
        ways="$ways $far%cable$k"
    done
    # shellcheck disable=SC2086
    rate=$(ns_exec 1 timeout 60 "$stripe" "$mode" "$amount" $port $ways 2>"$tmp/send.log") || fail "sending over $*: $(cat "$tmp/send.log")"
    wait $receiver 2>/dev/null
    forget $receiver
}
limit() { # BURST MBIT...: of cable 1, 2…
    burst=$1 k=0
    shift
    for mbit in "$@"; do
        k=$((k + 1))
        for node in 1 2; do
            ns_exec $node tc qdisc replace dev cable$k root tbf rate "${mbit}mbit" burst "$burst" latency 50ms
        done
    done
}
pair() { # FAST SLOW, in Mbit/s
    limit 256k "$1" "$2"
    for _try in 1 2 3; do # whatever else the machine does makes it less, and nothing makes it more
        measure send $seconds 1
        one=$rate
        measure send $seconds 2
        other=$rate
        measure send $seconds 1 2
        share=$((rate * 100 / (one + other)))
        [ $share -lt $least ] || break
    done
    [ $share -ge $least ] || fail "$1:$2 Mbit/s: $one and $other alone, $rate together: $share %, $least are wanted"
    ok "cables of $1 and $2 Mbit/s: $one and $other alone, $rate together: $share %"
}
third() { # MBIT MBIT SLOW: the time is printed, and what is asserted is bytes
    limit 32k "$@"
    measure step $messages 1 2
    without=${rate%% *}
    measure step $messages 1 2 3
    with=${rate%% *} part=${rate##* }
    most=$(($3 * 100 / ($1 + $2 + $3) + margin))
    said="cables of $1, $2 and $3 Mbit/s: $with ms a message, $without without the third; parts in a hundred: ${rate#* }"
    [ "$part" -le $most ] || fail "$said; at most $most are wanted of the third"
    ok "$said"
}

ns_up 2
no_dad 1 2
cable 1 2
cable 1 2
cable 1 2
wait_for 5 reach 1 "$(ns_exec 2 ip -6 -o addr show dev cable3 scope link | grep -o 'fe80[0-9a-f:]*')%cable3" || fail "the cables do not carry"
pair 1000 200
pair 500 100
third 10 20 5
third 10 20 1
