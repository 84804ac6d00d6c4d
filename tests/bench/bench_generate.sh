#!/bin/sh
# What generation loses to a ring, through real daemons of one thread each: a prompt of 16 tokens, and 96 more one by one, on one node, on two and
# on four. A token passes through all layers wherever they lie, one node at work at a time, so that nodes alike are to be as fast together as
# one of them alone; what is missing is what messages cost. Then how long after its submission a job computes its first task, and shows its first
# token, the model being in the page cache.
# usage: bench_generate.sh BUILD NAME MODEL
# SPDX-License-Identifier: MIT
set -eu
prompt=16 tokens=96 turns=5

# Within the ring, called by itself.
if [ -n "${BENCH_GENERATE:-}" ]; then
    ids=$(seq -s , 100 $((99 + prompt)))
    for turn in $(seq $turns); do
        "$RINGCTL" generate --model "$MODEL" --ids "$ids" --max-tokens $tokens >/dev/null
        "$RINGCTL" job "$turn" --json | jq -r '"\(.result.tokens_per_second) \(.start.first_task) \(.start.first_result)"'
    done >"$BENCH_GENERATE/$1"
    exit 0
fi

build=$1 name=$2 MODEL=$3
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export MODEL BENCH_GENERATE="$work" RINGCTL="$build/ringctl"

for nodes in 1 2 4; do
    "$build/ringctl" local $nodes --threads 1 exec sh "$0" $nodes >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        exit 1
    }
done
# column FILE N
column() {
    cut -d ' ' -f "$2" "$work/$1" | sort -n
}
middle() {
    column "$1" "$2" | awk '{x[NR] = $1} END {print x[int((NR + 1) / 2)]}'
}
one=$(middle 1 1)
for nodes in 2 4; do
    column $nodes 1 | awk -v name="$name" -v nodes=$nodes -v one="$one" '
        {rate[NR] = $1}
        END {
            share = 100 * rate[int((NR + 1) / 2)] / one
            least = 100 - 3 * (nodes - 1)
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %6.1f %% +- %4.1f   >= %3.0f %%  %s\n", "generation, " name ", " nodes " nodes",
                rate[int((NR + 1) / 2)], "tokens/s", "1 node", one, "tokens/s", share, 50 * (rate[NR] - rate[1]) / one, least,
                (share >= least ? "ok" : "BELOW")
        }'
done
for nodes in 1 2 4; do
    printf '%-38s %9.3f %-9s first token after %.3f s\n' "job's start, $name, $nodes node$([ $nodes = 1 ] || echo s)" "$(middle $nodes 2)" "s" "$(middle $nodes 3)"
done
