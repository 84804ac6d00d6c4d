#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ringctl simulate: rings that need not exist, without a daemon.
. "$(dirname "$0")/lib/check.sh"
cd "$work" || exit 1
simulate() { limit 60 "$ringctl" simulate "$@" >out 2>err; }

# One ring: (m + p - 1)(F + I + W) and (p - 1)/(m + p - 1), as text, CSV and JSON.
simulate --nodes 4 --layers 8 --microbatches 8 --fwd-ms 500 --link-gbps 1000000 --latency-us 0 || fail "simulate: $(cat err)"
holds "a step" out '^1f1b, 4 nodes, 4 stages, 8 layers, 8 microbatches: a step takes 33 s, bubble 27\.27 %$'
equal "nodes" "$(grep -cE '^ +[0-3] +2 +24 s ' out)" 4
simulate --nodes 4 --layers 8 --microbatches 8 --csv || fail "CSV"
equal "CSV: lines" "$(wc -l <out)" 5
equal "CSV: columns" "$(awk -F, '{ print NF }' out | sort -u)" 11
simulate --nodes 4 --layers 8 --microbatches 8 --schedule zbv --json || fail "JSON"
equal "JSON" "$(jq -c '[.nodes, .stages, (.per_node | length), ([.per_node[].layers] | add)]' out)" '[4,8,4,8]'

# Many: eight to a thousand and twenty-four nodes, and rings beside each other.
simulate --scale-to 1024 --csv || fail "weak scaling"
equal "sizes" "$(cut -d, -f1 out | tr '\n' ' ')" "nodes 8 16 32 64 128 256 512 1024 "
awk -F, 'NR > 2 && $7 >= before { exit 1 } { before = $7 }' out || fail "efficiency grows with the nodes: $(cat out)"
simulate --scale-to 128 --grow replicas --json || fail "replicas"
jq -e '[.sizes[].replicas] == [1, 2, 4, 8, 16] and all(.sizes[]; .microbatches == 32 and .layers == 32) and .sizes[0].reduce_seconds == 0 and
       .sizes[4].reduce_seconds > .sizes[1].reduce_seconds' out >/dev/null || fail "replicas: $(cat out)"
simulate --nodes 8 --scale-to 64 --grow batch || fail "growing batch"
holds "as a table" out '^64 +1 +256 +256 '

# Several adapters leave the pipeline no pause; where an order does not let steps follow each other, they end together.
bubble() { limit 60 "$ringctl" schedule check "$@" --json >out 2>err || fail "schedule check $*: $(cat err)"; }
bubble 1f1b
equal "one adapter" "$(jq '.bubble > 0.27 and .steps == 1' out)" true
bubble 1f1b --adapters 2
equal "two adapters" "$(jq '.bubble < 0.01 and .microbatches == 16 * .steps and .per_rank[0].in_flight == 4' out)" true
bubble gpipe --adapters 2
equal "two adapters, side by side" "$(jq -c '[.steps, .microbatches]' out)" '[1,16]'
limit 60 "$ringctl" schedule check 1f1b --adapters 1 --steps 2 >out 2>err && fail "steps of one adapter without a pause"
holds "steps of one adapter" err 'this order begins a step before its predecessor has ended'

# The same with costs in seconds: what schedule shows of it, a step of any in the mean; a frozen model, and what each adapter holds.
sweep() { simulate --nodes 4 --layers 8 --microbatches 8 --fwd-ms 500 --link-gbps 1000000 --latency-us 0 "$@"; }
sweep --adapters 2 || fail "simulate two adapters: $(cat err)"
holds "a step of two" out '8 microbatches: a step takes 24\.24 s, bubble 0\.98 %$'
holds "a round of two" out 'a round of 19 steps of each of 2 adapters, which takes 921 s$'
equal "in flight, of two" "$(awk '$1 == 0 { print $5 }' out)" 4
sweep --adapters 2 --steps 2 --json || fail "two steps of each"
equal "two steps of each" "$(jq -c '[.adapters, .steps, (.seconds * 4 | round)]' out)" '[2,2,105]'
sweep --adapters 2 --schedule gpipe --json || fail "gpipe of two adapters"
equal "gpipe ends all steps before the next begin" "$(jq -c '[.steps, (.seconds * 2 | round)]' out)" '[1,57]'
memory() { sweep --params 8 --kept 0 --adapter-params 100 --json "$@" && jq '[.per_node[].memory_bytes] | add' out; }
equal "memory of three adapters" "$(memory --adapters 3)" "$(jq -n '8e9 * 2 + 3 * 100e6 * 16')"
equal "memory of a model that is trained" "$(memory)" "$(jq -n '8e9 * 16')"
simulate --adapters 2 --microbatches 8 --scale-to 64 --csv || fail "weak scaling of two adapters"
awk -F, 'NR > 1 && $1 <= 8 && $6 > 0.5 { exit 1 } NR > 2 && $7 >= before { exit 1 } { before = $7 }' out ||
    fail "more nodes than the adapters have microbatches for: $(cat out)"
sweep --adapters 1 --steps 2 && fail "steps of one adapter follow each other"
holds "steps of one" err '2 steps of each adapter cannot follow each other on 4 nodes, only 1 can: leave --steps out'
simulate --steps 2 && fail "steps of no adapter"
holds "steps of no adapter" err 'give --adapters, too'

# Forwards done again: as train --recompute has it, and by itself where a node's memory is short.
sweep --schedule gpipe --recompute stage --csv || fail "simulate --recompute stage"
equal "a forward more on each node" "$(awk -F, 'NR > 1 { print $3, $11 }' out | sort -u)" "32 stage"
sweep --schedule gpipe --recompute layer || fail "simulate --recompute layer"
holds "a forward in each backward" out 'a step takes 44 s, bubble 27\.27 %$'
kept() { sweep --params 0 --schedule gpipe --json "$@" && jq '[.per_node[].memory_bytes] | max' out; }
jq -en "$(kept --recompute none) > 5 * $(kept --recompute stage) and $(kept --recompute none) > 5 * $(kept --recompute layer)" >/dev/null ||
    fail "memory of forwards done again"
sweep --params 0 --memory 2.9 --csv || fail "simulate --memory"
equal "nodes short of memory" "$(awk -F, 'NR > 1 { print $11 }' out | tr '\n' ' ')" "stage stage none none "
sweep --params 0 --memory 2.9 --recompute none || fail "simulate --memory --recompute none"
holds "nodes that need more" out '^2 of 4 nodes need more memory than the 2\.9 GiB of --memory$'
simulate --recompute sometimes && fail "no such way to recompute"
holds "no such way to recompute" err 'none|layer|stage|auto'

# Nodes that share each stage: four nodes are two stages, and do half of each layer's work; what they gather goes over cables that take time.
sweep --tp 2 || fail "simulate --tp: $(cat err)"
holds "nodes that share" out '^1f1b, 4 nodes, 2 stages, 8 layers, 8 microbatches: a step takes 27 s, bubble 11\.11 %$'
holds "what they gather" out '^2 nodes share each stage, in one row below: what they gather takes 0\.00[0-9]* s on the busiest$'
simulate --nodes 2 --tp 2 --layers 2 --microbatches 1 --fwd-ms 2000 --bwd-ms 4000 --dim 1024 --tokens 1024 --link-gbps 0.033554432 --latency-us 250000 \
    --params 0 --gather-fwd 2.5 --gather-bwd 3 --json || fail "simulate --tp over slow cables: $(cat err)"
# A message of 4 MiB takes 1 s. A layer: 1 s each for F, I and W; 4, 7 and 2 gatherings of 0.25 s and half of 2.5, 3 and 0.5 messages; and 7 at the end.
jq -e '.tp == 2 and .nodes == 2 and .stages == 1 and (.seconds - 2 * (3 + 20 * 0.25 + 3) | . < 1e-6 and . > -1e-6) and .per_node[0].gathered_bytes == 2 * 3 * 4194304 and
    (.per_node | length) == 1' out >/dev/null || fail "what nodes that share a stage gather: $(cat out)"
# Each node works out all of an adapter's gradients: 2 s of W, and nothing is gathered for it unless it is said.
shared_adapter() {
    simulate --nodes 2 --tp 2 --layers 2 --microbatches 1 --fwd-ms 2000 --bwd-ms 4000 --dim 1024 --tokens 1024 --link-gbps 0.033554432 --latency-us 250000 \
        --adapters 1 --steps 1 --gather-fwd 2.5 --gather-bwd 3 --json "$@" || fail "simulate --tp --adapters: $(cat err)"
}
shared_adapter
jq -e '.seconds - 2 * (4 + 11 * 0.25 + 2.75) | . < 1e-6 and . > -1e-6' out >/dev/null || fail "an adapter on nodes that share a stage: $(cat out)"
shared_adapter --gather-weights 0.5
jq -e '.seconds - 2 * (4 + 13 * 0.25 + 3) | . < 1e-6 and . > -1e-6' out >/dev/null || fail "outputs gathered for an adapter: $(cat out)"
simulate --nodes 4 --tp 2 --scale-to 16 --csv || fail "simulate --tp --scale-to"
equal "sizes of rings whose stages are shared" "$(cut -d, -f1,3 out | tr '\n' ' ')" "nodes,layers 4,16 8,32 16,64 "
simulate --nodes 4 --tp 3 && fail "stages of unlike numbers of nodes"
holds "stages of unlike numbers of nodes" err '--tp 3 does not divide --nodes 4'

# Serving: as many streams as nodes, each as fast as alone; a cable that is too slow; what a plan has timed, on its ring and on larger ones.
serving() { simulate --serve --row-ms 1:10,64:10 --layers 8 --prompt-tokens 8 --max-tokens 200 "$@"; }
serving --nodes 4 --streams 1,4 --latency-us 0 --link-gbps 1000000 --json || fail "simulate --serve: $(cat err)"
jq -e '[.rows[].streams] == [1, 4] and (.rows[1].of_one | . > 3.9 and . <= 4) and (.rows[0].gap_seconds * 1000 | round) == 80 and
       all(.rows[1].node_busy[]; . > 0.9) and (.rows[1].cable_busy | length) == 4' out >/dev/null || fail "four streams on four nodes: $(cat out)"
cp out once
serving --nodes 4 --streams 1,4 --latency-us 0 --link-gbps 1000000 --json || fail "simulate --serve, again"
cmp -s once out || fail "the same simulation says something else"
serving --nodes 4 --streams 4 --latency-us 0 --link-gbps 0.001 --dim 8192 --json || fail "a slow cable"
jq -e '.rows[0] | .tokens_per_second < 5 and .cable_busy[0] > 0.9 and .node_busy[0] < 0.5' out >/dev/null || fail "a slow cable: $(cat out)"
serving --nodes 1 --scale-to 8 --streams 2,16 --csv || fail "simulate --serve --scale-to"
equal "sizes of rings" "$(cut -d, -f1,2 out | tr '\n' ' ')" "nodes,streams 1,2 1,16 2,2 2,16 4,2 4,16 8,2 8,16 "
limit 120 "$ringctl" local 2 --threads 1 plan serve --model "$llama" --json >plan.json 2>err || fail "plan serve: $(cat err)"
jq -e '.plan.speed | (.rows[0] == 1) and (.row_seconds | length) == 2 and (.hops | length) == 2' plan.json >/dev/null ||
    fail "what rows take: $(jq -c .plan.speed plan.json)"
# Two cables more, which are like those of the plan, cost a single stream time.
simulate --serve --plan plan.json --scale-to 4 --streams 1,4 --json || fail "simulate --plan: $(cat err)"
jq -e '[.rows[].nodes] == [2, 2, 4, 4] and all(.rows[]; .tokens_per_second > 0 and .last_first_token_seconds >= .first_token_seconds) and
    .rows[2].tokens_per_second < .rows[0].tokens_per_second' out \
    >/dev/null || fail "rings like that of the plan: $(cat out)"
jq '.plan.speed.row_seconds[1] = []' plan.json >broken.json
simulate --serve --plan broken.json && fail "a plan without the times of a node"
holds "a broken plan" err 'broken\.json: the costs of this plan cannot be'
simulate --serve && fail "no costs"
holds "no costs" err '--serve needs what rows take: --plan FILE'
simulate --streams 4 && fail "streams of a training step"
holds "streams of a training step" err '--streams is about serving: give --serve, too'
# 80 ms for a layer's row on one node, 40 on two, which gather 32 times a token and once its scores: 33 ms.
serving --nodes 2 --tp 2 --streams 1 --latency-us 1000 --link-gbps 1000000 --json || fail "simulate --serve --tp: $(cat err)"
jq -e '.rows[0] | .nodes == 2 and .tp == 2 and (.node_busy | length) == 1 and (.gap_seconds * 1000 | . > 72.999 and . < 73.1)' out >/dev/null ||
    fail "a stage that two nodes share: $(cat out)"
serving --nodes 3 --tp 2 --streams 1 && fail "three nodes share stages of two"
holds "three nodes share stages of two" err '--tp 2 does not divide 3 nodes'
serving --streams 4,x && fail "streams that are no numbers"
holds "streams" err 'a list like 1,4,16'
serving --schedule gpipe && fail "a schedule of serving"
holds "a schedule of serving" err '--schedule is about training'

# What cannot be.
simulate --schedule zbv --chunks 3 && fail "three chunks of zbv"
holds "chunks" err 'zbv has 2 stages on each rank, not 3'
simulate --fwd-ms 1 --bwd-ms 2 --weights-ms 3 && fail "more W than backward"
holds "W" err 'weights-ms is a part of --bwd-ms'
simulate --scale-to 4 && fail "less than there is"
holds "less" err 'below the 8 nodes'
simulate --nodes 1025 && fail "too many nodes"
simulate --scale-to 1024 --layers 4096 && fail "too many layers"
holds "too many layers" err '^ringctl: 16 nodes: '
