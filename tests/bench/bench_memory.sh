#!/bin/sh
# What the stages of a job really took at most, over what the plan said they would: LoRA and full fine-tuning on three nodes, for a model of
# each family; and what schedules and recomputation make of sixteen microbatches, with the first of them. Models whose name begins with `long`
# are trained on and read 8192 tokens at once. usage: bench_memory.sh BUILD MODEL…  (directories, each named as its family)
# SPDX-License-Identifier: MIT
set -eu
build=$1
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

rows() { # how many, of how many tokens
    awk -v rows="$1" -v tokens="$2" 'BEGIN {
        for (r = 0; r < rows; r++) {
            ids = ""
            for (i = 0; i < tokens; i++) {
                x = (x * 75 + 74 + r) % 65537
                ids = ids (i ? "," : "") x % 32000
            }
            printf "{\"input_ids\":[%s],\"labels\":[%s]}\n", ids, ids
        }
    }'
}
rows 16 256 >"$work/rows.jsonl"
rows 1 8192 >"$work/long.jsonl"

nodes=3
# run COMMAND OPTIONS…: the job; a line of plan and peak of each node
run() {
    "$build/ringctl" local $nodes --threads 1 exec sh -c '
        ringctl=$1 work=$2; shift 2
        "$ringctl" "$@" >"$work/said" 2>&1 && "$ringctl" job 1 --json >"$work/job"' \
        sh "$build/ringctl" "$work" "$@" || {
        cat "$work/said" >&2
        exit 1
    }
    rm -rf "$work/out"
    jq -r '[.plan.bytes, [.memory[].peak]] | transpose[] | @tsv' "$work/job"
}
train() { # tokens, rows, options
    length=$1 data=$2
    shift 2
    run train --data "$data" --adapter-out "$work/out" --micro-batch-size 1 --seq-len "$length" "$@" >"$work/nodes"
}
# row LABEL PICK: the node whose plan was furthest from the truth, or the one that took the most
row() {
    awk -v label="$1" -v pick="$2" '
        {r = $2 / $1; d = pick == "most" ? $2 : r > 1 ? r - 1 : 1 - r; if (d >= best) {best = d; ratio = r; peak = $2; plan = $1}}
        END {
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %7.0f%% %7s   %s\n", label, peak / 1048576, "MiB", "the plan, " (NR > 1 ? pick " of " NR : "one node"),
                plan / 1048576, "MiB", 100 * ratio, "", "90-110 %"
        }' "$work/nodes"
}
measure() { # label, options of train
    label=$1
    shift
    train 256 "$work/rows.jsonl" --batch-size 4 --iters 2 "$@"
    row "$label" worst
}

# The node that holds most, and the one whose plan was worst.
schedule() { # label, options of train
    label=$1
    shift
    train 256 "$work/rows.jsonl" --model "$first" --rank 16 --target-modules all-linear --batch-size 16 --iters 1 "$@"
    row "memory, m=16, $label" most
    row "memory, m=16, $label" worst
}
long() { # a model; of one microbatch a ring would not have all the messages in flight that its plan has room for
    nodes=1
    name=$(basename "$1")
    for again in none layer; do
        train 8192 "$work/long.jsonl" --model "$1" --batch-size 1 --iters 1 --rank 16 --target-modules all-linear --recompute $again
        row "memory, 8192 tokens, $name, $again" worst
    done
    run generate --model "$1" --max-tokens 2 --ids "$(jq -r '.input_ids[:8190] | map(tostring) | join(",")' "$work/long.jsonl")" \
        >"$work/nodes"
    row "memory, 8190 read, $name" worst
    nodes=3
}
first=$1
for model; do
    case $(basename "$model") in long*)
        long "$model"
        continue
        ;;
    esac
    measure "memory, LoRA, $(basename "$model")" --model "$model" --rank 16 --target-modules all-linear
    measure "memory, full, $(basename "$model")" --model "$model" --fine-tune-type full
done
schedule gpipe --schedule gpipe --recompute none
schedule 1f1b --schedule 1f1b --recompute none
schedule zb-h1 --schedule zb-h1 --recompute none
schedule zbv --schedule zbv --recompute none
schedule "gpipe, layers again" --schedule gpipe --recompute layer
schedule "gpipe, stages again" --schedule gpipe --recompute stage
