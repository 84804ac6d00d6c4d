#!/bin/sh
# What a step takes on four real daemons whose stages sleep instead of computing, 20 ms a task, against what its schedule gives without
# any message's time: eight microbatches, two chunks where there are chunks. From the first task's begin to the end of the last, as the
# ranks recorded it; the median of TIMES jobs.
# usage: bench_bubble.sh BUILD [TIMES [SCHEDULE…]]   ("again": 1f1b with forwards done again; "sweep": the second round of eager-1f1b with
# SWEEP_STEPS steps, nineteen, of each of two adapters on one model). TIMELINES names a folder that keeps the last step of each.
# SPDX-License-Identifier: MIT
set -eu
task_ms=20
sweep=${SWEEP_STEPS:-19} # as many as a job of two adapters has, were it not for saving
options() { # how to ask for it
    case $1 in
    again) echo "--schedule $work/again.csv" ;;
    sweep) echo "--schedule eager-1f1b" ;;
    interleaved* | looped*) echo "--schedule $1 --chunks 2" ;;
    *) echo "--schedule $1" ;;
    esac
}

# Within the ring, called by itself.
if [ -n "${BENCH_BUBBLE:-}" ]; then
    work=$BENCH_BUBBLE times=$1
    shift
    n=0
    train() { # OUT OPTION...
        n=$((n + 1))
        out=$1
        shift
        "$work/bin/ringctl" train --data "$work/rows.jsonl" --adapter-out "$out" --batch-size 8 --micro-batch-size 1 --seq-len 16 \
            --recompute none "$@"
    }
    random="--model $work/model --init random --fine-tune-type full"
    for name; do
        for time in $(seq "$times"); do
            # shellcheck disable=SC2046,SC2086 # options are words
            if [ "$name" = sweep ]; then
                [ -e "$work/made" ] || train "$work/made" $random --iters 1
                train "$work/out" --model "$work/made" --sweep lr=1e-4,3e-4 --iters $((2 * sweep)) --save-every $sweep $(options "$name")
            else
                train "$work/out" $random --iters 3 $(options "$name")
            fi
            rm -rf "$work/out"
            # The nodes have one clock here: what was estimated of their distance is taken out again.
            curl -sS --unix-socket "$RINGD_SOCKET" "http://localhost/v1/jobs/$n/timeline" >"$work/timeline"
            [ -z "${TIMELINES:-}" ] || cp "$work/timeline" "$TIMELINES/$name"
            jq '100 * .bubble' "$work/timeline" >>"$work/bubble.$name"
            jq '[.ranks[] | (.offset_us / 1e6) as $ahead | .tasks[] | select(.[0] | test("^[FBIWR]$")) | [.[2] + $ahead, .[3] + $ahead]]
                | 1000 * ((map(.[1]) | max) - (map(.[0]) | min))' "$work/timeline" >>"$work/ms.$name"
        done
    done
    exit 0
fi

build=$1 times=${2:-3}
shift
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- naive gpipe 1f1b eager-1f1b interleaved-1f1b looped-bfs zb-h1 zb-h2 zbv v-1f1b again sweep
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
# Stages that sleep leave cores idle that stages which compute would not.
. "$(dirname "$0")/awake.sh"
keep_awake
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# A daemon starts the ringd-stage beside it.
mkdir "$work/bin" "$work/model"
cp "$build/ringd" "$build/ringd-keys" "$build/ringctl" "$work/bin/"
cp "$build/tests/system/lib/sleeping" "$work/bin/ringd-stage"
jq '.hidden_size = 32 | .intermediate_size = 64 | .num_hidden_layers = 8 | .num_attention_heads = 2 | .num_key_value_heads = 2
    | .head_dim = 16 | .vocab_size = 64' share/tiny-llama/config.json >"$work/model/config.json"
jq -cn 'range(8) as $r | [range(16) | (. * 7 + $r) % 64] | {input_ids: ., labels: .}' >"$work/rows.jsonl"
"$build/ringctl" schedule convert 1f1b --ranks 4 --microbatches 8 | sed '1,3s/\([0-9]\)B\([0-9]\)/\1R\2,\1B\2/g' >"$work/again.csv"

BENCH_BUBBLE=$work "$work/bin/ringctl" local 4 --threads 1 exec sh "$0" "$times" "$@" >"$work/said" 2>&1 || {
    cat "$work/said" >&2
    exit 1
}
# shellcheck disable=SC2046 # options are words
for name; do
    case $name in
    sweep) units=$("$build/ringctl" schedule show eager-1f1b --adapters 2 --steps $sweep --json | jq .makespan) ;;
    again) units=$("$build/ringctl" schedule check "$work/again.csv" --cost 1,1,1,1 --json | jq .makespan) ;;
    *) units=$("$build/ringctl" schedule show $(options "$name" | sed 's/--schedule //') --json | jq .makespan) ;;
    esac
    sort -n "$work/ms.$name" | awk -v name="$name" -v plan="$units" -v task=$task_ms '
        {ms[NR] = $1}
        END {
            plan *= task
            mid = ms[int((NR + 1) / 2)]
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %6.1f %% +- %4.1f   %s\n", "step, " name ", 4 x m=8", mid, "ms",
                "tasks of " task " ms", plan, "ms", 100 * mid / plan, 50 * (ms[NR] - ms[1]) / plan, "97-103 %"
        }'
    [ "$name" != sweep ] || sort -n "$work/bubble.$name" | awk -v steps=$sweep '
        {bubble[NR] = $1}
        END {
            printf "%-38s %9.2f %-9s %-22s %8.2f %-8s %8s +- %4.2f   %s\n", "bubble, two adapters, 4 x m=8", bubble[int((NR + 1) / 2)],
                "%", "planned", 100 * 9 / (48 * steps + 9), "%", "", (bubble[NR] - bubble[1]) / 2, "< 2 %"
        }'
done
