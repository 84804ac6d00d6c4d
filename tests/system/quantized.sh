#!/bin/sh
# SPDX-License-Identifier: MIT
#
# --weights and --compute through real daemons: scoring and generation with 8 and 4 bits, LoRA on them with the same bits on one node and on
# three, what is kept of it, and what is refused.
. "$(dirname "$0")/lib/check.sh"
XDG_CACHE_HOME=$work/cache
long="Once upon a time there was a little girl who had a red ball. She played with it in the garden all day, and the dog ran after it."
export XDG_CACHE_HOME llama tables work ringctl long
unset CACHE_DIRECTORY
echo "{\"text\": \"$long\"}" >"$work/rows.jsonl"

cat >"$work/run" <<'END'
for bits in stored int8 int4; do
    "$ringctl" --json score --model "$llama" --text "In the beginning God created" --weights $bits 2>"$work/err" |
        jq -c .total >"$work/score-$nodes-$bits" || { cat "$work/err"; exit 1; }
    "$ringctl" generate --model "$llama" --max-tokens 8 --weights $bits "Once upon" >"$work/text-$nodes-$bits" 2>"$work/err" ||
        { cat "$work/err"; exit 1; }
done
for bits in int8 int4; do
    "$ringctl" --json score --model "$llama" --text "In the beginning God created" --weights $bits --compute int8 2>"$work/err" |
        jq -c .total >"$work/score-$nodes-$bits-int8" || { cat "$work/err"; exit 1; }
    "$ringctl" --json score --model "$llama" --data "$work/rows.jsonl" --weights $bits 2>"$work/err" | jq -c .total >"$work/long-$nodes-$bits-f32" &&
        "$ringctl" --json score --model "$llama" --data "$work/rows.jsonl" --weights $bits --compute int8 2>"$work/err" |
        jq -c .total >"$work/long-$nodes-$bits-int8" || { cat "$work/err"; exit 1; }
done
"$ringctl" train --model "$llama" --data "$tables" --adapter-out "$work/lora-$nodes" --weights int4 --iters 3 --seq-len 64 --rank 4 \
    --target-modules all-linear >"$work/log-$nodes" 2>&1 || { cat "$work/log-$nodes"; exit 1; }
END
for nodes in 1 3; do
    export nodes
    limit 120 "$ringctl" local "$nodes" --threads 1 exec sh "$work/run" || fail "on $nodes nodes"
done
for bits in stored int8 int4; do
    same "score, $bits" "$work/score-1-$bits" "$work/score-3-$bits"
    same "text, $bits" "$work/text-1-$bits" "$work/text-3-$bits"
done
! cmp -s "$work/score-1-stored" "$work/score-1-int8" || fail "8 bits changed nothing"
! cmp -s "$work/score-1-int8" "$work/score-1-int4" || fail "4 bits are as good as 8"
for bits in int8 int4; do
    same "score, $bits, --compute int8" "$work/long-1-$bits-int8" "$work/long-3-$bits-int8"
    ! cmp -s "$work/long-1-$bits-int8" "$work/long-1-$bits-f32" || fail "--compute int8 changed nothing"
    near "score, $bits, --compute int8" "$(cat "$work/long-1-$bits-int8")" "$(cat "$work/long-1-$bits-f32")" 1
done
same "few rows, int8, with --compute int8 and without" "$work/score-1-int8-int8" "$work/score-1-int8"
same "few rows, int4, --compute int8" "$work/score-1-int4-int8" "$work/score-3-int4-int8"
! cmp -s "$work/score-1-int4-int8" "$work/score-1-int4" || fail "--compute int8 changed nothing of few rows in 4 bits"
near "few rows, int4, --compute int8" "$(cat "$work/score-1-int4-int8")" "$(cat "$work/score-1-int4")" 0.5
near "score, int8" "$(cat "$work/score-1-int8")" "$(cat "$work/score-1-stored")" 0.5
same "LoRA on int4" "$work/lora-1/adapter_model.safetensors" "$work/lora-3/adapter_model.safetensors"
say "one node and three agree"

# Three nodes found what one had made.
holds "the log" "$work/log-3" 'rank 2: weights in 4 bits under .*/cache/ringd/weights: 0\.0 MiB quantized now'
kept=$(find "$work/cache/ringd/weights" -name '*.safetensors' | wc -l)
equal "files kept, of two forms" "$kept" "$((2 * ($(jq .num_hidden_layers "$llama/config.json") + 1)))"
[ -z "$(find "$work/cache" -name '*.tmp')" ] || fail "something half made is left"

limit 60 "$ringctl" local 1 score --model "$llama" --text "$long" --compute int8 >"$work/out" 2>&1 && fail "--compute int8 of stored weights"
holds "the refusal" "$work/out" 'give --weights int8 or int4 too'

limit 60 "$ringctl" local 1 train --model "$llama" --data "$tables" --adapter-out "$work/full" --weights int8 --fine-tune-type full --iters 1 \
    >"$work/out" 2>&1 && fail "quantized weights were trained"
holds "the refusal" "$work/out" 'quantized weights are not trained'
