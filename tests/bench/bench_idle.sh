#!/bin/sh
# What idle daemons cost: CPU time and resident memory of each node of a ring of three that has nothing to do, and the memory
# once more after many jobs. Of the resident memory most is pages of libraries, shared with every other process: the private
# part is shown beside it. As root the same once more for a ring of cables, each node in a network namespace of its own:
# there beacons are sent too.
# usage: bench_idle.sh BUILD [SECONDS [JOBS [loopback|cables]]]; runs itself again as the command of `ringctl local`.
# SPDX-License-Identifier: MIT
set -eu

case ${1-} in
--inside) inside=$1 && shift ;;
*) inside= ;;
esac
build=$1 seconds=${2-20} jobs=${3-200} world=${4-}

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
    for pid in $pids; do
        node=$((node + 1))
        row "idle daemon, node $node of 3$1" "$(awk '/^Rss:/ {print $2 / 1024}' /proc/"$pid"/smaps_rollup)" MiB 12 \
            "$(awk '/^Private/ {sum += $2} END {printf "%.1f MiB private", sum / 1024}' /proc/"$pid"/smaps_rollup)"
    done
}
# Of the processes $pids, that have just begun; `generate` runs ringctl towards the first of them.
measure() { # WHAT
    sleep 15 # links come up, and for ten seconds after a change records are sent each second
    for pid in $pids; do
        eval "before_$pid=$(cpu_ns "$pid")"
    done
    start=$(date +%s%N)
    sleep "$seconds"
    node=0
    for pid in $pids; do
        node=$((node + 1))
        after=$(cpu_ns "$pid")
        elapsed=$(($(date +%s%N) - start))
        eval "before=\$before_$pid"
        row "idle daemon, node $node of 3$1" \
            "$(awk -v used=$((after - before)) -v elapsed="$elapsed" 'BEGIN {print 100 * used / elapsed}')" "% CPU" 0.05 ""
    done
    memory "$1"
    job=0
    while [ "$job" -lt "$jobs" ]; do
        job=$((job + 1))
        generate --json generate --model "$PWD/share/tiny-llama" --ids 1 --max-tokens 2 >/dev/null 2>&1 || {
            echo "bench_idle: job $job failed" >&2
            exit 1
        }
    done
    [ "$jobs" = 0 ] || memory "$1 after $jobs jobs"
}

if [ "$inside" ]; then
    # The nodes are children of the ringctl that runs this.
    pids=
    for stat in /proc/[0-9]*/stat; do
        read -r pid name _ parent _ <"$stat" 2>/dev/null || continue
        [ "$name" = "(ringd)" ] && [ "$parent" = "$PPID" ] && pids="$pids $pid"
    done
    [ -n "$pids" ] || { echo "bench_idle: no ringd runs under this ringctl" >&2; exit 1; }
    generate() {
        "$build/ringctl" "$@"
    }
    measure ""
    exit
fi
[ "$world" = cables ] || "$build/ringctl" local 3 exec sh "$0" --inside "$build" "$seconds" "$jobs"
[ "$world" != loopback ] || exit 0
[ "$(id -u)" = 0 ] || { echo "NOTE     the same with cables is measured as root only" && exit; }

set +e # a wait for what was killed fails
. tests/netns/lib.sh
. tests/netns/nodes.sh
build=$(realpath "$build")
generate() {
    on a "$@"
}
ns_up 3
begin_logs 1 2 3
no_dad 1 2 3
cable 1 2
cable 2 3
cable 3 1
for n in 1 2 3; do
    start_link $n
    start_ringd $n
done
await_all 'API on' 20 a b c
for n in 1 2 3; do
    enrol $n
done
await_all 'a ring of 3' 10 a b c
pids=$(cat "$tmp/a.pid" "$tmp/b.pid" "$tmp/c.pid")
measure ", cables"
