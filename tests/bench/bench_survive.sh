#!/bin/sh
# What it costs that a job can go on, when nothing happens: LoRA steps of three nodes of one thread each, with copies of what is trained
# after each step and without; and short steps of one node, each of them saved and none. Both kinds of job take turns.
# usage: bench_survive.sh BUILD NAME MODEL
# SPDX-License-Identifier: MIT
set -eu
turns=${TURNS:-5}

# Within the ring, called by itself: the two options in turn, and the middle step of each.
if [ -n "${BENCH_SURVIVE:-}" ]; then
    work=$BENCH_SURVIVE
    for turn in $(seq "$turns"); do
        for option in "$WITH" "$WITHOUT"; do
            # shellcheck disable=SC2086 # words
            "$RINGCTL" train --model "$MODEL" --data "$work/rows.jsonl" --adapter-out "$work/out" --rank 16 --target-modules all-linear \
                --batch-size 4 --micro-batch-size 1 --seq-len "$SEQ" --iters "$ITERS" --schedule 1f1b --log "$work/log" $option >&2
            jq -r 'select(.step > 2) | .step_seconds' "$work/log" | sort -n | awk '{x[NR] = $1} END {print x[int((NR + 1) / 2)]}'
            rm -rf "$work/out"
        done | tr '\n' ' ' >>"$work/pairs"
        echo >>"$work/pairs"
    done
    exit 0
fi

build=$1 name=$2 model=$3
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export BENCH_SURVIVE="$work" RINGCTL="$build/ringctl" MODEL SEQ ITERS WITH WITHOUT

# compare WHAT NODES GOAL: one row, of the pairs of steps
compare() {
    awk -v rows=16 -v n="$SEQ" 'BEGIN {
        for (r = 0; r < rows; r++) {
            ids = ""
            for (i = 0; i < n; i++) {
                x = (x * 75 + 74 + r) % 65537
                ids = ids (i ? "," : "") x % 256
            }
            printf "{\"input_ids\":[%s],\"labels\":[%s]}\n", ids, ids
        }
    }' >"$work/rows.jsonl"
    : >"$work/pairs"
    "$build/ringctl" local "$2" --threads 1 exec sh "$0" >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        exit 1
    }
    awk -f tests/bench/pairs.awk -v what="$1" -v unit=ms/step -v against="$WITHOUT" -v how='<=' -v goal="$3" -v scale=1 -v times=1000 "$work/pairs"
}

MODEL=$model SEQ=128 ITERS=10 WITH="--copies auto" WITHOUT="--copies off"
compare "copies, LoRA, $name, 3 nodes" 3 101
MODEL=$PWD/share/tiny-llama SEQ=64 ITERS=100 WITH="--save-every 1" WITHOUT="--save-every 1000"
compare "a save each step, tiny-llama" 1 105
