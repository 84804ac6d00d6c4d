#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Several jobs at once: what is asked of a ring while it trains is answered meanwhile, and all results have the bits of runs alone.
# What does not fit beside others waits, and says for what.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/training.sh"
. "$(dirname "$0")/../lib/endless.sh"
training="--iters 250 --seq-len 64"

generate() { # NAME NODE: what it says in $work/NAME.json
    RINGD_SOCKET=$(sock_of "$2") limit 120 "$ringctl" --json generate --model "$llama" --ids 1,300,261 --max-tokens 24 --temperature 0.8 \
        --seed 5 >"$work/$1.json" 2>"$work/$1.err" || fail "$1: $(cat "$work/$1.err")"
    jq -c .ids "$work/$1.json" >"$work/$1.ids"
}
score() { # NAME NODE
    RINGD_SOCKET=$(sock_of "$2") limit 120 "$ringctl" --json score --model "$llama" --ids 1,300,261,347,395,17,21 \
        >"$work/$1.json" 2>"$work/$1.err" || fail "$1: $(cat "$work/$1.err")"
    jq -c 'del(.seconds, .tokens_per_second)' "$work/$1.json" >"$work/$1.score"
}

# Each alone.
start_ring
undisturbed
generate alone 1
score alone_scored 2

# All of them at once, of two heads.
train trained
step_of trained 20
generate beside 1 &
generating=$!
generate elsewhere 2 &
generating2=$!
score scored 3
wait $generating || fail "the first generation"
wait $generating2 || fail "the generation of another head"
on 1 --json jobs | jq -e '[.jobs[] | select(.type == "train" and .state == "running")] | length == 1' >/dev/null ||
    fail "the job that trains has ended before the others: make it longer; $(on 1 jobs)"
same "tokens beside a job that trains" "$work/alone.ids" "$work/beside.ids"
same "tokens of another head" "$work/alone.ids" "$work/elsewhere.ids"
same "a score beside a job that trains" "$work/alone_scored.score" "$work/scored.score"

# Its nodes show all that they work on, for as long as they do.
endless "$work/endless" "$llama"
mkfifo "$work/said"
RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" generate --model "$work/endless" --ids 1 --max-tokens 1500 >"$work/said" 2>"$work/long.err" &
long=$!
exec 5<"$work/said"
timeout 60 dd bs=1 count=10 <&5 >"$work/began" 2>"$work/dd" || fail "no token: $(cat "$work/long.err")"
for node_number in 1 2 3; do
    on 2 --json nodes | jq -e --arg name n$node_number '.nodes[] | select(.name == $name) | [.stages[] | [.head, .class]] | sort ==
        [["n1", "interactive"], ["n1", "train"]]' >/dev/null || fail "what n$node_number works on: $(on 2 --json nodes)"
done
on 2 nodes >"$work/nodes"
holds "the second stage of a node" "$work/nodes" '^ +[0-9]+ +[0-2] +[a-z]'
on 1 cancel "$(on 1 --json jobs | jq '.jobs[0].id')" >/dev/null
exec 5<&-
await_end $long 20
done_as_undisturbed trained
stop_ring

# One node whose memory does for one of them: the other waits, and is done once the first has ended.
node_options="--memory-limit 20M"
start_node 1
long_job 1 holder
generate waited 1 &
generating=$!
await_line "$work/waited.err" 'waits: node n1 lacks [0-9.]+ MiB of memory, which job 1 holds' 30
on 1 --json jobs | jq -e '.jobs[0] | .state == "queued" and (.error | test("^node n1 lacks .* which job 1 holds$"))' >/dev/null ||
    fail "the job that waits: $(on 1 jobs)"
equal "the job that holds the memory" "$(on 1 job 1 --json | jq -r .state)" running
on 1 cancel 1 >/dev/null
wait $generating || fail "the job that waited"
await_end "$job_process" 20
same "tokens of the job that waited" "$work/alone.ids" "$work/waited.ids"
say "what is asked of a ring while it trains has the bits of a run alone; what does not fit waits"
