#!/bin/sh
# What ringctl simulate says of rings that are at hand, term by term: two real daemons of one thread, each with a core of its own, against a
# simulation that is given what one node takes for a layer, and the cable. Forwards done again, sums of gradients over a slow cable, nodes that
# share a stage, with what bench_slices says of messages as large. Copies of what is trained are off: simulate does not know them.
# usage: bench_simulate.sh BUILD [ROW…]   (rows: pp gpipe again-stage again-layer dp tp). ALONE is put before each command that is
# timed: one that waits for a quiet machine, say.
# SPDX-License-Identifier: MIT
set -eu
layers=8 dim=512 inner=1376 seq=128 rank=64 mbits=400 steps=8

# Within the ring, called by itself: ROW.
if [ -n "${BENCH_SIMULATE:-}" ]; then
    work=$BENCH_SIMULATE row=$1
    for child in $(cat "/proc/$PPID/task/$PPID/children"); do
        name=$(tr '\0' '\n' <"/proc/$child/cmdline" | sed -n '/^--name$/{n;p;}')
        [ -z "$name" ] || taskset -acp $((${name#n} - 1)) "$child" >/dev/null
    done
    train="--model $work/model --data $work/rows.jsonl --adapter-out $work/out --rank $rank --target-modules all-linear --batch-size 8
        --micro-batch-size 1 --seq-len $seq --copies off"
    case $row in
    pp) how="--parallel pp=2 --schedule 1f1b" ;;
    gpipe) how="--parallel pp=2 --schedule gpipe" ;;
    again-stage) how="--parallel pp=2 --schedule gpipe --recompute stage" ;;
    again-layer) how="--parallel pp=2 --schedule gpipe --recompute layer" ;;
    dp) how="--parallel dp=2,pp=1 --schedule 1f1b" ;;
    tp) how="--parallel tp=2,pp=1 --schedule 1f1b" ;;
    esac
    # shellcheck disable=SC2086 # options and the command before them are words
    ${ALONE:-} "$RINGCTL" --json plan train $train --parallel pp=1 --schedule 1f1b >"$work/plan.json" 2>"$work/said"
    # shellcheck disable=SC2086
    ${ALONE:-} "$RINGCTL" train $train $how --iters $steps --log "$work/log" >"$work/said" 2>&1
    jq -rs '[.[] | select(.step > 3) | .step_seconds] | sort | .[(length - 1) / 2 | floor]' "$work/log" >"$work/measured"
    rm -rf "$work/out" "$work/log"
    exit 0
fi

build=$1
shift
[ $# -gt 0 ] || set -- pp gpipe again-stage again-layer dp tp
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
RINGCTL=$build/ringctl
XDG_CACHE_HOME=$work/cache
export RINGCTL XDG_CACHE_HOME BENCH_SIMULATE="$work"
unset CACHE_DIRECTORY
. "$(dirname "$0")/awake.sh"
keep_awake
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

mkdir "$work/shape"
jq ".hidden_size = $dim | .intermediate_size = $inner | .num_hidden_layers = $layers | .num_attention_heads = 8 | .num_key_value_heads = 8
    | .head_dim = 64 | .vocab_size = 512" share/tiny-llama/config.json >"$work/shape/config.json"
jq -cn --argjson n $seq 'range(32) as $r | [range($n) | (. * 7 + $r) % 512] | {input_ids: ., labels: .}' >"$work/rows.jsonl"
BENCH_SIMULATE='' "$build/ringctl" local 1 --threads 1 train --model "$work/shape" --init random --fine-tune-type full --data "$work/rows.jsonl" \
    --adapter-out "$work/model" --batch-size 1 --seq-len $seq --iters 1 >"$work/said" 2>&1 || {
    cat "$work/said" >&2
    exit 1
}
# Rank r on a matrix of n rows and m columns: r (n + m).
params=$(awk -v r=$rank -v d=$dim -v i=$inner -v l=$layers 'BEGIN {print l * r * (4 * 2 * d + 3 * (d + i)) / 1e6}')

# simulate OPTION…: with what the plan of one node says of a layer
simulate() {
    set -- --layers $layers --dim $dim --tokens $seq --adapters 1 --steps 1 --adapter-params "$params" "$@"
    jq -r --argjson n $layers '.plan.forecast.costs[0] | "\(1000 * .[0] / $n) \(1000 * (.[1] + .[2]) / $n) \(1000 * .[2] / $n)"' "$work/plan.json" >"$work/costs"
    read -r forward backward weights <"$work/costs"
    "$build/ringctl" simulate --json --fwd-ms "$forward" --bwd-ms "$backward" --weights-ms "$weights" "$@" | jq .seconds
}
# The line through what two messages take, in bytes: µs of none, and Gbit/s.
gathering() {
    small=$((dim * seq * 2)) large=$((inner * seq * 2))
    ${ALONE:-} "$build/tests/bench/bench_slices" $((small / 1024)) $((large / 1024)) | awk -v small=$small -v large=$large '
        /bare TCP, asleep/ {us[++n] = $8}
        END {byte = (us[2] - us[1]) / (large - small); none = us[1] - small * byte; print (none > 0 ? none : 0), 8 / 1000 / byte}'
}
# show NAME TOOK SAID UNIT
show() {
    awk -v name="$1" -v took="$2" -v said="$3" -v unit="$4" 'BEGIN {
        printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %6.1f %%   %s\n", name, took, unit, "simulate", said, unit, 100 * took / said, "90-110 %"
    }'
}
for row; do
    rm -f "$work/measured"
    set -- "$build/ringctl" local 2 --threads 1 exec sh "$0" "$row"
    # A network of its own, whose cable is slow.
    # shellcheck disable=SC2016 # for the shell within
    [ "$row" != dp ] || set -- unshare -n sh -c 'ip link set lo up && tc qdisc add dev lo root tbf rate "${0}mbit" burst 128k latency 100ms && exec "$@"' $mbits "$@"
    "$@" >"$work/all" 2>&1 || {
        cat "$work/all" "$work/said" >&2
        exit 1
    }
    # A message of a pipeline takes 0.35 ms beside its bytes.
    case $row in
    pp) said=$(simulate --nodes 2 --microbatches 8 --schedule 1f1b --latency-us 350) ;;
    gpipe) said=$(simulate --nodes 2 --microbatches 8 --schedule gpipe --latency-us 350) ;;
    again-*) said=$(simulate --nodes 2 --microbatches 8 --schedule gpipe --latency-us 350 --recompute "${row#again-}") ;;
    # What goes either way passes one device, which has half of its rate for each.
    dp) said=$(simulate --nodes 1 --microbatches 4 --replicas 2 --link-gbps "$(awk -v m=$mbits 'BEGIN {print m / 2000}')") ;;
    tp)
        gathering >"$work/gathering"
        read -r us gbps <"$work/gathering"
        said=$(simulate --nodes 2 --tp 2 --microbatches 8 --latency-us "$us" --link-gbps "$gbps" --gather-fwd 5.69 --gather-bwd 10.38 --gather-weights 3.69)
        ;;
    esac
    show "step, $row" "$(awk '{print 1000 * $1}' "$work/measured")" "$(awk -v s="$said" 'BEGIN {print 1000 * s}')" ms
done
