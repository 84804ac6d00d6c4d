#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every schedule there is, on four real daemons whose stages sleep 20 ms a task: all ranks work at once, as the schedule means them to, and
# no step is faster than the schedule's own makespan, which would be an order that was not kept. How much slower a step is than that,
# make bench measures: other work on the machine only ever adds.
. "$(dirname "$0")/lib/check.sh"
[ -x "$build/tests/system/lib/sleeping" ] || skip "$build/tests/system/lib/sleeping is missing: make test-programs"
schedules="naive gpipe 1f1b eager-1f1b interleaved-1f1b looped-bfs zb-h1 zb-h2 zbv v-1f1b again sweep"
TIMELINES=$work/timelines
export TIMELINES
mkdir "$TIMELINES"
# shellcheck disable=SC2086 # names are words
limit 240 env SWEEP_STEPS=4 sh tests/bench/bench_bubble.sh "$build" 1 $schedules >"$work/table" 2>&1 || fail "the jobs do not run: $(tail -n 5 "$work/table")"
cat "$work/table"
# name and percent of each row
sed -n 's/^step, \([^,]*\),.* \([0-9.]*\) % .*/\1 \2/p' "$work/table" >"$work/shares"
equal "steps in the table" "$(wc -l <"$work/shares")" "$(echo "$schedules" | wc -w)"
early=$(awk '$2 < 99.5 {printf "%s ", $1}' "$work/shares")
[ -z "$early" ] || fail "faster than the schedule allows: $early"

# The most ranks that compute at one moment, in the times of the ranks' own records laid on one clock. A task ends in the record
# when its message has been handed over, and the next rank may have begun by then: half a task is left off. On a busy machine it may end
# much later; so where no two may meet, each counts for the first 15 of the 20 ms that it sleeps at least.
at_once() {
    jq --argjson most "$2" '[.ranks | to_entries[] | .key as $rank | (.value.offset_us / 1e6) as $ahead | .value.tasks[]
         | select(.[0] | test("^[FBIWR]")) | {rank: $rank, from: (.[2] + $ahead), to: ([.[3] - 0.010, .[2] + $most] | min + $ahead)}] as $tasks
        | [$tasks[] | .from as $now | [$tasks[] | select(.from <= $now and $now < .to) | .rank] | unique | length] | max' "$TIMELINES/$1"
}
for name in $schedules; do
    case $name in
    naive) equal "ranks that compute at once, $name" "$(at_once "$name" 0.015)" 1 ;;
    *) equal "ranks that compute at once, $name" "$(at_once "$name" 60)" 4 ;;
    esac
done
