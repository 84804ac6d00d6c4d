#!/bin/sh
# What open dashboards cost a job: the median time of a training step while 200 streams of events stand open and the status is asked
# for 50 times a second, against that of the same job left alone, in short turns, so that both see the same machine. The stage has a CPU
# of its own; the daemon and those who ask share another: dashboards are open elsewhere, and what is measured is what they cost the
# job, not what a browser costs the machine it runs on. Time the stage stood ready while its CPU had others to serve is taken off: no
# thread of the daemon may run there, so it was not the daemon.
# usage: bench_web.sh BUILD MODEL [SECONDS]; runs itself again as the command of `ringctl local`.
# SPDX-License-Identifier: MIT
set -eu
streams=200 rate=50 turns=6
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

# child PARENT NAME: the process of that name it has started
child() {
    for stat in /proc/[0-9]*/stat; do
        read -r pid comm _ parent _ <"$stat" 2>/dev/null || continue
        if [ "$comm" = "($2)" ] && [ "$parent" = "$1" ]; then echo "$pid"; fi
    done
}
cpus=$(awk '/^Cpus_allowed_list/ {print $2}' /proc/self/status | tr ',' '\n' | awk -F- '{for (c = $1; c <= ($2 == "" ? $1 : $2); c++) print c}')
ours=$(echo "$cpus" | sed -n 1p) others=$(echo "$cpus" | sed -n 2p)
daemon=$(child "$PPID" ringd) # of the ringctl that runs this
pin() { taskset -apc "$1" "$2" >/dev/null; }
pin "$others" $$
pin "$others" "$daemon"
# The CPU time of all its threads, in nanoseconds.
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

timeout 60 tail -n +1 -F "$work/log" 2>/dev/null | grep -qm1 '"step":3,' || {
    "$build/ringctl" job "$job" >&2
    exit 1
}
stage=$(child "$daemon" ringd-stage)
pin "$ours" "$stage"
# The thread that computes is the one that has computed most. Of each step: its seconds, and what its CPU kept it waiting up to then.
thread=$(for task in /proc/"$stage"/task/*; do echo "$(cut -d' ' -f1 "$task/schedstat") $task"; done | sort -n | tail -n 1 | cut -d' ' -f2)
tail --pid=$$ -n 0 -f "$work/log" | while read -r line && read -r _ waited _ <"$thread/schedstat"; do
    line=${line#*\"step_seconds\":}
    echo "${line%%[,\}]*} $waited"
done >"$work/steps" 2>/dev/null &

# steps FILE: of the steps that began and ended while the rest of the arguments ran
steps() {
    file=$1
    shift
    from=$(($(wc -l <"$work/steps") + 1))
    "$@" || return
    to=$(wc -l <"$work/steps")
    awk -v from="$from" -v to="$to" 'NR > from && NR <= to {print $1 - ($2 - before) / 1e9} {before = $2}' \
        "$work/steps" >>"$work/$file"
}
turn=0
while [ $turn -lt $turns ]; do
    turn=$((turn + 1))
    steps alone sleep $((seconds / turns))
    steps loaded loaded
done
"$build/ringctl" cancel "$job" >/dev/null
kill $! 2>/dev/null || true

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
