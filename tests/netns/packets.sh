#!/bin/sh
# Packets that are too large for a cable are lost silently. usage: packets.sh BUILD
#
#     a = node 1 ══ cable1 ══ b = node 2
#
# Between the two something swallows what is larger than 1280 bytes, from the start and later; then one end's MTU is lowered under standing
# connections. Each time the ring stands and jobs run all the same, and the log, status, links and the doctor say what is lost and how to mend it.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
command -v jq >/dev/null || skip "jq is not installed"
command -v tc >/dev/null || skip "tc is not installed (iproute2)"
small=$PWD/share/tiny-llama
prompt=$(seq -s , 5 400)

job_runs() { # WHAT
    start=$(milliseconds)
    on a --json generate --model "$small" --max-tokens 3 --ids "$prompt" >"$tmp/job" 2>&1 || fail "$1: the job fails: $(tail -n 3 "$tmp/job")"
    jq -c .ids "$tmp/job" >"$tmp/ids" 2>/dev/null
    grep -q 'rank 1 of 2' "$tmp/b.log" || fail "$1: the job ran without b"
    ok "$1: a job runs, $(($(milliseconds) - start)) ms"
}
links_say() { # NODE PATTERN
    on "$1" links >"$tmp/links" 2>&1
    grep -Eq -- "$2" "$tmp/links" || fail "links at $1 do not say \"$2\": $(cat "$tmp/links")"
    ok "links at $1: $(grep -E -- "$2" "$tmp/links")"
}
status_says() { # NODE PATTERN
    on "$1" status >"$tmp/status" 2>&1
    tr -s ' \n' '  ' <"$tmp/status" | grep -Eo -- "TROUBLE $2" >"$tmp/said" || fail "status at $1 does not say \"$2\": $(cat "$tmp/status")"
    ok "status at $1: $(cat "$tmp/said")"
}
start_both() {
    mark a b
    for node in 1 2; do
        start_ringd $node
    done
    await_all 'a ring of 2' 20 a b
}
stop_both() {
    for name in a b; do
        stop $name TERM
    done
}
# What passes the filter is looked at packet by packet, so none may be joined to larger ones before it.
narrow() { # BYTES
    for _n in 1 2; do
        ns_exec $_n ip link set cable1 gso_max_segs 1
        block 1 $_n "$1"
    done
}

ns_up 2
begin_logs 1 2
no_dad 1 2
cable 1 2
for node in 1 2; do
    start_ringd $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
    enrol $node
done
await_all 'a ring of 2' 20 a b
job_runs "whole"
doctor_says a '^ok a mtu '
[ "$(on a --json status | jq -c .trouble)" = '[]' ] || fail "status at a: $(on a status)"

# --- a path that begins to swallow packets
mark a b
narrow 1280
start=$(milliseconds)
await_all 'packets above 1280 bytes are lost between cable1 and cable1 of [ab], with MTUs of 1500 and 1500' 60 a b
ok "after $(($(milliseconds) - start)) ms the log says what is lost"
job_runs "narrow since a moment"
status_says a 'cable on cable1 to b: packets above 1280 bytes are lost between cable1 and cable1 of b,.*ip link set cable1 mtu 1280. here'
links_say a '^WARNING .*packets above 1280 bytes are lost .*ip link set cable1 mtu 1280'
doctor_says a '^warning [ab] mtu cable1: packets above 1280 bytes are lost.*FIX ip link set cable1 mtu 1280'

# --- and has done so from the start
stop_both
start_both
await_all 'packets above 1280 bytes are lost' 20 a b
job_runs "narrow from the start"
for name in a b; do
    tail -n "+$(cat "$tmp/$name.mark")" "$tmp/$name.log" | grep 'has been silent' >"$tmp/lost" && fail "the connection was lost first: $(cat "$tmp/lost")"
done
stop_both
for node in 1 2; do
    unblock 1 $node
    ns_exec $node ip link set cable1 mtu 9000
done
start_both
job_runs "both ends 9000"

# --- an MTU lowered at one end while connections stand
mark a b
ns_exec 2 ip link set cable1 mtu 1500
start=$(milliseconds)
await_all 'the MTU is (9000|1500) here and (9000|1500) on [ab]' 20 a b
job_runs "9000 and 1500"
lasted "from the other MTU to the end of a job" "$start"
status_says a 'cable on cable1 to b: the MTU is 9000 here and 1500 on b,.*ip link set dev cable1 mtu 1500 on this node'
links_say a '^WARNING .*the MTU is 9000 here and 1500 on b.*ip link set dev cable1 mtu 1500 on this node'
doctor_says a '^warning b mtu cable1: MTU 1500 here and 9000 at the other end'
alive a b
