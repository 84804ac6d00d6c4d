#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ringctl bench: without a daemon it measures the machine and a model; with one it also tells of the cables, and leaves a node alone that
# works on a job.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
model=$PWD/share/tiny-llama
cd "$work" || exit 1
bench() { limit 120 "$ringctl" bench "$@" 2>err; }

RINGD_SOCKET=$work/nobody bench --threads 1 --model "$model" --tokens 16 --json >alone.json || fail "bench without a daemon: $(cat err)"
jq -e '.threads == 1 and .read_gbs > 0 and .cables == null and .beside_job == null
    and ([.products[].weights] == ["f32", "f16", "bf16", "fp8", "int8", "int4"]) and all(.products[]; .gflops > 0 and .row_gbs > 0)
    and .model.layers == 6 and .model.tokens == 16
    and .model.training_tokens_per_second > 0 and .model.prefill_tokens_per_second > 0
    and .model.decoding_tokens_per_second > 0' alone.json >/dev/null || fail "without a daemon: $(cat alone.json)"

bench --model "$work/nothing" && fail "a model that is not there was measured"
holds "a model that is not there" err "$work/nothing"
bench something && fail "an argument was taken"

start_ring
RINGD_SOCKET=$(sock_of 1) bench >told || fail "bench: $(cat err)"
for line in 'reading memory [0-9.]+ GB/s' '^bf16 +[0-9.]+ GFLOP/s +[0-9.]+ GB/s' '^n2 ' '^n3 '; do
    holds "bench" told "$line"
done

# A job that lasts: its node is not measured, unless that is wanted.
for i in 1 2 3 4; do echo '{"input_ids":[1,2,3,4,5,6,7,8]}'; done >rows.jsonl
: >job.log
id=$(on 1 train --model "$model" --data rows.jsonl --adapter-out out --iters 100000 --seq-len 8 --log job.log --detach 2>err) ||
    fail "train: $(cat err)"
await_line job.log '"step":2' 30
RINGD_SOCKET=$(sock_of 2) bench && fail "a node at work was measured"
holds "a node at work" err "job $id runs on this node, .*--anyway"
RINGD_SOCKET=$(sock_of 2) bench --anyway --json >beside.json || fail "bench --anyway: $(cat err)"
jq -e --argjson id "$id" '.beside_job == $id and .read_gbs > 0 and (.cables | length) >= 2' beside.json >/dev/null || fail "--anyway: $(cat beside.json)"
on 1 cancel "$id" >/dev/null
echo "measured alone, in a ring, and beside a job"
