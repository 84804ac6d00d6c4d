#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A job outlives its head: another node takes it over, by hand or by itself, and the result lands where it was asked for once the old
# head is back. Adapter and curve are those of a run in which nothing happened, to the bit.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/training.sh"

start_ring
training="--iters 140 --seq-len 64"

# curve NODE JOB: what the store there has of it, without what differs from run to run
curve() {
    limit 20 curl -sS --unix-socket "$(sock_of "$1")" "http://localhost/v1/jobs/$2/steps" |
        jq -c '.steps[] | del(.step_seconds, .tokens_per_second, .bubble, .job)'
}
# deputy_of JOB: rank 1 of it, n2 or n3; returns when that node has all that it takes to go on with the job
deputy_of() {
    deputy=$(on 1 jobs --json | jq -r ".jobs[] | select(.name == \"$1\") | .deputy | ltrimstr(\"n\")")
    other=$((5 - deputy))
    await_line "$(log_of "$deputy")" "job $1: this node keeps what it takes to go on with this job of n1" 20
}
last_step() { sed -n 's/^{"step":\([0-9]*\),.*/\1/p' "$work/$1.log" | tail -n 1; }
# lost NAME: the head's daemon stands still while its stage makes five more steps, which nobody hears of, and is then lost
lost() {
    step_of "$1" 40
    kill -STOP "$(pid_of 1)"
    step_of "$1" $(($(last_step "$1") + 5))
    kill -KILL "$(pid_of 1)" $job_process
    await_end $job_process 10
    stop_node 1 KILL
    made=$(last_step "$1")
}
# goes_on NODE JOB: it does at most one of the steps again that were made
goes_on() {
    line="job $2: goes on behind step [0-9]+: its nodes have copies of it"
    await_line "$(log_of "$1")" "$line" 60
    behind=$(grep -oE "$line" "$(log_of "$1")" | sed 's/.*behind step \([0-9]*\).*/\1/' | tail -n 1)
    [ $((made - behind)) -le 1 ] || fail "after step $made, which was made, the job goes on behind step $behind"
}

train undisturbed
await_end "$job_process" 120 || fail "undisturbed: $(cat "$work/undisturbed.err")"
curve 1 "$(jq .id "$work/undisturbed.json")" >"$work/undisturbed.curve"

# --- by hand, on a node that keeps nothing of it and asks the one that does ---
train hand --wait-for 600
step_of hand 2
deputy_of 2
on "$deputy" adopt 2@n1 >"$work/up.out" 2>&1 && fail "a job whose head is up was taken over"
holds "while the head is up" "$work/up.out" "job 2 of node n1 is not taken over: node n1 is up, and goes on with the job itself"
lost hand
for node in 2 3; do
    await_line "$(log_of $node)" 'job 2: the stage on this node has ended' 60
done
# It no longer knows what the head said of its deputy, and its copies are gone with it: the job may begin again.
stop_node $other
from=$(next_line "$(log_of $other)")
start_node $other
await_line "$(log_of $other)" "a ring of 2" 20 "$from"
on $other adopt 2@n1 >"$work/hand.out" 2>&1 || fail "adopt: $(cat "$work/hand.out")"
here=$(sed -n "s/^job 2@n1 is job \([0-9]*\)@n$deputy from now on.*/\1/p" "$work/hand.out")
await_line "$(log_of "$deputy")" "job $here: done" 60
curve "$deputy" "$here" >"$work/hand.curve"
same "the curve" "$work/undisturbed.curve" "$work/hand.curve"
[ ! -e "$work/hand/adapter_model.safetensors" ] || fail "the result is there already"
# Its old head is back.
start_node 1
on 1 attach 2 >"$work/home.out" 2>&1 || fail "the job at its old head: $(cat "$work/home.out")"
same "the adapter" "$work/undisturbed/adapter_model.safetensors" "$work/hand/adapter_model.safetensors"
equal "the job at its old head" "$(on 1 job 2 --json | jq -r .state)" done

# --- by itself, with the word of the third node ---
await_ring 1
train alone --wait-for 1
step_of alone 2
deputy_of 3
lost alone
await_line "$(log_of "$deputy")" 'job 3: this job of n1 is job [0-9]+ of this node from now on' 60
here=$(sed -n 's/.*job 3: this job of n1 is job \([0-9]*\) of this node.*/\1/p' "$(log_of "$deputy")")
goes_on "$deputy" "$here"
await_line "$(log_of "$deputy")" "job $here: done" 60
curve "$deputy" "$here" >"$work/alone.curve"
same "the curve" "$work/undisturbed.curve" "$work/alone.curve"
start_node 1
await_line "$(log_of 1)" 'job 3: its result is in' 60
on 1 attach 3 >"$work/home.out" 2>&1 || fail "the job at its old head: $(cat "$work/home.out")"
same "the adapter" "$work/undisturbed/adapter_model.safetensors" "$work/alone/adapter_model.safetensors"

# --- a run that may end early: its deputy has its best adapter, goes on, and ends where it would have ---
await_ring 1
training="--iters 140 --seq-len 64 --lr 1e-1 --valid $tables --eval-every 10 --early-stop 8"
train undisturbed_early
await_end "$job_process" 120 || fail "undisturbed_early: $(cat "$work/undisturbed_early.err")"
holds "the run that ends early" "$work/undisturbed_early.err" 'stops after step 110: 8 evaluations had no better loss than .* of step 30'
curve 1 "$(jq .id "$work/undisturbed_early.json")" >"$work/undisturbed.curve"
train early --wait-for 1
step_of early 2
deputy_of 5
await_line "$(log_of "$deputy")" 'job 5: this node keeps the best so far of this job of n1, as of step ([3-9]|1[01])0' 60
lost early
await_line "$(log_of "$deputy")" 'job 5: this job of n1 is job [0-9]+ of this node from now on' 60
here=$(sed -n 's/.*job 5: this job of n1 is job \([0-9]*\) of this node.*/\1/p' "$(log_of "$deputy")")
goes_on "$deputy" "$here"
await_line "$(log_of "$deputy")" "job $here: done" 60
curve "$deputy" "$here" >"$work/early.curve"
same "the curve" "$work/undisturbed.curve" "$work/early.curve"
start_node 1
await_line "$(log_of 1)" 'job 5: its result is in' 60
on 1 attach 5 >"$work/home.out" 2>&1 || fail "the job at its old head: $(cat "$work/home.out")"
for file in adapter_model.safetensors best/adapter_model.safetensors; do
    same "$file" "$work/undisturbed_early/$file" "$work/early/$file"
done
