#!/bin/sh
# Three real daemons in control groups with unlike shares of the CPUs, 2:1:1 and 4:2:1, each with one thread; its stages inherit the group. A
# LoRA step as the planner splits it, which had every node timed in its own group, and the even split under the same schedule, each against
# what was foreseen of it; then the one against the other. Eight rows a step, the median of all steps but each job's first, the jobs taking
# turns, and in every turn all nodes timed again: a machine that others use, too, is not as fast in one minute as in the next.
# usage: bench_planner.sh BUILD [TIMES] [SHARES]
# SPDX-License-Identifier: MIT
set -eu
steps=4 seq=128
. "$(dirname "$0")/quotas.sh"

# Within the ring, called by itself: TIMES, then the hundredths of a CPU of n1, n2, n3.
if [ -n "${BENCH_PLANNER:-}" ]; then
    work=$BENCH_PLANNER times=$1
    shift
    confine_nodes "$@"
    set -- --model "$work/model" --data "$work/rows.jsonl" --adapter-out "$work/out" --rank 16 --target-modules all-linear \
        --batch-size 8 --seq-len $seq --iters $steps
    for _ in $(seq "$times"); do
        rm -rf "$XDG_CACHE_HOME"
        "$RINGCTL" --json plan train "$@" --schedule auto --chunks 1 --micro-batch-size 1 --out "$work/auto.plan" >"$work/auto.json"
        jq '(.split | length) as $n | (.split | add) as $all | .split = [range($n) | ($all * (. + 1) / $n | round) - ($all * . / $n | round)]' \
            "$work/auto.plan" >"$work/even.plan"
        "$RINGCTL" --json plan train "$@" --plan "$work/even.plan" >"$work/even.json"
        for split in auto even; do
            "$RINGCTL" train "$@" --plan "$work/$split.plan" --log "$work/log"
            jq -rs --argjson said "$(jq .plan.forecast.seconds "$work/$split.json")" --arg split "$(jq -r '.split | map(tostring) | join("+")' "$work/$split.plan")" \
                '[.[] | select(.step > 1) | .step_seconds] | sort | "\(.[(length - 1) / 2 | floor]) \($said) \($split)"' "$work/log" >>"$work/seconds.$split"
            rm -rf "$work/out" "$work/log"
        done
    done
    exit 0
fi

build=$1 times=${2:-2}
begin "step as planned, unlike nodes"
make_model 16 6
export BENCH_PLANNER="$work"

# row NAME FILE: of each turn what a step took, what had been said, and the split
row() {
    awk -v name="$1" '
        function middle(x,  i, k, t) {
            for (i = 1; i <= NR; i++) for (k = i + 1; k <= NR; k++) if (x[k] < x[i]) {t = x[i]; x[i] = x[k]; x[k] = t}
            return x[int((NR + 1) / 2)]
        }
        {is[NR] = $1; said[NR] = $2; share[NR] = 100 * $1 / $2}
        !seen[$3]++ {splits = splits (splits == "" ? " " : " or ") $3}
        END {
            m = middle(share)
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %6.1f %% (%.0f to %.0f)   %s\n", name splits, 1000 * middle(is), "ms", "the forecast", 1000 * middle(said), "ms",
                m, share[1], share[NR], "85-115 %"
        }' "$2"
}
# shares TEXT HUNDREDTHS…
shares() {
    text=$1
    shift
    rm -f "$work"/seconds.*
    "$build/ringctl" local 3 --threads 1 exec sh "$0" "$times" "$@" >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        exit 1
    }
    release_nodes
    row "step, CPUs $text, planned" "$work/seconds.auto"
    row "step, CPUs $text, even" "$work/seconds.even"
    paste -d ' ' "$work/seconds.even" "$work/seconds.auto" | awk -v name="even against planned, CPUs $text" '
        {is += $1 / $4; said += $2 / $5}
        END {
            printf "%-38s %9.2f %-9s %-22s %8.2f %-8s %6.1f %%           %s\n", name, is / NR, "times", "the forecast", said / NR, "times", 100 * is / said, "85-115 %"
        }'
}
for shares in ${3:-2:1:1 4:2:1}; do
    case $shares in
    2:1:1) shares 2:1:1 80 40 40 ;;
    4:2:1) shares 4:2:1 80 40 20 ;;
    *) echo "the shares there are: 2:1:1 and 4:2:1, not $shares" >&2 && exit 1 ;;
    esac
done
