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


fail() { echo "FAILED: $*"; for n in 1 2 3; do echo "--- n$n"; grep -v joined $work/n$n/log | tail -60; done; tail -n +$from $work/requests; exit 1; }
from=$(next_line "$work/requests")
begin
brings x "$from" 0
forget_all
