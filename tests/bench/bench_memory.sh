#!/bin/sh
# What the stages of a job really took at most, over what the plan said they would: LoRA and full fine-tuning on three nodes, for a model of
# each family. usage: bench_memory.sh BUILD MODEL…  (directories, each named as its family)
# SPDX-License-Identifier: MIT
set -eu
build=$1
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

awk 'BEGIN {
    for (r = 0; r < 8; r++) {
        ids = ""
        for (i = 0; i < 256; i++) {
            x = (x * 75 + 74 + r) % 65537
            ids = ids (i ? "," : "") x % 32000
        }
        printf "{\"input_ids\":[%s],\"labels\":[%s]}\n", ids, ids
    }
}' >"$work/rows.jsonl"

# The job, then the node whose plan was furthest from the truth.
measure() { # label, options of train
    label=$1
    shift
    "$build/ringctl" local 3 --threads 1 exec sh -c '
        ringctl=$1 work=$2; shift 2
        "$ringctl" train --data "$work/rows.jsonl" --adapter-out "$work/out" --batch-size 4 --micro-batch-size 1 \
            --seq-len 256 --iters 2 "$@" >"$work/said" 2>&1 && "$ringctl" job 1 --json >"$work/job"' \
        sh "$build/ringctl" "$work" "$@" || {
        cat "$work/said" >&2
        exit 1
    }
    rm -rf "$work/out"
    jq -r '[.plan.bytes, [.memory[].peak]] | transpose[] | @tsv' "$work/job" | awk -v label="$label" '
        {r = $2 / $1; d = r > 1 ? r - 1 : 1 - r; if (d >= worst) {worst = d; ratio = r; peak = $2; plan = $1}}
        END {
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %7.0f%% %7s   %s\n", label, peak / 1048576, "MiB", "the plan, worst of 3",
                plan / 1048576, "MiB", 100 * ratio, "", "90-110 %"
        }'
}

for model; do
    measure "memory, LoRA, $(basename "$model")" --model "$model" --rank 16 --target-modules all-linear
    measure "memory, full, $(basename "$model")" --model "$model" --fine-tune-type full
done
