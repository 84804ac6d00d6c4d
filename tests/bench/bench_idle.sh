#!/bin/sh
# What idle daemons cost: CPU time and resident memory of each node of a ring of three that has nothing to do.
# usage: bench_idle.sh BUILD [SECONDS]; runs itself again as the command of `ringctl local`.
# SPDX-License-Identifier: MIT
set -eu

if [ "${1-}" != --inside ]; then
    exec "$1/ringctl" local 3 exec sh "$0" --inside "${2-20}"
fi
seconds=$2

# Nanoseconds on a CPU, all threads of a process: utime and stime only count in hundredths of a second.
cpu_ns() {
    cat /proc/"$1"/task/*/schedstat | awk '{sum += $1} END {printf "%d\n", sum}'
}

# The nodes are children of the ringctl that runs this.
nodes=
for stat in /proc/[0-9]*/stat; do
    read -r pid name _ parent _ <"$stat" 2>/dev/null || continue
    [ "$name" = "(ringd)" ] && [ "$parent" = "$PPID" ] && nodes="$nodes $pid"
done
[ -n "$nodes" ] || { echo "bench_idle: no ringd runs under this ringctl" >&2; exit 1; }

sleep 3 # links come up and the page cache of SQLite settles
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
    awk -v used=$((after - before)) -v elapsed="$elapsed" -v node=$node '
        /^VmRSS:/ {rss = $2 / 1024}
        END {
            share = 100 * used / elapsed
            printf "%-38s %9.3f %-9s %-22s %8.3f %-8s %16s   %s\n", "idle daemon, node " node " of 3", share, "% CPU",
                "goal", 0.1, "%", "", share < 0.1 ? "ok" : "ABOVE"
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %16s   %s\n", "idle daemon, node " node " of 3", rss, "MiB",
                "goal", 12, "MiB", "", rss < 12 ? "ok" : "ABOVE"
        }' /proc/"$pid"/status
done
