#!/bin/sh
# What idle daemons cost: CPU time and resident memory of each node of a ring of three that has nothing to do, and the memory
# once more after many jobs. Of the resident memory most is pages of libraries, shared with every other process: the private
# part is shown beside it.
# usage: bench_idle.sh BUILD [SECONDS [JOBS]]; runs itself again as the command of `ringctl local`.
# SPDX-License-Identifier: MIT
set -eu

if [ "${1-}" != --inside ]; then
    exec "$1/ringctl" local 3 exec sh "$0" --inside "${2-20}" "${3-200}" "$1/ringctl"
fi
seconds=$2 jobs=$3 ringctl=$4

# Nanoseconds on a CPU, all threads of a process: utime and stime only count in hundredths of a second.
cpu_ns() {
    cat /proc/"$1"/task/*/schedstat | awk '{sum += $1} END {printf "%d\n", sum}'
}
row() { # WHAT VALUE UNIT GOAL NOTE
    awk -v what="$1" -v value="$2" -v unit="$3" -v goal="$4" -v note="$5" 'BEGIN {
        printf "%-38s %9.3f %-9s %-22s %8.2f %-8s %16s   %s\n", what, value, unit, "goal", goal, unit, note, value < goal ? "ok" : "ABOVE"}'
}
memory() { # WHAT
    node=0
    for pid in $nodes; do
        node=$((node + 1))
        row "idle daemon, node $node of 3$1" "$(awk '/^Rss:/ {print $2 / 1024}' /proc/"$pid"/smaps_rollup)" MiB 12 \
            "$(awk '/^Private/ {sum += $2} END {printf "%.1f MiB private", sum / 1024}' /proc/"$pid"/smaps_rollup)"
    done
}

# The nodes are children of the ringctl that runs this.
nodes=
for stat in /proc/[0-9]*/stat; do
    read -r pid name _ parent _ <"$stat" 2>/dev/null || continue
    [ "$name" = "(ringd)" ] && [ "$parent" = "$PPID" ] && nodes="$nodes $pid"
done
[ -n "$nodes" ] || { echo "bench_idle: no ringd runs under this ringctl" >&2; exit 1; }

sleep 15 # links come up, and for ten seconds after a change records are sent each second
for pid in $nodes; do
    eval "before_$pid=$(cpu_ns "$pid")"
done
start=$(date +%s%N)
sleep "$seconds"
node=0
for pid in $nodes; do
    node=$((node + 1))
    after=$(cpu_ns "$pid")
    elapsed=$(($(date +%s%N) - start))
    eval "before=\$before_$pid"
    row "idle daemon, node $node of 3" "$(awk -v used=$((after - before)) -v elapsed="$elapsed" 'BEGIN {print 100 * used / elapsed}')" "% CPU" 0.05 ""
done
memory ""

job=0
while [ "$job" -lt "$jobs" ]; do
    job=$((job + 1))
    "$ringctl" --json generate --model "$PWD/share/tiny-llama" --ids 1 --max-tokens 2 >/dev/null 2>&1 || {
        echo "bench_idle: job $job failed" >&2
        exit 1
    }
done
memory " after $jobs jobs"
