#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The head of a job outlives its daemon: when that is started again, its training job and those that were queued go on by themselves. The
# log, the curve and the adapter are those of a run in which nothing happened, to the bit.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/training.sh"

start_ring
get() { limit 20 curl -sS --unix-socket "$(sock_of 1)" "http://localhost$1" || fail "GET $1"; }

training="--iters 140 --seq-len 64 --valid $tables --eval-every 7"
# curve NAME JOB: what the store has of it, without what differs from run to run
curve() {
    for kind in steps evaluations; do
        get "/v1/jobs/$2/$kind" | jq -c ".$kind[] | del(.step_seconds, .tokens_per_second, .bubble, .job)"
    done >"$work/$1.curve"
}
# done_as NAME UNDISTURBED
done_as() {
    await_end "$job_process" 120 || fail "$1: $(cat "$work/$1.err")"
    same "the adapter of $1" "$work/$2/adapter_model.safetensors" "$work/$1/adapter_model.safetensors"
    numbers "$work/$1.log" >"$work/$1.numbers"
    same "the log of $1" "$work/$2.numbers" "$work/$1.numbers"
    curve "$1" "$(jq .id "$work/$1.json")"
    same "the curve of $1" "$work/$2.curve" "$work/$1.curve"
    no_stages 1 3
}
# back SIGNAL NAME: the head's daemon ends and is started again
back() {
    stop_node 1 "$1"
    lines=$(next_line "$work/$2.log")
    start_node 1
    up=$(milliseconds)
    await_line "$work/$2.log" '"loss":' 60 "$lines"
    lasted "$2: from the daemon that is up to the next step" "$up"
}

train undisturbed --save-every 3
await_end "$job_process" 120 || fail "undisturbed: $(cat "$work/undisturbed.err")"
numbers "$work/undisturbed.log" >"$work/undisturbed.numbers"
curve undisturbed "$(jq .id "$work/undisturbed.json")"

# Killed, behind several saves; and ended in order.
for signal in KILL TERM; do
    train "head$signal" --save-every 3
    step_of "head$signal" 40
    back $signal "head$signal"
    done_as "head$signal" undisturbed
    holds "what ringctl said" "$work/head$signal.err" 'ringd has ended: job [0-9]+ goes on when ringd is started again'
    holds "what ringctl said" "$work/head$signal.err" '(^|: )node n1: its ringd was started again'
    holds "what ringctl said" "$work/head$signal.err" 'goes on behind step [0-9]+'
done

# The power goes off everywhere, in the middle of a line of the log; other jobs wait behind this one. All of it goes on.
train dark --save-every 3
step_of dark 40
queued=$(limit 20 curl -sS --unix-socket "$(sock_of 1)" -d "{\"type\": \"generate\", \"spec\": {\"model\": \"$llama\", \"ids\": [1], \"max_tokens\": 4}}" \
    http://localhost/v1/jobs | jq .id)
last=$(on 1 train --model "$llama" --data "$tables" --adapter-out "$work/last" --iters 2 --detach)
for node_number in 1 2 3; do # both are on the disk: ringctl had its answer
    stop_node $node_number KILL
done
printf '{"step":140,"loss":' >>"$work/dark.log"
for node_number in 3 2 1; do
    start_node $node_number
done
done_as dark undisturbed
limit 60 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" attach "$last" >"$work/last.out" 2>"$work/last.err" || fail "a queued job: $(cat "$work/last.err")"
equal "the queued job" "$(get "/v1/jobs/$queued" | jq -c '[.state, .result.ids]')" '["done",[300,261,347,395]]'

# Before anything was saved: from the start, and nothing is said twice.
train early --save-every 100
step_of early 40
stop_node 1 KILL
start_node 1
done_as early undisturbed
holds "what ringctl said" "$work/early.err" '(goes on behind step [0-9]+: its nodes have copies|begins again)'

# A run that the user goes on with has lines of the run before in its log.
train resumed --save-every 3 --iters 30
await_end "$job_process" 60 || fail "the first part: $(cat "$work/resumed.err")"
train resumed --save-every 100 --resume
step_of resumed 60
stop_node 1 KILL
start_node 1
await_end "$job_process" 120 || fail "the second part: $(cat "$work/resumed.err")"
same "the adapter of resumed" "$work/undisturbed/adapter_model.safetensors" "$work/resumed/adapter_model.safetensors"
equal "steps of resumed" "$(jq -s -c 'map(select(.loss).step)' "$work/resumed.log")" "$(jq -s -c 'map(select(.loss).step)' "$work/undisturbed.log")"

# Several adapters at once, with samples.
sweep="--sweep lr=1e-4,3e-4 --sample-prompt Once --sample-every 10 --sample-tokens 4"
# shellcheck disable=SC2086
train undisturbed2 --save-every 4 $sweep
await_end "$job_process" 120 || fail "undisturbed2: $(cat "$work/undisturbed2.err")"
# shellcheck disable=SC2086
train several --save-every 4 $sweep
step_of several 30
back KILL several
await_end "$job_process" 120 || fail "several: $(cat "$work/several.err")"
for adapter in lr-1e-4 lr-3e-4; do
    same "the adapter $adapter" "$work/undisturbed2/$adapter/adapter_model.safetensors" "$work/several/$adapter/adapter_model.safetensors"
done
for name in undisturbed2 several; do
    numbers "$work/$name.log" | sort >"$work/$name.numbers"
done
same "the log of several" "$work/undisturbed2.numbers" "$work/several.numbers"

# A node is missing and waited for; the head is started again meanwhile, and still waits for it.
train both --save-every 3 --on-loss wait
step_of both 40
stop_node 2 KILL
await_line "$work/both.err" 'interrupted after step [0-9]+: node n2 is gone' 60
stop_node 1 KILL
start_node 1
await_line "$work/both.err" 'node n1: its ringd was started again' 60
start_node 2
done_as both undisturbed

# What is to stop does.
long_job 1 stops
stop_node 1 KILL
await_end "$job_process" 20 && fail "a job succeeds without its daemon"
holds "ringctl without its daemon" "$work/stops.err" 'was lost: once ringd is back'
start_node 1
id=$(get '/v1/jobs?all' | jq '[.jobs[].id] | max')
equal "a job that is to stop" "$(get "/v1/jobs/$id" | jq -r '.state + ": " + (.error | split(";")[0])')" 'failed: the daemon ended while the job was unfinished'
