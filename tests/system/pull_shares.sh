#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model that no node of three has: each brings the blocks of its own layers from the hub, and each byte leaves the hub once, whatever
# breaks off and whatever process is killed. What is wrong has a reason.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/layers.sh"

block=$((4 << 20))
start_hub
start_ring
generate() { # MODEL [OPTION...]
    asked=$1
    shift
    RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" --json generate --model "$asked" --max-tokens 12 --ids 1,2 --seed 3 "$@"
}
ids_of() { jq -c .ids "$1"; }
disk_of() { echo $(($(stat -c %b "$work/n$1/models/$model/model.safetensors") * 512)); }
# brings WHAT FROM MORE: the right tokens, and each byte of weights once, but for MORE, and for the block of the outline if it was here
brings() {
    wait "$job" || fail "$1: $(cat "$work/err")"
    equal "$1: tokens" "$(ids_of "$work/out")" "$(ids_of "$work/plain")"
    sent=$(weights_sent "$2")
    [ "$sent" -ge $((weights - block)) ] && [ "$sent" -le $((weights + weights / 100 + $3)) ] ||
        fail "$1: the hub sent $sent bytes of $weights: $(tail -n "+$2" "$work/requests" | grep ^cdn)"
}

generate "$hub/files" >"$work/plain" 2>"$work/err" || fail "generate from the folder: $(cat "$work/err")"

begin() { # generates in the background, $job
    generate test/tiny >"$work/out" 2>"$work/err" &
    job=$!
}
bring_outline() { # to all nodes: no plan is made before
    deadline=$(($(milliseconds) + 30000))
    until on 1 plan generate --model test/tiny --ids 1,2 >/dev/null 2>"$work/err"; do
        [ "$(milliseconds)" -lt "$deadline" ] || fail "plan: $(cat "$work/err")"
    done
}
fetchers() { for node in 1 2 3; do pgrep -P "$(pid_of $node)" -x ringd-fetch; done; }
split_of() { on 1 --json job "$(on 1 --json jobs --all | jq '[.jobs[].id] | max')" | jq -c '[.plan.split, .plan.nodes]'; }

say 'each node brings its own layers'
from=$(next_line "$work/requests")
begin
brings 'shares' "$from" 0
for node in 1 2 3; do
    [ "$(disk_of $node)" -le $((weights * 3 / 4)) ] || fail "n$node has $(disk_of $node) bytes of $weights"
    on $node models verify test/tiny >"$work/verify" || fail "verify on n$node: $(cat "$work/verify")"
    on $node models list >"$work/list"
    holds "the list of n$node" "$work/list" '^test/tiny +[0-9a-f]+ +[0-9.]+ MiB of 51\.1 MiB +model +in part +n[123] [0-9]+ %, n[123] [0-9]+ %$'
done
say "  on the disks: $(disk_of 1), $(disk_of 2) and $(disk_of 3) bytes of $weights; the hub sent $(weights_sent "$from")"

say 'what is here is not brought again'
from=$(next_line "$work/requests")
before=$(split_of)
begin
wait $job || fail "generate again: $(cat "$work/err")"
[ "$before" != "$(split_of)" ] || equal 'bytes of weights' "$(weights_sent "$from")" 0
forget_all

say 'an answer breaks off in the middle of a range, the hub is busy, a link has expired'
bring_outline
from=$(next_line "$work/requests")
echo 3000000 >"$hub/reset"
touch "$hub/busy" "$hub/expired"
begin
brings 'an answer that breaks off' "$from" 3000000
holds 'the rest of the range' "$work/requests" '^cdn GET .* [1-9][0-9]{6,} '
forget_all

say 'the processes that bring it are killed in the middle'
bring_outline
from=$(next_line "$work/requests")
echo 6000000 >"$hub/stall"
begin
await_line "$work/requests" '^cdn GET .* 6000000 ' 30 "$from"
# shellcheck disable=SC2046
kill -9 $(fetchers)
# Beside the block in flight of each, what the hub had given away to the system for the two that did not stall.
brings 'killed' "$from" $((6000000 + 3 * block + 2 * $(awk '{print $3}' /proc/sys/net/ipv4/tcp_wmem)))
forget_all

say 'the hub is gone in the middle, and comes again'
echo 8000000 >"$hub/rate"
from=$(next_line "$work/requests")
begin
await_line "$work/requests" '^cdn GET .* [1-9][0-9]{6,} ' 30 "$from"
pkill -KILL -P $hub_pid
kill -KILL $hub_pid
waits_for_hub() {
    on 1 --json job "$(on 1 --json jobs --all | jq '[.jobs[].id] | max')" | jq -r '.waits_for // ""' |
        tee "$work/waits" | grep -Eq 'come from the hub, which is tried again \(.*\), to node n[123]: [0-9]'
}
deadline=$(($(milliseconds) + 20000))
until waits_for_hub; do
    [ "$(milliseconds)" -lt "$deadline" ] || fail "the job says: $(cat "$work/waits")"
done
start_hub
rm "$hub/rate"
wait $job || fail "generate: $(cat "$work/err")"
equal 'tokens' "$(ids_of "$work/out")" "$(ids_of "$work/plain")"
forget_all

say 'a file that is longer than announced is refused'
bring_outline
touch "$hub/long"
begin
wait $job && fail 'a file with another length was taken'
holds 'another length' "$work/err" 'other bytes come than were asked for'
rm "$hub/long"
forget_all

say 'a node that cannot reach the hub gets its layers through one that can'
stop_node 3
HF_ENDPOINT=http://127.0.0.1:1 start_node 3
await_ring 3 "$from"
from=$(next_line "$work/requests")
begin
brings 'through another node' "$from" 0
holds 'who asked for it' "$(log_of 3)" 'test/tiny.* comes from the hub through node n[12]'
