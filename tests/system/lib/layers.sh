# SPDX-License-Identifier: MIT
#
# A hub whose test/tiny is the Llama of tests/lib/layers.py, 54 MB in eight layers: each of several nodes needs some of its blocks of 4 MiB.
# Sourced behind check.sh and ring.sh, in the place of hub.sh.
#
#   forget_all      no node has it any more, once they have heard that the job is over
# shellcheck shell=sh disable=SC2154

command -v python3 >/dev/null || skip "no python3, which makes the model"
hub_from=$work/layers
mkdir "$hub_from"
cp share/tiny-llama/generation_config.json share/tiny-llama/tokenizer.json share/tiny-llama/tokenizer_config.json "$hub_from/"
python3 tests/lib/layers.py "$hub_from" || fail 'the model cannot be made'
. tests/system/lib/hub.sh

forget_all() {
    for node in 1 2 3; do
        deadline=$(($(milliseconds) + 10000))
        until on "$node" models remove test/tiny >/dev/null 2>"$work/err"; do
            [ "$(milliseconds)" -lt "$deadline" ] || fail "remove on n$node: $(cat "$work/err")"
        done
    done
}
