#!/bin/sh
# What its cell costs a stage: a step of LoRA and a token on a ring of two nodes, and the start of a job, with the cell and
# without it in turn, so that what is compared lies a moment apart; the least of each, for other work on the machine only adds.
# Each node has one thread. The smaller the model, the more of a step are system calls.
# usage: bench_cell.sh BUILD NAME MODEL DATA
# SPDX-License-Identifier: MIT
set -eu
turns=${TURNS:-30} steps=${STEPS:-100} tokens=${TOKENS:-200}

# One job of each kind on the ring at $1; figures go to the files $2-step and $2-token
measure() {
    "$RINGCTL" train --socket "$1" --model "$MODEL" --data "$DATA" --adapter-out "$BENCH_CELL/out-$2" --iters $steps --log "$BENCH_CELL/log" \
        --batch-size 2 --seq-len 128 >/dev/null 2>&1
    jq -s '[.[] | .step_seconds | select(. != null)] | sort | .[length / 2 | floor] * 1000' "$BENCH_CELL/log" >>"$BENCH_CELL/$2-step"
    rm "$BENCH_CELL/log"
    "$RINGCTL" generate --socket "$1" --model "$MODEL" --ids 1,2,3 --max-tokens $tokens >/dev/null 2>&1
    id=$("$RINGCTL" jobs --socket "$1" --json | jq '[.jobs[].id] | max')
    "$RINGCTL" job "$id" --socket "$1" --json | jq '1000 / .result.tokens_per_second, .start.first_task * 1000' >"$BENCH_CELL/job"
    sed -n 1p "$BENCH_CELL/job" >>"$BENCH_CELL/$2-token"
    sed -n 2p "$BENCH_CELL/job" >>"$BENCH_CELL/$2-start"
}

# Within a ring, called by itself: the next one is started beside it.
if [ -n "${BENCH_CELL:-}" ]; then
    ln -s "$RINGD_SOCKET" "$BENCH_CELL/ring-$1"
    [ "$1" = free ] || exec "$BENCH_CELL/free/ringctl" local 2 --threads 1 exec sh "$0" free
    for turn in $(seq 0 "$turns"); do
        for ring in cell free; do
            measure "$BENCH_CELL/ring-$ring" $ring
        done
        [ "$turn" != 0 ] || rm "$BENCH_CELL"/cell-* "$BENCH_CELL"/free-* # the first ones do not count
    done
    exit
fi

build=$1 name=$2 MODEL=$3 DATA=$4
BENCH_CELL=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$BENCH_CELL"' EXIT
trap 'exit 130' INT TERM
export MODEL DATA BENCH_CELL RINGCTL="$build/ringctl" XDG_CACHE_HOME="$BENCH_CELL/cache"
unset CACHE_DIRECTORY
mkdir "$BENCH_CELL/free" # programs that find each other, with another stage
cp "$build/ringd" "$build/ringd-keys" "$build/ringctl" "$BENCH_CELL/free"
cp "$build/tests/bench/free" "$BENCH_CELL/free/ringd-stage"
"$build/ringctl" local 2 --threads 1 exec sh "$0" cell
for what in step token start; do
    paste "$BENCH_CELL/cell-$what" "$BENCH_CELL/free-$what" | awk -v what="$what" -v name="$name" '
        { if (NR == 1 || $1 < cell) cell = $1; if (NR == 1 || $2 < free) free = $2 }
        END { printf "%-38s %9.3f %-9s %-22s %8.3f %-8s %6.1f %% %7s   %s\n", "a " what " in its cell, " name, cell, "ms", "without a cell", free, "ms", 100 * cell / free, "", what == "start" ? "" : "101 %" }'
done
