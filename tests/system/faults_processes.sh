#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Processes that are killed, stopped or missing while a job runs: one sentence in bounded time, no stage left behind, and the
# ring is usable afterwards.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"

start_ring

# A stage that is killed.
long_job 1 killed
now=$(milliseconds)
kill -KILL "$(stage_of 2)"
failed_job killed "$now" 'node n2: the stage process was killed by SIGKILL: .*; [0-9.]+ [KMG]iB were planned and it had [0-9.]+ [KMG]iB; if memory ran out, another split'
no_stages 1 2 3
works "after a killed stage" 1

# A stage that is killed on the head itself.
long_job 1 head
now=$(milliseconds)
kill -ABRT "$(stage_of 1)"
failed_job head "$now" 'node n1: the stage process was killed by SIGABRT'
no_stages 1 2 3
works "after a killed stage of the head" 3

# A stage that stands still for longer than a silent neighbour is given: its daemon beats on, so it is waited for.
train_short() {
    RINGD_SOCKET=$(sock_of 1) limit 60 "$ringctl" --json train --model "$llama" --data "$tables" --adapter-out "$work/$1" --iters 200 --seq-len 64 \
        --log "$work/$1.log" >"$work/$1.json" 2>"$work/$1.err"
}
train_short undisturbed || fail "undisturbed: $(cat "$work/undisturbed.err")"
: >"$work/stopped.log"
train_short stopped &
job_process=$!
await_line "$work/stopped.log" '"step":2' 20
stage=$(stage_of 2)
kill -STOP "$stage"
mark=$(next_line "$(log_of 1)")
# Nothing may happen for twice the limit: what is awaited is an end that must not come.
limit $((2 * dead_after)) tail --pid="$job_process" -f /dev/null && fail "a job with a stopped stage ended: $(cat "$work/stopped.err")"
tail -n "+$mark" "$(log_of 1)" | grep -q 'ended' && fail "a stopped stage was taken for a lost node: $(tail -n 3 "$(log_of 1)")"
kill -CONT "$stage"
await_end "$job_process" 30 || fail "stopped: $(cat "$work/stopped.err")"
numbers "$work/undisturbed.log" >"$work/undisturbed.numbers"
numbers "$work/stopped.log" >"$work/stopped.numbers"
same "losses with a stage stopped for a while" "$work/undisturbed.numbers" "$work/stopped.numbers"

# A daemon that is killed: both others say so; started again, it closes the ring.
long_job 1 daemon
now=$(milliseconds)
mark3=$(next_line "$(log_of 3)")
stop_node 2 KILL
failed_job daemon "$now" 'node n2 is gone'
no_stages 1 3
await_line "$(log_of 3)" 'connection to n2 ended' 5 "$mark3"
on 3 nodes --json | jq -e '.nodes[] | select(.name == "n2") | .state == "gone" and (.doing | length > 0)' >/dev/null ||
    fail "n3 does not say that n2 is gone: $(on 3 nodes)"
works "two nodes of three" 1
mark=$(next_line "$(log_of 1)")
start_node 2
await_ring 1 "$mark"
await_ring 2
works "after a daemon came back" 2

# The head's daemon is killed: the others stop their stages by themselves, and go on serving.
long_job 1 headless
now=$(milliseconds)
stop_node 1 KILL
await_end "$job_process" 15
equal "ringctl without its daemon" $? 3
holds "ringctl without its daemon" "$work/headless.err" 'was lost: once ringd is back'
works "without the head" 2
lasted "two nodes found together" "$now"
no_stages 2 3
mark=$(next_line "$(log_of 2)")
start_node 1
await_ring 2 "$mark"
on 1 jobs --all --json | jq -e '[.jobs[] | select(.state != "done" and .state != "failed")] | length == 0' >/dev/null ||
    fail "a job of the killed head never ends: $(on 1 jobs --all)"
works "after the head came back" 1

# A daemon that stands still is given up after the limit; when it goes on, it is taken back.
long_job 1 still
now=$(milliseconds)
kill -STOP "$(pid_of 2)"
failed_job still "$now" 'node n2 is gone: .*silent'
no_stages 1 3
works "beside a node that stands still" 3
mark=$(next_line "$(log_of 1)")
kill -CONT "$(pid_of 2)"
await_ring 1 "$mark"
works "after it went on" 2
no_stages 1 2 3

# No stage binary on one node.
stop_node 3
mark=$(next_line "$(log_of 1)")
node_options="--stage-binary $work/nothing-here"
start_node 3
node_options=
await_ring 1 "$mark"
limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" --json generate --model "$llama" --ids 1 >/dev/null 2>"$work/binary.err"
equal "without a stage binary: exit status" $? 1
holds "without a stage binary" "$work/binary.err" 'node n3: the stage process could not be started: is ringd-stage where --stage-binary says'
no_stages 1 2
stop_node 3
mark=$(next_line "$(log_of 1)")
start_node 3
await_ring 1 "$mark"
works "with the binary back" 1
