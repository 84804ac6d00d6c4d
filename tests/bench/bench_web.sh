#!/bin/sh
# What open dashboards cost a job: the median time of a training step while 200 streams of events stand open and the status is asked
# for 50 times a second, against that of the same job left alone, in turns, so that both see the same machine.
# usage: bench_web.sh BUILD MODEL [SECONDS]; runs itself again as the command of `ringctl local`.
# SPDX-License-Identifier: MIT
set -eu
streams=200 rate=50 turns=3
name="LoRA step, $streams dashboards, $rate requests/s"

if [ "${1-}" != --inside ]; then
    [ "$(nproc)" -gt 1 ] || { printf '%-38s skipped: with one CPU it would be shared with the clients\n' "$name"; exit 0; }
    work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    export RINGD_BENCH_WORK="$work"
    "$1/ringctl" local 1 --threads 1 exec sh "$0" --inside "$1" "$2" "${3-60}" 2>"$work/said" || {
        cat "$work/said" >&2
        exit 1
    }
    exit
fi
build=$2 model=$3 seconds=$4 work=$RINGD_BENCH_WORK

# The node is a child of the ringctl that runs this; the CPU time of all its threads, in nanoseconds.
for stat in /proc/[0-9]*/stat; do
    read -r pid comm _ parent _ <"$stat" 2>/dev/null || continue
    [ "$comm" = "(ringd)" ] && [ "$parent" = "$PPID" ] && daemon=$pid
done
cpu_ns() { cat "/proc/$daemon/task"/*/schedstat | awk '{sum += $1} END {printf "%d\n", sum}'; }
loaded() {
    before=$(cpu_ns)
    "$build/tests/bench/bench_web" "$RINGD_SOCKET" $streams $rate $((seconds / turns)) >>"$work/load" || return
    echo $(($(cpu_ns) - before)) >>"$work/cpu"
}

awk 'BEGIN {
    for (r = 0; r < 16; r++) {
        ids = ""
        for (i = 0; i < 32; i++) {
            x = (x * 75 + 74 + r) % 65537
            ids = ids (i ? "," : "") x % 32000
        }
        printf "{\"input_ids\":[%s],\"labels\":[%s]}\n", ids, ids
    }
}' >"$work/rows.jsonl"
: >"$work/log"
job=$("$build/ringctl" train --model "$model" --data "$work/rows.jsonl" --adapter-out "$work/out" --batch-size 1 --seq-len 32 \
    --iters 1000000 --log "$work/log" --detach)

# steps FILE: times of the steps that began and ended while the rest of the arguments ran
steps() {
    file=$1
    shift
    from=$(($(wc -l <"$work/log") + 2))
    "$@" || return
    to=$(wc -l <"$work/log")
    sed -n "${from},${to}p" "$work/log" | jq .step_seconds >>"$work/$file"
}
timeout 60 tail -n +1 -f "$work/log" 2>/dev/null | grep -qm1 '"step":3,' || {
    "$build/ringctl" job "$job" >&2
    exit 1
}
turn=0
while [ $turn -lt $turns ]; do
    turn=$((turn + 1))
    steps alone sleep $((seconds / turns))
    steps loaded loaded
done
"$build/ringctl" cancel "$job" >/dev/null

sort -n "$work/alone" >"$work/alone.sorted"
sort -n "$work/loaded" | awk -v name="$name" -v other="$work/alone.sorted" -v load="$work/load" \
    -v cpu="$work/cpu" -v seconds="$seconds" '
    {b[NR] = $1}
    END {
        while ((getline < other) > 0)
            a[++n] = $1
        while ((getline < load) > 0) {
            events += $2
            requests += $3
            slowest = $4 > slowest ? $4 : slowest
        }
        while ((getline < cpu) > 0)
            used += $1 / 1e9
        if (n < 5 || NR < 5) {
            printf "%-38s skipped: only %d and %d steps in the time\n", name, n, NR
            exit
        }
        x = b[int((NR + 1) / 2)]
        y = a[int((n + 1) / 2)]
        spread = 50 * (a[int(3 * n / 4) + 1] - a[int(n / 4) + 1]) / y
        printf "%-38s %9.4f %-9s %-22s %8.4f %-8s %6.1f %% +- %4.1f   %s\n", name, x, "s", "the job left alone", y, "s",
            100 * x / y, spread, x < 1.02 * y ? "ok" : "ABOVE 102 %"
        printf "%-38s %9d %-9s %-22s %8d %-8s\n", "  answered, slowest " sprintf("%.0f ms", 1000 * slowest), requests,
            "requests", "and to all streams", events, "events"
        printf "%-38s %9.1f %-9s\n", "  the daemon, for them", 100 * used / seconds, "% CPU"
    }'
