#!/bin/sh
# What a second node with a core of its own gains where both work on the same layers (tp=2), or on the same step (dp=2): real daemons of one
# thread each, against one of them. Tokens of one stream, one by one behind a short prompt, with weights as stored and in fewer bits; a prompt
# of 512 tokens; steps of LoRA on all linear layers (8 rows of 512 tokens) and of all weights (16 such rows), whose gradients are as many
# however many rows there are. Jobs take turns; of generations the middle, of steps the last, since the first brings the model in.
# Two minutes, and five more where models are trained.
# usage: bench_parallel.sh BUILD NAME MODEL [NAME MODEL], the first to generate with, the other one in f32 to train
# SPDX-License-Identifier: MIT
set -eu
turns=2

# generate FILE PROMPT TOKENS FILTER OPTION…: appends what the filter makes of the job
generate() {
    to=$1 prompt=$2 tokens=$3 filter=$4
    shift 4
    "$RINGCTL" generate --model "$GENERATES" --ids "$(seq -s , 100 $((99 + prompt)))" --max-tokens "$tokens" "$@" >/dev/null
    id=$("$RINGCTL" jobs --all --json | jq '[.jobs[].id] | max')
    "$RINGCTL" job "$id" --json | jq "$filter" >>"$BENCH_PARALLEL/$to"
}
# train FILE ROWS OPTION…: the tokens a second of its last step
train() {
    to=$1 rows=$2
    shift 2
    "$RINGCTL" train --model "$TRAINS" --data "$BENCH_PARALLEL/rows.jsonl" --adapter-out "$BENCH_PARALLEL/out" --seq-len 512 --micro-batch-size 1 \
        --batch-size "$rows" --iters 2 --copies off --save-every 0 --log "$BENCH_PARALLEL/log" "$@"
    jq -s "[.[] | .step_seconds // empty] | 512 * $rows / last" "$BENCH_PARALLEL/log" >>"$BENCH_PARALLEL/$to"
    rm -rf "$BENCH_PARALLEL/out" "$BENCH_PARALLEL/log"
}
# Within the ring, called by itself.
if [ -n "${BENCH_PARALLEL:-}" ]; then
    for turn in $(seq 0 $turns); do
        [ "$turn" != 1 ] || rm -f "$BENCH_PARALLEL"/*.[12] # the first jobs bring the model in
        for nodes in 1 2; do
            for weights in stored int8 int4; do
                generate tokens.$weights.$nodes 8 48 .result.tokens_per_second --parallel tp=$nodes,pp=1 --weights $weights
            done
            generate prompt.$nodes 512 1 '512 / .result.prompt_seconds' --parallel tp=$nodes,pp=1
        done
    done
    for nodes in 1 2; do
        [ -n "$TRAINS" ] || break
        train lora.$nodes 8 --rank 16 --target-modules all-linear --parallel dp=$nodes,pp=1
        train all.$nodes 16 --fine-tune-type full --parallel dp=$nodes,pp=1
    done
    exit 0
fi

build=$1 generates=$2 GENERATES=$3 trains=${4:-} TRAINS=${5:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export GENERATES TRAINS BENCH_PARALLEL="$work" RINGCTL="$build/ringctl"
jq -cn 'range(32) as $r | [range(512) | (. * 7 + $r * 13) % 512] | {input_ids: ., labels: .}' >"$work/rows.jsonl"
"$RINGCTL" local 2 --threads 1 exec sh "$0" >"$work/said" 2>&1 || {
    cat "$work/said" >&2
    exit 1
}
middle() {
    sort -n "$1" | awk '{x[NR] = $1} END {print x[int((NR + 1) / 2)]}'
}
# row NAME FILE GOAL
row() {
    awk -v name="$1" -v two="$(middle "$work/$2.2")" -v one="$(middle "$work/$2.1")" -v least="$3" 'BEGIN {
        printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %6.1f %%           >= %.0f %%  %s\n", name, two, "tokens/s", "one of them", one, "tokens/s",
            100 * two / one, least, (100 * two >= least * one ? "ok" : "BELOW")
    }'
}
row "tokens, tp=2, $generates" tokens.stored 170
row "  in int8" tokens.int8 160
row "  in int4" tokens.int4 150
row "a prompt of 512, tp=2, $generates" prompt 190
[ -z "$TRAINS" ] || row "LoRA step, dp=2, $trains" lora 195
[ -z "$TRAINS" ] || row "step of all weights, dp=2, $trains" all 190
