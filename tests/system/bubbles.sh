#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A step takes what its schedule says: four real daemons, stages that sleep 20 ms a task, every schedule there is, one with forwards done
# again, and two adapters whose steps follow each other. Never less than the schedule's own makespan, which would be an order that was not
# kept; and at most a tenth more. What else runs on the machine only ever adds, so a schedule that took longer is measured again, three
# times in all.
. "$(dirname "$0")/lib/check.sh"
[ -x "$build/tests/system/lib/sleeping" ] || skip "$build/tests/system/lib/sleeping is missing: make test-programs"
schedules="naive gpipe 1f1b eager-1f1b interleaved-1f1b looped-bfs zb-h1 zb-h2 zbv v-1f1b again sweep"
for _ in 1 2 3; do
    # shellcheck disable=SC2086 # names are words
    limit 240 env SWEEP_STEPS=4 sh tests/bench/bench_bubble.sh "$build" 1 $schedules >"$work/table" 2>&1 || fail "the jobs do not run: $(tail -n 5 "$work/table")"
    cat "$work/table"
    # name and percent of each row
    sed -n 's/^step, \([^,]*\),.* \([0-9.]*\) % .*/\1 \2/p' "$work/table" >"$work/shares"
    equal "steps in the table" "$(wc -l <"$work/shares")" "$(echo "$schedules" | wc -w)"
    early=$(awk '$2 < 99.5 {printf "%s ", $1}' "$work/shares")
    [ -z "$early" ] || fail "faster than the schedule allows: $early"
    schedules=$(awk -v most=$((100 + 10 * slow)) '$2 > most {printf "%s ", $1}' "$work/shares")
    [ -n "$schedules" ] || break
done
[ -z "$schedules" ] || fail "slower than the schedule by more than a tenth, three times: $schedules"
