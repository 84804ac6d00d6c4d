#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Jobs that are moved on purpose: a node is drained, comes back, ends, or becomes slow; a job is paused. No step is lost, and what
# comes out has the bits of a run in which nothing happened.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/training.sh"

start_ring

training="--iters 1200 --seq-len 32" # of some milliseconds
# moved NAME LEAST [MOST]: so often, each time behind the step that it had made
moved() {
    moves=$(grep -c 'stops after its next step' "$work/$1.err") || true
    { [ "$moves" -ge "$2" ] && [ "$moves" -le "${3:-$2}" ]; } ||
        fail "$1 moved $moves times, not $2 to ${3:-$2}: $(cat "$work/$1.err")"
    sed -n 's/^interrupted after step \([0-9]*\): .*/\1/p; s/^paused after step \([0-9]*\):.*/\1/p' "$work/$1.err" >"$work/made"
    sed -n 's/^goes on behind step \([0-9]*\).*/\1/p' "$work/$1.err" >"$work/from"
    same "steps of $1 that were made and that were gone on from ($(tr "\n" " " <"$work/made"), $(tr "\n" " " <"$work/from"))" "$work/made" "$work/from"
}

undisturbed

# Drained by hand from another node, and taken in again.
train drained
step_of drained 5
on 3 drain n2 --reason 'a new disk' >"$work/out" || fail "drain: $(cat "$work/out")"
holds "what ringctl drain said" "$work/out" 'n2 takes no part in new jobs until .ringctl undrain n2.'
await_line "$work/drained.err" 'is planned again on 2 nodes' 30
holds "what the job said" "$work/drained.err" 'stops after its next step: node n2 is drained: a new disk'
on 1 nodes >"$work/out"
holds "the nodes" "$work/out" 'n2 +drained'
on 1 undrain n2 >"$work/out" || fail "undrain: $(cat "$work/out")"
await_line "$work/drained.err" 'is planned again on 3 nodes' 60
holds "what the job said" "$work/drained.err" 'stops after its next step: node n2 can take part'
done_as_undisturbed drained
moved drained 2

# A daemon that is asked to end leaves first.
train ended --elastic off
step_of ended 5
stop_node 3 TERM
line=$(next_line "$(log_of 1)")
start_node 3
done_as_undisturbed ended
holds "what the job said" "$work/ended.err" 'stops after its next step: node n3 is drained: its ringd is being ended'
moved ended 1

# Little of a CPU is left to one stage, until its layers have moved to the others: so little that a move also pays where a start
# takes long.
train throttled
step_of throttled 5
throttled_stage=$(stage_of 2)
while kill -STOP "$throttled_stage" && sleep 0.1 && kill -CONT "$throttled_stage" && sleep 0.001; do :; done 2>/dev/null &
throttle=$!
await_line "$work/throttled.err" 'is planned again on 3 nodes' 120
kill $throttle
kill -CONT "$throttled_stage" 2>/dev/null
done_as_undisturbed throttled
slower='node n2 takes [0-9.]+ times as long as planned; with other layers on each node, a step takes about [0-9.e-]+ s instead of [0-9.e-]+ s'
holds "what the job said" "$work/throttled.err" "stops after its next step: $slower"
holds "what the job said" "$work/throttled.err" "interrupted after step [0-9]+: $slower"
# Other work on this machine may slow down another node afterwards. Each move waits twice as long as the one before.
moved throttled 1 3
# layers_of LINE: how many layers n2 has in that line "planned" of the job
layers_of() {
    sed -n 's/^planned: //p' "$work/throttled.err" | sed -n "$1s/.*n2 \([^(]*\)(.*/\1/p" |
        awk '{for (i = 2; i <= NF; i++) {split($i, at, "-"); n += at[1] == $i ? 1 : at[2] - at[1] + 1}} END {print $1 == "no" ? 0 : n}'
}
[ "$(layers_of 2)" -lt "$(layers_of 1)" ] || fail "n2 has as many layers as before: $(cat "$work/throttled.err")"

# Paused, another job in between, and on.
train paused
step_of paused 5
id=$(on 1 jobs | awk '$0 ~ /running/ {print $1; exit}')
on 1 pause "$id" >"$work/out" || fail "pause: $(cat "$work/out")"
await_line "$work/paused.err" 'paused after step' 30
on 1 generate --model "$llama" --max-tokens 2 Hello >"$work/out" || fail "generate: $(cat "$work/out")"
on 1 jobs >"$work/out"
holds "the jobs" "$work/out" "^$id .*paused"
on 1 status >"$work/out"
holds "the status" "$work/out" "^jobs +running 0, waiting 0, paused 1 \($id\)\$"
on 1 continue "$id" >"$work/out" || fail "continue: $(cat "$work/out")"
done_as_undisturbed paused
