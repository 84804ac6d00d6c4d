#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The life of jobs as their user sees it: followed, left alone, cancelled, interrupted, refused, queued, and submitted at two nodes at
# the same time.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
start_ring
cd "$work" || exit 1

# Detached: the number alone is printed; jobs, job and log tell the rest; cancel ends it.
: >"$work/detached.log"
id=$(on 1 train --model "$llama" --data "$tables" --adapter-out detached --iters 100000 --log detached.log --detach 2>detached.err)
equal "what --detach prints" "$id" 1
await_line detached.log '"step":2' 20
on 1 jobs | grep -Eq '^1 +train +[^ ]+ +running' || fail "jobs: $(on 1 jobs)"
on 1 job 1 --json | jq -e '.state == "running" and .steps == 100000 and .step >= 2 and (.plan.nodes | length) == 3' >/dev/null ||
    fail "job: $(on 1 job 1)"
on 1 log 1 | grep -q 'planned: n1 layers 0' || fail "log: $(on 1 log 1)"
on 2 nodes --json | jq -e '[.nodes[] | select(.stages | map(.job) == [1])] | length == 3' >/dev/null || fail "nodes: $(on 2 nodes)"

# Others that train wait behind it, here and at another head, and say why; when it is gone both heads reach for the ring at once. What
# does not train goes beside it.
for node_number in 1 3; do
    short=$(on $node_number train --model "$llama" --data "$tables" --adapter-out "short$node_number" --iters 2 --seq-len 64 --detach)
    on $node_number job "$short" --json | jq -e '.state == "queued" and (.error | test("^(job 1 trains, and one job trains at a time|node n[123] is busy with job 1)$"))' >/dev/null ||
        fail "job $short of n$node_number: $(on $node_number job "$short")"
    RINGD_SOCKET=$(sock_of $node_number) limit 60 "$ringctl" --json generate --model "$llama" --ids 1 --max-tokens 4 \
        >beside$node_number.json 2>beside$node_number.err || fail "the job beside it at n$node_number: $(cat beside$node_number.err)"
    equal "the job beside it at n$node_number" "$(jq -c .ids beside$node_number.json)" "[300,261,347,395]"
    RINGD_SOCKET=$(sock_of $node_number) limit 60 "$ringctl" attach "$short" >queued$node_number.out 2>queued$node_number.err &
    eval "queued$node_number=$! short$node_number=$short"
done
equal "the job that trains" "$(on 1 job 1 --json | jq -r .state)" running
on 1 cancel 1 | grep -q 'is being cancelled' || fail "cancel"
for node_number in 1 3; do
    eval "pid=\$queued$node_number short=\$short$node_number"
    await_end "$pid" 40 || fail "the job queued at n$node_number: $(cat queued$node_number.err)"
    equal "the job queued at n$node_number" "$(on $node_number job "$short" --json | jq -r .state)" done
done
equal "the cancelled job" "$(on 1 job 1 --json | jq -r .state)" cancelled
on 1 cancel 1 2>cancel.err && fail "a job was cancelled twice"
holds "cancelling twice" cancel.err 'job 1 has already ended'
on 1 cancel 99 2>cancel.err && fail "an unknown job was cancelled"
holds "cancelling nothing" cancel.err 'no job 99 was submitted to this node'

# ^C where nobody can be asked: the job goes on, status 130; attached to again, it is followed to its end.
long_job 1 interrupted
kill -INT "$(tr -d ' ' <"/proc/$job_process/task/$job_process/children")" # limit's child is ringctl
await_end "$job_process" 20
equal "status after ^C" $? 130
holds "^C" interrupted.err 'job 4 goes on without you: `ringctl attach 4`'
equal "the job left alone" "$(on 1 job 4 --json | jq -r .state)" running
limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" attach 4 >attached.out 2>attached.err &
attached=$!
await_line attached.err 'step [0-9]+/100000' 20
on 1 cancel 4 >/dev/null
await_end $attached 20
equal "status of attach" $? 1
holds "attach" attached.err 'job 4 was cancelled'
no_stages 1 2 3

# Cancelled in the moment of its start, again and again: only the job ends.
for turn in 1 2 3 4 5 6 7 8 9 10; do
    id=$(on 2 train --model "$llama" --data "$tables" --adapter-out hasty --iters 100000 --detach 2>hasty.err)
    on 2 cancel "$id" >/dev/null || fail "turn $turn: $(cat hasty.err)"
done
works "after hasty cancels" 2
equal "the hasty jobs" "$(on 2 jobs --json | jq -r '[.jobs[] | select(.type == "train" and .node == null) | .state] | unique | join(" ")')" cancelled

# Two heads in the same moment, again and again: both get their turn, or one waits.
for turn in 1 2 3 4; do
    for node_number in 1 2 3; do
        RINGD_SOCKET=$(sock_of $node_number) limit 60 "$ringctl" --json score --model "$llama" --ids 1,403,407,261 >race$node_number.json \
            2>race$node_number.err &
        eval "race$node_number=$!"
    done
    for node_number in 1 2 3; do
        eval "pid=\$race$node_number"
        await_end "$pid" 60 || fail "turn $turn, head n$node_number: $(cat race$node_number.err)"
        [ $node_number = 1 ] || same "two heads" race1.json race$node_number.json
    done
done
no_stages 1 2 3

