#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every daemon is restarted while a job runs, one after another, the head's also by SIGKILL: the job ends with one named cause, what is on
# record of it and of those before stays as it was, and --resume goes on from the last save. All runs together took every step once, and
# what comes out is what a run that nobody disturbed has.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"

start_ring
train_options="--on-loss stop --seq-len 64 --batch-size 4 --seed 5 --dropout 0.05 --lr 2e-3 --rank 4 --save-every 4"
get() { limit 20 curl -sS --unix-socket "$(sock_of 1)" "http://localhost$1" || fail "GET $1"; }
# records FILE: every job on record, with its steps
records() {
    for id in $(get '/v1/jobs?all' | jq -r '[.jobs[].id] | sort | .[]'); do
        get "/v1/jobs/$id"
        get "/v1/jobs/$id/steps"
        get "/v1/jobs/$id/log"
    done | jq -c . >"$1"
}
# no_worse BEFORE AFTER: what was on record still is, to the byte; there may be more
no_worse() { head -n "$(wc -l <"$1")" "$2" | cmp -s "$1" - || fail "records that were there have changed: $(head -n "$(wc -l <"$1")" "$2" | diff "$1" - | head -n 4 | cut -c 1-300)"; }

# begin NUMBER [OPTION...]: that run, in the background, until it has done nine steps more than the one before it had saved
begin() {
    number=$1
    shift
    : >"$work/run$number.log"
    # shellcheck disable=SC2086
    RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" --json train --model "$llama" --data "$tables" --adapter-out "$work/out" --iters 100000 \
        --log "$work/run$number.log" $train_options "$@" >"$work/run$number.json" 2>"$work/run$number.err" &
    job_process=$!
    await_line "$work/run$number.log" '"step":' 30
    first=$(jq -s 'map(select(.loss))[0].step' "$work/run$number.log")
    await_line "$work/run$number.log" "\"step\":$((first + 8))," 30
}
# restart NODE SIGNAL CAUSE: of that node; then the ring stands again, and the job has ended for that reason
restart() {
    node_number=$1
    mark=$(next_line "$(log_of "$(((node_number % 3) + 1))")")
    stop_node "$node_number" "$2"
    await_end "$job_process" 20 && fail "a job without n$node_number succeeds"
    start_node "$node_number"
    await_ring "$(((node_number % 3) + 1))" "$mark"
    await_ring "$node_number" "$(grep -n 'API on' "$(log_of "$node_number")" | tail -n 1 | cut -d: -f1)"
    records "$work/after"
    no_worse "$work/before" "$work/after"
    id=$(get '/v1/jobs?all' | jq '[.jobs[].id] | max')
    get "/v1/jobs/$id" >"$work/job.json"
    jq -e --arg cause "$3" '.state == "failed" and (.error | test($cause))' "$work/job.json" >/dev/null ||
        fail "job $id after the restart of n$node_number: $(jq -c '[.state, .error]' "$work/job.json")"
    say "n$node_number, SIG$2: $(jq -r .error "$work/job.json")"
    if [ "$node_number" = 1 ]; then
        holds "ringctl without its daemon" "$work/run$number.err" 'was lost: once ringd is back'
    else
        equal "number of sentences of run $number" "$(grep -c '^ringctl: ' "$work/run$number.err")" 1
    fi
    # What is on record is the beginning of what the job did, each step once. Of a head that was killed the last may be missing.
    get "/v1/jobs/$id/steps" | jq -c '.steps[] | {step, loss}' >"$work/kept"
    jq -c 'select(.loss) | {step, loss}' "$work/run$number.log" >"$work/done"
    head -n "$(wc -l <"$work/kept")" "$work/done" | cmp -s - "$work/kept" || fail "run $number: steps on record are not those that were done: $(diff "$work/done" "$work/kept" | head -n 5)"
    [ "$(wc -l <"$work/kept")" -ge 8 ] || fail "run $number: of $(wc -l <"$work/done") steps $(wc -l <"$work/kept") are on record"
}

: >"$work/before"
# A daemon of another node that is asked to end leaves the job to others first: moves.sh.
begin 1
restart 2 KILL '^node n2'
cp "$work/after" "$work/before"
begin 2 --resume
restart 3 KILL '^node n3'
cp "$work/after" "$work/before"
begin 3 --resume
restart 1 TERM 'the daemon ended'
cp "$work/after" "$work/before"
begin 4 --resume
restart 1 KILL 'the daemon ended'
cp "$work/after" "$work/before"

# To the end, and the same from the beginning without a disturbance.
saved=$(jq -s 'map(select(.loss))[-1].step' "$work/run4.log")
last=$((saved + 4))
train_whole() {
    name=$1
    shift
    # shellcheck disable=SC2086
    RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" --json train --model "$llama" --data "$tables" --iters $last \
        --log "$work/$name.log" $train_options "$@" >"$work/$name.json" 2>"$work/$name.err" || fail "$name: $(cat "$work/$name.err")"
}
train_whole run5 --adapter-out "$work/out" --resume
train_whole straight --adapter-out "$work/straight"
records "$work/after"
no_worse "$work/before" "$work/after"
same "the adapter" "$work/straight/adapter_model.safetensors" "$work/out/adapter_model.safetensors"
# Each run begins where the one before it had saved; so much of each counts, and together it is every step once.
run=0
: >"$work/all"
while [ $run -lt 5 ]; do
    run=$((run + 1))
    next=$([ $run = 5 ] && echo 1000000 || jq -s 'map(select(.loss))[0].step' "$work/run$((run + 1)).log")
    [ $run = 5 ] || [ $(((next - 1) % 4)) = 0 ] || fail "run $((run + 1)) begins at step $next, which nobody had saved"
    jq -c --argjson next "$next" 'select(.loss and .step < $next) | {step, loss, grad_norm}' "$work/run$run.log" >>"$work/all"
done
jq -c 'select(.loss) | {step, loss, grad_norm}' "$work/straight.log" >"$work/straight.steps"
same "all steps of five runs and those of one" "$work/straight.steps" "$work/all"
say "$last steps in five runs"

# A job that comes in the moment a daemon is up again waits for the others, and says so; those who do not come are not waited for long.
stop_node 1
start_node 1
job=$(on 1 train --model "$llama" --data "$tables" --adapter-out "$work/early" --iters 1 --detach)
limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" attach "$job" >/dev/null 2>"$work/early.err" || fail "an early job: $(cat "$work/early.err")"
equal "nodes of an early job" "$(get "/v1/jobs/$job" | jq -c '.plan.nodes | sort')" '["n1","n2","n3"]'
stop_node 2
stop_node 3
stop_node 1
start_node 1
now=$(milliseconds)
job=$(on 1 train --model "$llama" --data "$tables" --adapter-out "$work/lonely" --iters 1 --detach)
equal "why it waits" "$(get "/v1/jobs/$job" | jq -r .error)" 'n2 and 1 more may still come: the daemon here has just started'
limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" attach "$job" >/dev/null 2>"$work/lonely.err" || fail "a lonely job: $(cat "$work/lonely.err")"
equal "nodes of a lonely job" "$(get "/v1/jobs/$job" | jq -c '.plan.nodes')" '["n1"]'
lasted "a lonely job" "$now"
