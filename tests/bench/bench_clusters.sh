#!/bin/sh
# What --parallel auto chooses, against a look at every layout that there is: ten clusters of two to four real daemons of one thread each, whose
# control groups have unlike shares of the CPUs. Each daemon has a network namespace, and cables to its neighbours, some of which tc makes slow.
# Each layout has its best schedule (--schedule auto), and runs fourteen steps; so does what auto chose. A step is the median of the last eight:
# the first ones take up to three times as long. Reported of each cluster: what auto chose, the fastest layout, the one against the other, and
# the step that was foreseen of auto's against the one it took; with -v also what each layout was foreseen to take, and took. Needs root.
# usage: bench_clusters.sh [-v] BUILD [NUMBER…]   (of clusters, 1 to 10)
# SPDX-License-Identifier: MIT
set -eu
cd "$(dirname "$0")/../.."
steps=14 seq=128
. tests/bench/quotas.sh

# number, rows of a step, cables in Mbit/s (0: as fast as loopback is), hundredths of a CPU of each node
clusters='1 4 0 50 50
2 4 0 60 30
3 1 0 50 50
4 4 200 50 50
5 1 100 50 50
6 8 0 35 35 35
7 4 0 60 20 20
8 1 0 35 35 35
9 8 0 30 30 30 30
10 4 300 40 20 40 20'

# What so many nodes can be laid out as.
layouts_of() {
    case $1 in
    2) echo pp=1 pp=2 dp=2,pp=1 tp=2,pp=1 ;;
    3) echo pp=1 pp=2 pp=3 dp=2,pp=1 dp=3,pp=1 tp=2,pp=1 tp=3,pp=1 pp=1+2 ;;
    4) echo pp=1 pp=2 pp=3 pp=4 dp=2,pp=1 dp=3,pp=1 dp=4,pp=1 dp=2,pp=2 tp=2,pp=1 tp=2,pp=2 tp=4,pp=1 pp=1+2 pp=1+3 pp=2+1 pp=1+1+2 ;;
    esac
}

# Within a cluster, called by itself: NUMBER ROWS MBITS HUNDREDTHS…
if [ -n "${BENCH_CLUSTERS:-}" ]; then
    set +e
    work=$BENCH_CLUSTERS number=$1 rows=$2 rate=$3
    shift 3
    . tests/netns/lib.sh
    . tests/netns/nodes.sh
    ns_up $#
    for node in $(seq $#); do
        begin_logs "$node"
        no_dad "$node"
    done
    [ "$rate" = 0 ] && rate= || rate=${rate}mbit
    for node in $(seq 2 $#); do
        cable $((node - 1)) "$node" "$rate"
    done
    [ $# = 2 ] || cable $# 1 "$rate"
    node=0
    for hundredths; do
        node=$((node + 1))
        build=$work/start start_ringd $node
        confine "$GROUP-$number-$(name_of $node)" "$hundredths" $pid
    done
    await_all 'API on' 30 $(names 1 $#)
    for node in $(seq $#); do
        enrol "$node"
    done
    await_all "a (chain|ring) of $#" 30 $(names 1 $#)
    for at in $(seq $cable); do
        await_all "cable on cable$at to .* Mb/s out" 60 "$(name_of "$at")" "$(name_of $((at % $# + 1)))"
    done
    options="--model $work/model --data $work/rows.jsonl --adapter-out $work/out --rank 16 --target-modules all-linear --batch-size $rows
        --seq-len $seq --iters $steps"
    ctl() {
        RINGD_SOCKET=$tmp/a/ringd.sock timeout 600 "$build/ringctl" "$@"
    }
    # layout NAME OPTION…: plans it and runs it; a line of what was foreseen, what it took, and what it is
    layout() {
        called=$1
        shift
        # shellcheck disable=SC2086 # options are words
        ctl --json plan train $options --micro-batch-size 1 "$@" --schedule auto --out "$work/kept.plan" >"$work/plan.json" 2>"$work/said" || {
            echo "$called cannot be: $(tail -n 1 "$work/said")" >&2
            return
        }
        # shellcheck disable=SC2086
        ctl train $options --plan "$work/kept.plan" --log "$work/log" >"$work/said" 2>&1 || fail "$called: $(cat "$work/said")"
        jq -rs --arg called "$called" --arg number "$number" --argjson said "$(jq .plan.forecast.seconds "$work/plan.json")" --arg is \
            "$(jq -r '(.parallel // "pp=1") + " " + .schedule + " " + (.nodes | join(","))' "$work/kept.plan")" \
            '[.[] | select(.step > 6) | .step_seconds] | sort | "\($number) \($called) \($said) \(.[(length - 1) / 2 | floor]) \($is)"' "$work/log" >>"$work/measured"
        rm -rf "$work/out" "$work/log" "$work/kept.plan"
    }
    # What daemons do when they begin is part of their quotas: the first timings do not count.
    layout first --parallel pp=1
    rm -rf "$XDG_CACHE_HOME" "$work/measured"
    for it in $(layouts_of $#); do
        layout "$it" --parallel "$it"
    done
    layout auto --parallel auto
    exit 0
fi

verbose=
[ "$1" != -v ] || { verbose=1 && shift; }
build=$(realpath "$1")
shift
begin "auto against all layouts"
make_model 8 8
export BENCH_CLUSTERS="$work" build

# `ip netns exec` gives a daemon a /sys of its own, without the groups that say which share of the CPUs it has.
mkdir "$work/start"
cat >"$work/start/ringd" <<END
#!/bin/sh
case $groups in
*/cpu)
    mount -t tmpfs none /sys/fs/cgroup
    mkdir $groups
    mount -t cgroup -o cpu none $groups 2>/dev/null || mount -t cgroup -o cpu,cpuacct none $groups ;;
*) mount -t cgroup2 none $groups ;;
esac || exit
exec "$build/ringd" "\$@"
END
chmod +x "$work/start/ringd"
echo "$clusters" | while read -r number rows rate shares; do
    [ $# = 0 ] || case " $* " in *" $number "*) ;; *) continue ;; esac
    : >"$work/measured"
    # shellcheck disable=SC2086 # shares are words
    sh tests/bench/bench_clusters.sh "$number" "$rows" "$rate" $shares >"$work/all" 2>&1 || {
        cat "$work/all" >&2
        exit 1
    }
    grep 'cannot be' "$work/all" >&2 || :
    release_nodes
    [ -z "$verbose" ] || awk '{printf "  %-12s foreseen %6.0f ms, took %6.0f ms: %s %s %s\n", $2, 1000 * $3, 1000 * $4, $5, $6, $7}' "$work/measured"
    awk -v number="$number" -v what="$shares, rows $rows, cables $rate" '
        $2 == "auto" {said = $3; took = $4; chosen = $5 " " $6; next}
        !best || $4 < best {best = $4; name = $5 " " $6}
        END {
            best = took < best ? took : best
            printf "%-38s %9.0f %-9s %-22s %8.0f %-8s %6.1f %%   %s\n", "auto: " number " (" what ")", 1000 * took, "ms", "the fastest layout", 1000 * best, "ms",
                100 * took / best, "<= 105 %: " chosen " against " name
            printf "%-38s %9.0f %-9s %-22s %8.0f %-8s %6.1f %%   %s\n", "  its step", 1000 * took, "ms", "the forecast", 1000 * said, "ms", 100 * took / said, "90-110 %"
        }' "$work/measured"
done
