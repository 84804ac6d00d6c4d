#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model that one node of three has: the others take it from there, without a hub, whatever process is killed meanwhile, and
# refuse bytes that are wrong.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/hub.sh"

start_hub
for node in 1 2 3; do
    start_node $node
done
join_ring
on 1 pull test/tiny >/dev/null || fail 'pull'
kill $hub_pid

generates() { limit 120 "$ringctl" --socket "$(sock_of 1)" generate --model test/tiny --max-tokens 12 --seed 3 Once; }
store_of() { echo "$work/n$1/models"; }
carrier_of() { child_of "$1" ringd-fetch; }
forget_it() { # on NODE..., once it has heard that the job is over
    for node; do
        deadline=$(($(milliseconds) + 10000))
        until on "$node" models remove test/tiny >/dev/null 2>"$work/err"; do
            [ "$(milliseconds)" -lt "$deadline" ] || fail "remove on n$node: $(cat "$work/err")"
        done
        [ ! -e "$(store_of "$node")/$model" ] || fail "n$node still has it"
    done
}

say 'a job takes it to all nodes, and its answer is that of the folder'
generates >"$work/named" 2>"$work/err" || fail "generate: $(cat "$work/err")"
limit 60 "$ringctl" --socket "$(sock_of 1)" generate --model "$hub/files" --max-tokens 12 --seed 3 Once >"$work/plain" 2>/dev/null ||
    fail 'generate'
same 'the answer' "$work/named" "$work/plain"
for node in 2 3; do
    for file in config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors; do
        same "$file of n$node" "$hub/files/$file" "$(store_of $node)/$model/$file"
    done
    on $node models show test/tiny >"$work/show"
    holds 'the content' "$work/show" '^content +[0-9a-f]{64}'
    on $node models verify test/tiny >"$work/verify" || fail "verify on n$node"
done

say 'a node that has it is stopped, one that takes it is killed: what has come is gone on with'
forget_it 2 3
mark2=$(next_line "$(log_of 2)")
mark3=$(next_line "$(log_of 3)")
generates >"$work/again" 2>"$work/err" &
job=$!
for victim in 2 3; do
    await_line "$(log_of $victim)" 'test/tiny.* comes from node' 30 "$(eval echo "\$mark$victim")"
    fetch=$(carrier_of $victim)
    [ -z "$fetch" ] || kill -9 "$fetch"
done
await_end $job 120
same 'the answer' "$work/again" "$work/plain"

say 'a node to which it is pushed is killed while it takes it: it begins again by itself'
forget_it 2 3
mark=$(next_line "$(log_of 2)")
limit 60 "$ringctl" --socket "$(sock_of 1)" models push test/tiny all >"$work/said" 2>&1 &
push=$!
await_line "$(log_of 2)" 'test/tiny.* comes from node' 30 "$mark"
fetch=$(carrier_of 2)
[ -z "$fetch" ] || kill -9 "$fetch"
await_end $push 60 || fail "push: $(cat "$work/said")"
for node in 2 3; do
    same "the weights of n$node" "$hub/files/model.safetensors" "$(store_of $node)/$model/model.safetensors"
done

say 'wrong bytes are refused, and the hub is asked instead'
forget_it 2 3
mark=$(next_line "$(log_of 2)")
printf x | dd of="$(store_of 1)/$model/model.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
generates >"$work/wrong" 2>"$work/err" &
job=$!
await_line "$(log_of 2)" 'node n1 sends wrong bytes of test/tiny' 30 "$mark"
await_line "$(log_of 2)" 'comes from no other node, so the hub is asked' 30 "$mark"
[ ! -e "$(store_of 2)/$model" ] || fail 'wrong bytes have a name'
kill $job
await_end $job 10
on 1 cancel 1 >/dev/null 2>&1
stop_ring
