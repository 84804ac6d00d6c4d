#!/bin/sh
# What generation loses to a ring, through real daemons of one thread each: a prompt of 16 tokens, and 96 more one by one, on one node, on two and
# on four in turn. A token passes through all layers wherever they lie, one node at work at a time, so that nodes alike are to be as fast together as
# one of them alone; what is missing is what messages cost. Then what is foreseen of the prompt and of a token, the nodes timed anew. Then how long after its submission a job computes its first task, and shows its first
# token, the model being in the page cache.
# usage: bench_generate.sh BUILD NAME MODEL
# SPDX-License-Identifier: MIT
set -eu
prompt=16 tokens=96 turns=5

# Within the ring, called by itself: the second job counts, and the third against what is foreseen of it.
if [ -n "${BENCH_GENERATE:-}" ]; then
    ids=$(seq -s , 100 $((99 + prompt)))
    for id in 1 2; do
        "$RINGCTL" generate --model "$MODEL" --ids "$ids" --max-tokens $tokens >/dev/null
    done
    "$RINGCTL" job $id --json | jq -r '"\(.result.tokens_per_second) \(.start.first_task) \(.start.first_result)"' >>"$BENCH_GENERATE/$1"
    rm -rf "$XDG_CACHE_HOME"
    "$RINGCTL" generate --model "$MODEL" --ids "$ids" --max-tokens $tokens --forecast >/dev/null
    "$RINGCTL" job 3 --json | jq -r '"\(1000 / .result.tokens_per_second) \(1000 * .plan.speed.token_seconds) \(1000 * .result.prompt_seconds) \(1000 * .plan.speed.prompt_seconds)"' >>"$BENCH_GENERATE/said-$1"
    exit 0
fi

build=$1 name=$2 MODEL=$3
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export MODEL BENCH_GENERATE="$work" RINGCTL="$build/ringctl" XDG_CACHE_HOME="$work/cache"
unset CACHE_DIRECTORY

for turn in $(seq $turns); do
    for nodes in 1 2 4; do
        "$build/ringctl" local $nodes --threads 1 exec sh "$0" $nodes >"$work/said" 2>&1 || {
            cat "$work/said" >&2
            exit 1
        }
    done
done
# Of each turn the rate, and that of one node; then the start.
for nodes in 2 4; do
    paste -d ' ' "$work/$nodes" "$work/1" | awk -v name="$name" -v nodes=$nodes '
        function middle(x,  i, k, t) {
            for (i = 1; i <= NR; i++) for (k = i + 1; k <= NR; k++) if (x[k] < x[i]) {t = x[i]; x[i] = x[k]; x[k] = t}
            return x[int((NR + 1) / 2)]
        }
        {rate[NR] = $1; one[NR] = $4; share[NR] = 100 * $1 / $4}
        END {
            least = 100 - 3 * (nodes - 1)
            kept = middle(share)
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %6.1f %% +- %4.1f   >= %3.0f %%  %s\n", "generation, " name ", " nodes " nodes",
                middle(rate), "tokens/s", "1 node", middle(one), "tokens/s", kept, (share[NR] - share[1]) / 2, least, (kept >= least ? "ok" : "BELOW")
        }'
done
# Of a token and of the prompt: middle, what was foreseen, and how far from it the turns were.
for nodes in 1 2 4; do
    for what in 1:token 3:prompt; do
        awk -v at="${what%:*}" '{print $at, $(at + 1), 100 * $at / $(at + 1)}' "$work/said-$nodes" | sort -n -k 3 | awk -v name="a ${what#*:}, $name, $nodes node$([ $nodes = 1 ] || echo s)" '
            {is[NR] = $1; said[NR] = $2; share[NR] = $3}
            END {
                mid = int((NR + 1) / 2)
                printf "%-38s %9.2f %-9s %-22s %8.2f %-8s %6.1f %% +- %4.1f   %s\n", name, is[mid], "ms", "the forecast", said[mid], "ms",
                    share[mid], (share[NR] - share[1]) / 2, "85-115 %"
            }'
    done
done
for nodes in 1 2 4; do
    sort -n -k 2 "$work/$nodes" | awk -v what="start of a job, $name, $nodes node$([ $nodes = 1 ] || echo s)" '
        {task[NR] = $2; token[NR] = $3}
        END {
            mid = int((NR + 1) / 2)
            printf "%-38s %9.3f %-9s to its first task, %.3f s to its first token\n", what, task[mid], "s", token[mid]
        }'
done
