#!/bin/sh
# What generation loses to a ring, through real daemons of one thread each: a prompt of 16 tokens, and 48 more one by one, on one node, on two and
# on four in turn, again and again. A token passes through all layers wherever they lie, one node at work at a time, so that nodes alike are to be
# as fast together as one of them alone; what is missing is what messages cost, and what cores lose that take turns: beside it what is left
# of reading as much memory where as many threads do that by turns, and nothing else. The rings stand side by side, so that what is compared lies
# a second apart. Then what is foreseen of the prompt and of a token, the nodes timed anew. Then how long after its submission a job computes its first task,
# and shows its first token, the model being in the page cache.
# usage: bench_generate.sh BUILD NAME MODEL
# SPDX-License-Identifier: MIT
set -eu
prompt=16 tokens=48 turns=15 forecasts=5

# generate NODES OPTIONS…: a job; what is known of it afterwards goes to the file "job"
generate() {
    ring="$BENCH_GENERATE/ring-$1"
    shift
    "$RINGCTL" generate --socket "$ring" --model "$MODEL" --ids "$(seq -s , 100 $((99 + prompt)))" --max-tokens $tokens "$@" >/dev/null
    id=$("$RINGCTL" jobs --socket "$ring" --json | jq '[.jobs[].id] | max')
    "$RINGCTL" job "$id" --socket "$ring" --json >"$BENCH_GENERATE/job"
}

# tell FILTER: of that job, through jq
tell() {
    jq -r "$1" "$BENCH_GENERATE/job"
}

# The first job of each ring does not count.
measure() {
    mib=$(($(du -m -L "$MODEL/model.safetensors" | cut -f 1) / 4 * 4))
    for turn in $(seq 0 $turns); do
        for nodes in 1 2 4; do
            generate $nodes
            read_by_turns=$("$BENCH_TURNS" $mib $nodes $tokens)
            [ "$turn" = 0 ] || tell '"\(.result.tokens_per_second) \(.start.first_task) \(.start.first_result)'" $read_by_turns\"" >>"$BENCH_GENERATE/$nodes"
        done
    done
    for turn in $(seq $forecasts); do
        for nodes in 1 2 4; do
            rm -rf "$XDG_CACHE_HOME"
            generate $nodes --forecast
            tell '"\(1000 / .result.tokens_per_second) \(1000 * .plan.speed.token_seconds) \(1000 * .result.prompt_seconds) \(1000 * .plan.speed.prompt_seconds)"' \
                >>"$BENCH_GENERATE/said-$nodes"
        done
    done
}

# Within a ring, called by itself: the next one is started beside it, until all are there.
if [ -n "${BENCH_GENERATE:-}" ]; then
    ln -s "$RINGD_SOCKET" "$BENCH_GENERATE/ring-$1"
    [ "$1" = 4 ] || exec "$RINGCTL" local $((2 * $1)) --threads 1 exec sh "$0" $((2 * $1))
    measure
    exit
fi

build=$1 name=$2 MODEL=$3
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export MODEL BENCH_GENERATE="$work" RINGCTL="$build/ringctl" BENCH_TURNS="$build/tests/bench/bench_turns" XDG_CACHE_HOME="$work/cache"
unset CACHE_DIRECTORY
"$RINGCTL" local 1 --threads 1 exec sh "$0" 1 >"$work/said" 2>&1 || {
    cat "$work/said" >&2
    exit 1
}
# compare NAME NODES COLUMN UNIT GOAL: of each turn the figure, and that of one
compare() {
    paste -d ' ' "$work/$2" "$work/1" | awk -v what="$1" -v at="$3" -v unit="$4" -v least="$5" '
        function middle(x,  i, k, t) {
            for (i = 1; i <= NR; i++) for (k = i + 1; k <= NR; k++) if (x[k] < x[i]) {t = x[i]; x[i] = x[k]; x[k] = t}
            return x[int((NR + 1) / 2)]
        }
        {rate[NR] = $at; one[NR] = $(NF / 2 + at); share[NR] = 100 * $at / $(NF / 2 + at)}
        END {
            kept = middle(share)
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %6.1f %% +- %4.1f   %s\n", what, middle(rate), unit, "one of them",
                middle(one), unit, kept, (share[NR] - share[1]) / 2,
                (least == "" ? "" : sprintf(">= %3.0f %%  %s", least, kept >= least ? "ok" : "BELOW"))
        }'
}
for nodes in 2 4; do
    compare "generation, $name, $nodes nodes" $nodes 1 tokens/s $((100 - 3 * (nodes - 1)))
    compare "reading by turns, $nodes threads" $nodes 4 rounds/s ""
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
