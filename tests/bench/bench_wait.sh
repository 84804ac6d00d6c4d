#!/bin/sh
# Two nodes of two threads each train. First what their memory does from one step to the next, once all has been used: nothing is mapped any more, and
# next to no page is touched for the first time. Then what a stage takes of its CPUs while it waits: one is stopped, and the other, which has come to
# where it needs the next message, is watched. usage: bench_wait.sh BUILD MODEL [SECONDS]; runs itself again as the command of `ringctl local`.
# SPDX-License-Identifier: MIT
set -eu

if [ -z "${BENCH_WAIT:-}" ]; then
    BENCH_WAIT=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
    export BENCH_WAIT RINGCTL="$1/ringctl" MODEL="$2" SECONDS_WATCHED="${3-10}"
    trap 'rm -rf "$BENCH_WAIT"' EXIT
    trap 'exit 130' INT TERM
    "$RINGCTL" local 2 --threads 2 exec sh "$0"
    exit
fi

# Children of a process with that name.
children() {
    for stat in /proc/[0-9]*/stat; do
        { read -r pid name _ parent _ <"$stat"; } 2>/dev/null || continue
        [ "$parent" = "$1" ] && [ "$name" = "($2)" ] && echo "$pid"
    done
    true
}
cpu_ns() {
    cat /proc/"$1"/task/*/schedstat | awk '{sum += $1} END {printf "%d\n", sum}'
}

echo '{"input_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}' >"$BENCH_WAIT/rows.jsonl"
: >"$BENCH_WAIT/log"
job=$("$RINGCTL" train --model "$MODEL" --data "$BENCH_WAIT/rows.jsonl" --adapter-out "$BENCH_WAIT/out" --batch-size 1 --micro-batch-size 1 \
    --iters 100000 --log "$BENCH_WAIT/log" --detach)
# reached STEP
reached() {
    timeout 240 tail -n +1 -f "$BENCH_WAIT/log" | grep -qm1 "\"step\":$1,"
}
# Pages touched for the first time, and KiB of memory that is nobody else's, mapped so far.
memory() {
    awk '{print $10}' "/proc/$1/stat"
    awk '/^VmData:/ {print $2}' "/proc/$1/status"
}
reached 5
stages=
for node in $(children "$PPID" ringd); do
    stages="$stages $(children "$node" ringd-stage)"
done
# shellcheck disable=SC2086 # two numbers
set -- $stages
before="$(memory "$1") $(memory "$2")"
reached 25
# shellcheck disable=SC2046,SC2086 # four numbers each
echo $before $(memory "$1") $(memory "$2") | awk '{
    printf "%-38s %9.1f %-9s %d KiB more mapped in 20 of them\n", "memory of two stages, a step", ($5 - $1 + $7 - $3) / 20, "faults", $6 - $2 + $8 - $4
}'
kill -STOP "$1"
trap 'kill -CONT "$stopped"; "$RINGCTL" cancel "$job" >/dev/null' EXIT
stopped=$1
sleep 2 # what the other can still do, it does
before=$(cpu_ns "$2") start=$(date +%s%N)
sleep "$SECONDS_WATCHED"
awk -v used=$(($(cpu_ns "$2") - before)) -v elapsed=$(($(date +%s%N) - start)) 'BEGIN {
    share = 100 * used / elapsed
    printf "%-38s %9.3f %-9s %-22s %8.3f %-8s %16s   %s\n", "stage of 2 threads that waits", share, "% CPU", "goal", 0.5, "%", "",
        share < 0.5 ? "ok" : "ABOVE"
}'
