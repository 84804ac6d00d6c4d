#!/bin/sh
# Two nodes of one thread each against one node of one thread, through real daemons: LoRA on the 110M shape, 1F1B, eight
# microbatches a step. A pipeline of p stages fills and empties, so m microbatches can go m·p / (m + p − 1) times as fast.
# usage: bench_ring.sh BUILD MODEL
# SPDX-License-Identifier: MIT
set -eu
build=$1 model=$2
microbatches=8 seq=256 steps=4
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

awk -v rows=$((2 * microbatches)) -v n=$seq 'BEGIN {
    for (r = 0; r < rows; r++) {
        ids = ""
        for (i = 0; i < n; i++) {
            x = (x * 75 + 74 + r) % 65537
            ids = ids (i ? "," : "") x % 32000
        }
        printf "{\"input_ids\":[%s],\"labels\":[%s]}\n", ids, ids
    }
}' >"$work/rows.jsonl"

# Tokens a second of each step but the first, which also maps the model.
train() {
    "$build/ringctl" local "$1" --threads 1 train --model "$model" --data "$work/rows.jsonl" --adapter-out "$work/out$1" \
        --rank 16 --target-modules all-linear --batch-size $microbatches --micro-batch-size 1 --seq-len $seq \
        --iters $steps --schedule 1f1b --log "$work/log$1" >"$work/said$1" 2>&1 || {
        cat "$work/said$1" >&2
        exit 1
    }
    jq -r 'select(.step > 1) | .tokens_per_second' "$work/log$1" | sort -n >"$work/rate$1"
}

train 1
train 2
paste "$work/rate1" "$work/rate2" | awk -v m=$microbatches '
    {one[NR] = $1; two[NR] = $2}
    END {
        mid = int((NR + 1) / 2)
        bound = one[mid] * m * 2 / (m + 1)
        printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %6.1f %% +- %4.1f   %s\n", "LoRA 1F1B m=" m ", 2 nodes x 1 thread",
            two[mid], "tokens/s", "1 node x " sprintf("%.2f", 2 * m / (m + 1)), bound, "tokens/s",
            100 * two[mid] / bound, 50 * (two[NR] - two[1]) / bound, ""
    }'
