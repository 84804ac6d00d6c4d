#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A node that has a part of a model, for its layers of a job, is asked for all of it: the rest comes from the hub.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/layers.sh"

start_hub
start_ring
on 1 pull test/tiny >/dev/null || fail 'pull'

say 'a job brings the layers of each node'
limit 120 "$ringctl" --socket "$(sock_of 2)" generate --model test/tiny --max-tokens 12 --ids 1,2 >/dev/null 2>"$work/err" ||
    fail "generate: $(cat "$work/err")"
for node in 2 3; do
    on $node models list >"$work/list"
    holds "the list of n$node" "$work/list" '^test/tiny +[0-9a-f]+ +[0-9.]+ MiB of 51\.1 MiB +model +in part +n1, n[23] [0-9]+ %$'
    on $node models verify test/tiny >"$work/verify" || fail "verify on n$node: $(cat "$work/verify")"
done

say 'all of it is pulled where its first layers are'
carrier=$(child_of 2 ringd-fetch)
[ -z "$carrier" ] || limit 30 tail --pid="$carrier" -f /dev/null # it gives to others for some seconds more
from=$(next_line "$work/requests")
limit 60 "$ringctl" --socket "$(sock_of 2)" pull test/tiny >"$work/said" 2>&1 || fail "pull: $(cat "$work/said")"
equal 'what pull says' "$(cat "$work/said")" "$model is here"
on 2 models list >"$work/list"
holds 'the list' "$work/list" '^test/tiny +[0-9a-f]+ +51\.1 MiB +model +ready +n1, n3 [0-9]+ %$'
same 'the weights' "$hub/files/model.safetensors" "$work/n2/models/$model/model.safetensors"
sent=$(weights_sent "$from")
[ "$sent" -lt "$weights" ] || fail "the hub sent $sent bytes of $weights, though some were here"
