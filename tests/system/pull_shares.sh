#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model that no node of three has: each brings the blocks of its own layers from the hub, and each byte leaves the hub once, whatever
# breaks off and whatever process is killed. What is wrong has a reason.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
command -v python3 >/dev/null || skip "no python3, which makes the model"
hub_from=$work/layers
mkdir "$hub_from"
cp share/tiny-llama/generation_config.json share/tiny-llama/tokenizer.json share/tiny-llama/tokenizer_config.json "$hub_from/"
python3 tests/lib/layers.py "$hub_from" || fail 'the model cannot be made'
. "$(dirname "$0")/lib/hub.sh"

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
forget_all() { # once they have heard that the job is over
    for node in 1 2 3; do
        deadline=$(($(milliseconds) + 10000))
        until on "$node" models remove test/tiny >/dev/null 2>"$work/err"; do
            [ "$(milliseconds)" -lt "$deadline" ] || fail "remove on n$node: $(cat "$work/err")"
        done
    done
}
# brings WHAT FROM MORE: the right tokens, and each byte of weights once, but for MORE
brings() {
    equal "$1: tokens" "$(ids_of "$work/out")" "$(ids_of "$work/plain")"
    sent=$(weights_sent "$2")
    [ "$sent" -ge "$weights" ] && [ "$sent" -le $((weights + weights / 100 + $3)) ] ||
        fail "$1: the hub sent $sent bytes of $weights: $(tail -n "+$2" "$work/requests" | grep ^cdn)"
}

generate "$hub/files" >"$work/plain" 2>"$work/err" || fail "generate from the folder: $(cat "$work/err")"

say 'each node brings its own layers'
from=$(next_line "$work/requests")
generate test/tiny >"$work/out" 2>"$work/err" || fail "generate: $(cat "$work/err")"
brings 'shares' "$from" 0
for node in 1 2 3; do
    [ "$(disk_of $node)" -le $((weights / 2)) ] || fail "n$node has $(disk_of $node) bytes of $weights"
    on $node models verify test/tiny >"$work/verify" || fail "verify on n$node: $(cat "$work/verify")"
done
say "  on the disks: $(disk_of 1), $(disk_of 2) and $(disk_of 3) bytes of $weights; the hub sent $(weights_sent "$from")"
from=$(next_line "$work/requests")
generate test/tiny >"$work/out" 2>"$work/err" || fail "generate again: $(cat "$work/err")"
equal 'bytes of what is here' "$(weights_sent "$from")" 0

forget_all
