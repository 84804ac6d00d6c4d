#!/bin/sh
# Two nodes of one thread each, through real daemons: LoRA, 1F1B, eight microbatches a step. Each step is held against what the
# schedule's formula makes of its tasks as one core takes them while the other has nothing to do, which is how the same job under
# `naive` runs them, in turn; then against the formula with the tasks as they were in that very step, which leaves what messages cost;
# and then against one node with one thread, a pipeline of p stages and m microbatches being m·p / (m + p − 1) times as fast
# where layers can be shared out evenly.
# usage: bench_ring.sh BUILD NAME MODEL SEQ
# SPDX-License-Identifier: MIT
set -eu
microbatches=8 steps=3 turns=3

# Within the ring, called by itself: a job of each schedule in turn, what each says of its last step, and the steps but the first, which
# also brings the model in.
if [ -n "${BENCH_RING:-}" ]; then
    work=$BENCH_RING n=0
    for schedule; do
        n=$((n + 1))
        "$RINGCTL" train --model "$MODEL" --data "$work/rows.jsonl" --adapter-out "$work/out" --rank 16 --target-modules all-linear \
            --batch-size $microbatches --micro-batch-size 1 --seq-len "$SEQ" --iters $steps --schedule "$schedule" --log "$work/log"
        "$RINGCTL" gantt $n --json >"$work/timeline.$n"
        jq -r 'select(.step > 1) | .step_seconds' "$work/log" | sort -n >"$work/seconds.$n"
        rm -rf "$work/out"
    done
    exit 0
fi

build=$1 name=$2 MODEL=$3 SEQ=$4
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export MODEL SEQ BENCH_RING="$work" RINGCTL="$build/ringctl"

awk -v rows=$((2 * microbatches)) -v n="$SEQ" 'BEGIN {
    for (r = 0; r < rows; r++) {
        ids = ""
        for (i = 0; i < n; i++) {
            x = (x * 75 + 74 + r) % 65537
            ids = ids (i ? "," : "") x % 32000
        }
        printf "{\"input_ids\":[%s],\"labels\":[%s]}\n", ids, ids
    }
}' >"$work/rows.jsonl"

# ring NODES SCHEDULE…
ring() {
    nodes=$1
    shift
    "$build/ringctl" local "$nodes" --threads 1 exec sh "$0" "$@" >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        exit 1
    }
}
middle() {
    awk '{x[NR] = $1} END {print x[int((NR + 1) / 2)]}' "$1"
}

ring 1 1f1b
one=$(middle "$work/seconds.1")
rm -f "$work"/seconds.* "$work"/timeline.*
# shellcheck disable=SC2046 # words
ring 2 $(for turn in $(seq $turns); do echo naive 1f1b; done)

# A line for each turn: a step of 1F1B; F, B and what is neither of both ranks, of a task alone; a step that was drawn, and as planned of its own tasks.
for turn in $(seq $turns); do
    naive=$((2 * turn - 1)) step=$((2 * turn))
    echo "$(middle "$work/seconds.$step")" "$(jq -r 'def mid: sort | .[length / 2 | floor];
        [.ranks[].tasks | ([.[] | select(.[0] == "F") | .[3] - .[2]] | mid), ([.[] | select(.[0] == "B") | .[3] - .[2]] | mid),
            ([.[] | select(.[0] == "norm" or .[0] == "update") | .[3] - .[2]] | add)] | @tsv' "$work/timeline.$naive")" \
        "$(jq -r '"\(.seconds) \(.planned_seconds)"' "$work/timeline.$step")"
done | awk -v m=$microbatches -v name="$name" -v one="$one" '
    function middle(x, n,  i, k, t, y) {
        for (i = 1; i <= n; i++) y[i] = x[i]
        for (i = 1; i <= n; i++) for (k = i + 1; k <= n; k++) if (y[k] < y[i]) {t = y[i]; y[i] = y[k]; y[k] = t}
        low = y[1]; high = y[n]
        return y[int((n + 1) / 2)]
    }
    # Rank 0 is one forward ahead; rank 1 turns each microbatch round.
    function formula(f0, b0, f1, b1,  a, b, k, came) {
        a = came = f0
        b = 0
        for (k = 0; k < m; k++) {
            b = (b > came ? b : came) + f1 + b1
            if (k + 1 < m) came = a = a + f0
            a = (a > b ? a : b) + b0
        }
        return a
    }
    function row(what, against, limit, ratio, goal,  mid) {
        mid = 100 * middle(ratio, NR)
        printf "%-38s %9.2f %-9s %-22s %8.2f %-8s %6.1f %% +- %4.1f   %s\n", what, middle(step, NR), "s/step", against, middle(limit, NR), "s",
            mid, 50 * spread(ratio), goal ? goal (mid <= 105 ? "ok" : "ABOVE") : ""
    }
    function spread(x) {
        middle(x, NR)
        return high - low
    }
    {
        step[NR] = $1
        alone[NR] = formula($2, $3, $5, $6) + $4 + $7; to_alone[NR] = $1 / alone[NR]
        own[NR] = $9; to_own[NR] = $8 / $9
        even[NR] = one * (m + 1) / (2 * m); to_even[NR] = $1 / even[NR]
    }
    END {
        row("1F1B m=" m ", " name ", 2 nodes", "its tasks, core alone", alone, to_alone, "<= 105 %  ")
        row("  the same", "its tasks as they were", own, to_own, "")
        row("  the same", "1 node x " sprintf("%.2f", (m + 1) / (2 * m)), even, to_even, "")
    }'
