#!/bin/sh
# How far a long training with products in 8 bits comes: the same rows, in the same order, with `--compute f32` and `--compute int8`. The two
# jobs run side by side on a node of one thread each. Every tenth of the way both evaluate the same 100 rows; the last evaluation counts. The
# learning rate falls to nothing, so that its noise is gone by then.
# The model is random, so the words of share/tiny-llama fit it as well as any; whether it learns them is seen in the losses.
# usage: bench_int8_loss.sh BUILD NAME MODEL [STEPS]
# SPDX-License-Identifier: MIT
set -eu

# Within a ring, called by itself: one of the two jobs.
if [ -n "${BENCH_INT8_LOSS:-}" ]; then
    exec "$RINGCTL" train --model "$MODEL" --data "$DATA" --valid "$DATA" --adapter-out "$BENCH_INT8_LOSS/out-$1" --rank 16 \
        --target-modules all-linear --batch-size 2 --seq-len 64 --iters "$STEPS" --eval-every $((STEPS / 10)) --lr 5e-4 --lr-schedule cosine --max-grad-norm 1 \
        --compute "$1" --log "$BENCH_INT8_LOSS/$1.log"
fi

build=$1 name=$2 model=$3 STEPS=${4:-2000}
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/model"
for file in "$model"/config.json "$model"/*.safetensors "$PWD"/share/tiny-llama/tokenizer*.json; do
    ln -s "$(realpath "$file")" "$work/model"
done
export STEPS BENCH_INT8_LOSS="$work" RINGCTL="$build/ringctl" MODEL="$work/model" DATA="$PWD/tests/data/datasets/tables"
jobs=
for compute in f32 int8; do
    "$build/ringctl" local 1 --threads 1 exec sh "$0" $compute >"$work/$compute.said" 2>&1 &
    jobs="$jobs $!"
done
for job in $jobs; do
    wait "$job" || {
        cat "$work"/*.said >&2
        exit 1
    }
done

for compute in f32 int8; do
    jq -r 'select(.valid_loss) | "\(.step) \(.valid_loss)"' "$work/$compute.log" >"$work/$compute.curve"
done
paste -d ' ' "$work/int8.curve" "$work/f32.curve" | awk -v name="$name" -v steps="$STEPS" '{
    ratio = 100 * $2 / $4
    off = ratio > 100 ? ratio - 100 : 100 - ratio
    printf "%-38s %9.4f %-9s %-22s %8.4f %-8s %6.2f %%           %s\n", "LoRA in int8, " name ", step " $1, $2, "loss", "the same in f32", $4, "loss", ratio,
        $1 == steps ? "within 0.5 %  " (off <= 0.5 ? "ok" : "MISSED") : ""
}'
