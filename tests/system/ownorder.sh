#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A schedule of one's own for fewer nodes than the ring has: which take part, and the same result as on a ring of that size; and how what is
# wrong in its file is named.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
model=$PWD/share/tiny-llama
yes '{"text": "Once upon a time there was a cat that sat on a mat."}' | head -n 40 >"$work/rows.jsonl"
cd "$work" || exit 1
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' >two.csv
printf '0F0,0F1,0B0,0B1\n1F0,,1B0,1B0\n' >bad.csv
printf '0F0,0F1,0Q0,0B1\n1F0,1B0,1F1,1B1\n' >worse.csv
train() { # NODES SCHEDULE OUT
    limit 90 "$ringctl" local "$1" --threads 1 -- train --model "$model" --data rows.jsonl --schedule "$2" --adapter-out "$3" --log "$3.jsonl" \
        --iters 3 --batch-size 2 --micro-batch-size 1 --seq-len 64 >"$3.out" 2>&1
}
train 2 two.csv two || fail "on two nodes: $(cat two.out)"
for nodes in 3 4; do
    train $nodes two.csv of$nodes || fail "two of $nodes nodes: $(cat of$nodes.out)"
    same "two of $nodes nodes, the result" two/adapters.safetensors of$nodes/adapters.safetensors
    holds "who takes part, of $nodes" of$nodes.out 'the schedule has 2 lines: n1 and n[2-4] take part, and n.* only relay'
    holds "the plan of two of $nodes" of$nodes.out 'planned: n1 layers .*, n[2-4] layers [0-9 -]*\([0-9.]* MiB\)$'
done
train 2 bad.csv bad && fail "a schedule that is none"
holds "what is wrong" bad.out 'bad.csv: line 2, column 4: 1B0 is a duplicate of column 3'
train 2 worse.csv worse && fail "a task that is none"
holds "what is no task" worse.out 'worse.csv: line 1, column 3 \(0Q0\): not a task'
train 1 two.csv large && fail "a schedule for more nodes than there are"
holds "too few nodes" large.out 'written for 2 ranks, but there are 1'

# A node without a part may end: the job goes on.
at_end() { kill_ring; }
start_ring
RINGD_SOCKET=$(sock_of 1) "$ringctl" train --model "$model" --data rows.jsonl --schedule two.csv --adapter-out apart --log apart.jsonl \
    --iters 1000000 --batch-size 2 --micro-batch-size 1 --seq-len 64 >apart.out 2>&1 &
job_process=$!
await_line apart.jsonl '"step":3,' 60
apart=$(sed -n 's/.*and \(n[0-9]\) only relays data.*/\1/p' apart.out)
head_log=$(next_line "$(log_of 1)")
stop_node "${apart#n}" KILL
await_line "$(log_of 1)" 'a ring of 2' 20 "$head_log"
step=$(jq -s 'map(select(.loss))[-1].step' apart.jsonl)
await_line apart.jsonl "\"step\":$((step + 5))," 60
on 1 cancel 1 >/dev/null
await_end "$job_process" 20
equal "a job whose nodes are all there" "$(on 1 job 1 --json | jq -r .state)" cancelled
say "a schedule runs on as many nodes as it has lines"
