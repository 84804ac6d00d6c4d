#!/bin/sh
# SPDX-License-Identifier: MIT
#
# --compute through real daemons: scoring and generation in bf16 of weights as they are stored and in 4 bits, training in bf16 and int8,
# with the same bits on one node and on several; and what is refused.
. "$(dirname "$0")/lib/check.sh"
XDG_CACHE_HOME=$work/cache
long="Once upon a time there was a little girl who had a red ball. She played with it in the garden all day, and the dog ran after it."
export XDG_CACHE_HOME llama work ringctl long
unset CACHE_DIRECTORY
echo "{\"text\": \"$long\"}" >"$work/rows.jsonl"

cat >"$work/run" <<'END'
for bits in stored int4; do
    for compute in f32 bf16; do
        "$ringctl" --json score --model "$llama" --data "$work/rows.jsonl" --weights $bits --compute $compute 2>"$work/err" |
            jq -c .total >"$work/score-$nodes-$bits-$compute" || { cat "$work/err"; exit 1; }
    done
done
"$ringctl" generate --model "$llama" --max-tokens 8 --compute bf16 "$long" >"$work/text-$nodes" 2>"$work/err" || { cat "$work/err"; exit 1; }
END
for nodes in 1 3; do
    export nodes
    limit 120 "$ringctl" local "$nodes" --threads 1 exec sh "$work/run" || fail "on $nodes nodes"
done
for bits in stored int4; do
    same "score, $bits" "$work/score-1-$bits-bf16" "$work/score-3-$bits-bf16"
    ! cmp -s "$work/score-1-$bits-bf16" "$work/score-1-$bits-f32" || fail "--compute bf16 changed nothing"
    near "score, $bits" "$(cat "$work/score-1-$bits-bf16")" "$(cat "$work/score-1-$bits-f32")" 0.5
done
same "text" "$work/text-1" "$work/text-3"
say "one node and three agree"

# Training: the same bits on any ring, with any schedule and number of threads, recomputed, as replicas and in two halves; and losses
# near those of f32.
cat >"$work/train" <<'END'
name=$1 compute=$2
shift 2
"$ringctl" --json train --model "$llama" --data "$tables" --adapter-out "$work/$name" --log "$work/$name.log" --compute $compute \
    --seq-len 128 --seed 5 --lr 3e-3 --batch-size 4 --rank 4 --target-modules all-linear --dropout 0.1 "$@" >"$work/out" 2>"$work/err" ||
    { cat "$work/err"; exit 1; }
jq -c 'del(.step_seconds, .tokens_per_second, .bubble)' "$work/$name.log" >"$work/$name.numbers"
END
cat >"$work/trains" <<'END'
train() { sh "$work/train" "$@" || exit 1; }
for compute in bf16 int8; do
    case $nodes in
    1) train one-$compute $compute --iters 6
       train four-$compute $compute --iters 6 --weights int4 ;;
    3) train some-$compute $compute --iters 6 --schedule zb-h1 --micro-batch-size 1 --recompute layer
       train halves-$compute $compute --iters 3 --schedule gpipe
       train halves-$compute $compute --iters 6 --schedule 1f1b --recompute stage --resume
       train four-some-$compute $compute --iters 6 --weights int4 ;;
    4) train both-$compute $compute --iters 6 --parallel dp=2,pp=2 ;;
    esac
done
END
export tables
for nodes in 1 3 4; do
    limit 200 "$ringctl" local "$nodes" --threads $((nodes % 2 + 1)) exec sh "$work/trains" || fail "training on $nodes nodes"
done
limit 60 "$ringctl" local 1 --threads 1 exec sh "$work/train" one-f32 f32 --iters 6 || fail "training in f32"
for compute in bf16 int8; do
    for name in some halves both; do
        same "$compute: adapter" "$work/one-$compute/adapter_model.safetensors" "$work/$name-$compute/adapter_model.safetensors"
    done
    same "$compute, int4: adapter" "$work/four-$compute/adapter_model.safetensors" "$work/four-some-$compute/adapter_model.safetensors"
    same "$compute: losses" "$work/one-$compute.numbers" "$work/both-$compute.numbers"
    ! cmp -s "$work/one-$compute.numbers" "$work/one-f32.numbers" || fail "train --compute $compute changed nothing"
    jq -r '.loss // empty' "$work/one-$compute.numbers" >"$work/low"
    jq -r '.loss // empty' "$work/one-f32.numbers" | paste - "$work/low" >"$work/both"
    while read -r f32 low; do
        near "$compute: a loss" "$low" "$f32" "$(jq -n "$f32 / 100")"
    done <"$work/both"
done
say "training in bf16 and int8 has the same bits everywhere, and losses near those of f32"
limit 60 "$ringctl" local 1 --threads 1 exec sh "$work/train" one-int8 bf16 --iters 8 --resume >"$work/out" 2>&1 && fail "a run that changed over"
holds "the refusal" "$work/out" 'compute was "int8" and is "bf16"'
limit 60 "$ringctl" local 1 --threads 1 exec sh "$work/train" full int8 --iters 2 --fine-tune-type full >"$work/out" 2>&1 && fail "all weights in int8"
holds "the refusal" "$work/out" 'compute int8 is for LoRA'
limit 60 "$ringctl" local 1 --threads 1 exec sh "$work/train" full-1 bf16 --iters 3 --fine-tune-type full --lr 1e-3 --dropout 0 || fail "all weights in bf16"
limit 60 "$ringctl" local 3 --threads 1 exec sh "$work/train" full-3 bf16 --iters 3 --fine-tune-type full --lr 1e-3 --dropout 0 || fail "all weights in bf16"
same "all weights in bf16" "$work/full-1/model.safetensors" "$work/full-3/model.safetensors"
limit 60 "$ringctl" local 1 score --model "$llama" --text "$long" --compute bf16 >"$work/out" 2>&1 && fail "a text in bf16"
holds "the refusal" "$work/out" 'compute bf16 is for a data set'
limit 60 "$ringctl" local 1 score --model "$llama" --text "$long" --compute bf32 >"$work/out" 2>&1 && fail "a form that there is not"
holds "the refusal" "$work/out" 'must be f32, bf16 or int8, and is'
