#!/bin/sh
# SPDX-License-Identifier: MIT
#
# sh tests/bench/bench_shares.sh BUILD RATE...: how long it takes until three nodes that lack a model have generated with it, each with its
# layers from a hub that sends RATE bytes a second. Against what the line takes for all of the model.
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
shift
hub_from=$work/layers
mkdir "$hub_from"
cp share/tiny-llama/generation_config.json share/tiny-llama/tokenizer.json share/tiny-llama/tokenizer_config.json "$hub_from/"
python3 tests/lib/layers.py "$hub_from" || fail 'the model cannot be made'
. tests/system/lib/hub.sh

generate() {
    RINGD_SOCKET=$(sock_of 1) limit 600 "$ringctl" --json generate --model test/tiny --max-tokens 12 --ids 1,2 >/dev/null 2>"$work/err" ||
        fail "generate: $(cat "$work/err")"
}
forget_all() { # once they have heard that the job is over
    for node in 1 2 3; do
        until on "$node" models remove test/tiny >/dev/null 2>&1; do :; done
    done
}
start_hub
start_ring
for rate; do
    echo "$rate" >"$hub/rate"
    from=$(next_line "$work/requests")
    begun=$(milliseconds)
    generate
    took=$(($(milliseconds) - begun)) alone=$((weights * 1000 / rate))
    begun=$(milliseconds)
    generate
    echo "$rate bytes a second: $took ms, the line alone $alone ms, $((took * 100 / alone)) %; the hub sent $(weights_sent "$from") of $weights bytes; again: $(($(milliseconds) - begun)) ms"
    forget_all
done
