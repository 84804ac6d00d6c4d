#!/bin/sh
# Two cables of unlike speed between a pair, used at once: what both carry of a job's data, held against the sum of what each
# carries alone in the same run. usage: stripe.sh BUILD
#
#     a = node 1 ══ cable1 (fast) ══ b = node 2
#        ╚═════════ cable2 (slow) ═══════╝
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
least=90 seconds=3 port=7400

# Mbit/s over these cables; in $rate
measure() { # K...
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
    rate=$(ns_exec 1 timeout 60 "$stripe" send $seconds $port $ways 2>"$tmp/send.log") || fail "sending over $*: $(cat "$tmp/send.log")"
    wait $receiver 2>/dev/null
    forget $receiver
}
pair() { # FAST SLOW, in Mbit/s
    for k in 1 2; do
        for node in 1 2; do
            mbit=$1
            [ $k = 1 ] || mbit=$2
            ns_exec $node tc qdisc replace dev cable$k root tbf rate "${mbit}mbit" burst 256k latency 50ms
        done
    done
    for _try in 1 2 3; do # whatever else the machine does makes it less, and nothing makes it more
        measure 1
        one=$rate
        measure 2
        other=$rate
        measure 1 2
        share=$((rate * 100 / (one + other)))
        [ $share -lt $least ] || break
    done
    [ $share -ge $least ] || fail "$1:$2 Mbit/s: $one and $other alone, $rate together: $share %, $least are wanted"
    ok "cables of $1 and $2 Mbit/s: $one and $other alone, $rate together: $share %"
}

ns_up 2
no_dad 1 2
cable 1 2
cable 1 2
wait_for 5 reach 1 "$(ns_exec 2 ip -6 -o addr show dev cable2 scope link | grep -o 'fe80[0-9a-f:]*')%cable2" || fail "the cables do not carry"
pair 1000 200
pair 500 100
