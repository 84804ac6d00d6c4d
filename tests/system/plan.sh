#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Plans that look ahead: what a step should take, --schedule auto, a plan kept in a file, changed by hand and run, and what is refused.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
export XDG_CACHE_HOME="$work/cache"
unset CACHE_DIRECTORY
start_ring
cd "$work" || exit 1
set -- --model "$llama" --data "$tables" --adapter-out out --seq-len 64 --batch-size 8

# Pairs are first shown to the model without adapter, forward alone.
for i in 1 2 3 4 5 6 7 8; do echo "{\"prompt\": \"What is $i?\", \"chosen\": \" It is a number.\", \"rejected\": \" Nobody knows at all.\"}"; done >pairs.jsonl
on 1 plan train --model "$llama" --data pairs.jsonl --loss dpo --adapter-out out --batch-size 8 --schedule auto >pairs.txt 2>&1 || fail "plan: $(cat pairs.txt)"
holds "the reference" pairs.txt 'before a step whose pairs come for the first time, the model without adapter takes some [0-9.e-]+ s'
on 1 --json plan train --model "$llama" --data pairs.jsonl --loss dpo --adapter-out out --batch-size 8 --schedule auto | jq -e '.plan.forecast |
    .reference_seconds > 0 and .reference_seconds < .seconds' >/dev/null || fail "a forward takes longer than a step"
on 1 --json plan train --model "$llama" --data pairs.jsonl --loss dpo --adapter-out out --batch-size 8 --micro-batch-size 1 --parallel dp=2,pp=1 \
    >pairs.json 2>&1 || fail "plan: $(cat pairs.json)"
jq -e '.plan.forecast | .reference_seconds > 4 * .costs[0][0] / 2' pairs.json >/dev/null ||
    fail "half a forward with its loss, for the 4 pairs of a replica: $(jq -c .plan.forecast pairs.json)"
on 1 --json plan train --model "$llama" --data pairs.jsonl --loss dpo --adapter-out out --batch-size 8 --micro-batch-size 1 --parallel pp=1+2 \
    --recompute stage >pairs.json 2>&1 || fail "plan: $(cat pairs.json)"
jq -e '.plan.forecast | .reference_seconds > 0 and any(.rank_costs[]; .[3] > 0)' pairs.json >/dev/null ||
    fail "what unlike replicas foresee: $(jq -c .plan.forecast pairs.json)"

# A plan as it was asked for says what its step takes; the one that was searched for says what comes next.
on 1 --json plan train "$@" >given.json 2>given.err || fail "plan: $(cat given.err)"
jq -e '.plan.forecast | .seconds > 0 and .bubble > 0 and (.costs | length) == 3 and (has("second") | not)' given.json >/dev/null ||
    fail "the forecast: $(jq -c .plan.forecast given.json)"
on 1 --json plan train "$@" --schedule auto --out kept.plan >auto.json 2>auto.err || fail "plan: $(cat auto.err)"
jq -e '.plan.forecast.second.seconds > 0 and .plan.schedule == .plan.forecast.schedule and
    ([.plan.split[] | range(0; length; 2) as $i | .[$i + 1] - .[$i]] | add) == 5' auto.json >/dev/null || fail "auto: $(cat auto.json)"
[ "$(find "$work/cache" -name '*.json' | wc -l)" -ge 3 ] || fail "nothing that was timed is kept"
equal "every node was timed" "$(jq -c .plan.forecast.timed auto.json)" "[true,true,true]"
on 1 plan train "$@" --schedule auto >auto.txt 2>&1 || fail "plan: $(cat auto.txt)"
holds "the table" auto.txt 'RANK +NODE +LAYERS .* F +I +W +R +BUBBLE'
holds "the forecast" auto.txt 'a step should take [0-9.e-]+ s'
holds "the runner-up" auto.txt 'next best: '
holds "the chart" auto.txt '^r2 '
on 1 --json plan train "$@" --schedule auto --objective memory >small.json 2>small.err || fail "plan: $(cat small.err)"
[ "$(jq '.plan.bytes | max' small.json)" -le "$(jq '.plan.bytes | max' auto.json)" ] || fail "--objective memory takes more: $(cat small.json)"

# Of several adapters it is their round that is looked for, and all of them that there is to be memory for; a file of it says the same again.
on 1 --json plan train "$@" --sweep lr=1e-4,3e-4,1e-3 --schedule auto --out sweep.plan >sweep.json 2>sweep.err || fail "plan: $(cat sweep.err)"
jq -e '.plan | .round_steps == .forecast.steps and .forecast.steps % 3 == 0 and .schedule == .forecast.schedule and .forecast.second.seconds > 0 and
    .forecast.microbatches == .forecast.steps * 8 / .forecast.micro_batch_size' sweep.json >/dev/null || fail "auto, of three: $(jq -c .plan sweep.json)"
on 1 --json plan train "$@" --sweep lr=1e-4,3e-4,1e-3 --plan sweep.plan >again.json 2>again.err || fail "plan: $(cat again.err)"
equal "the steps of a plan that was kept" "$(jq .plan.round_steps again.json)" "$(jq .plan.round_steps sweep.json)"
equal "its memory" "$(jq -c .plan.bytes again.json)" "$(jq -c .plan.bytes sweep.json)"
on 1 --json plan train "$@" --plan sweep.plan >again.json 2>again.err || fail "plan: $(cat again.err)"
jq -e --slurpfile of sweep.json '[.plan.bytes, $of[0].plan.bytes] | transpose | all(.[0] <= .[1]) and any(.[0] < .[1])' again.json >/dev/null || fail "three take no more than one: $(cat sweep.json)"
on 1 plan train "$@" --sweep lr=1e-4,3e-4,1e-3 --schedule auto >sweep.txt 2>&1 || fail "plan: $(cat sweep.txt)"
holds "the forecast of a round" sweep.txt '^[0-9]+ steps, of all adapters together, should take [0-9.e-]+ s'

# Kept, run, and held against what was foreseen; and changed by hand.
on 1 train "$@" --plan kept.plan --iters 3 >run.out 2>run.err || fail "train --plan: $(cat run.err)"
equal "the split that was run" "$(on 1 job 1 --json | jq -c .plan.split)" "$(jq -c .plan.split auto.json)"
on 1 train "$@" --schedule auto --iters 3 >run.out 2>run.err || fail "train --schedule auto: $(cat run.err)"
on 1 job 2 >job.txt || fail "job: $(cat job.txt)"
holds "foreseen and measured" job.txt 'step [0-9]+ took [0-9.e-]+ s, [+-][0-9]+ % of the [0-9.e-]+ s foreseen'
jq '.schedule = "1f1b" | .chunks = 1 | .split = [3, 0, 2]' kept.plan >mine.plan
on 1 train "$@" --plan mine.plan --iters 1 >run.out 2>run.err || fail "a plan of one's own: $(cat run.err)"
equal "its split" "$(on 1 job 3 --json | jq -c .plan.first)" "[0,3,3,5]"

on 1 train "$@" --plan kept.plan --iters 3 >run.out 2>run.err || fail "train --plan: $(cat run.err)"
on 1 job 4 >job.txt || fail "job: $(cat job.txt)"
holds "foreseen and measured, of a plan from a file" job.txt 'step [0-9]+ took [0-9.e-]+ s, [+-][0-9]+ % of the [0-9.e-]+ s foreseen'

# The other way round the ring: the nodes of a plan say so, and the result is the same.
jq '.nodes = [.nodes[0], .nodes[2], .nodes[1]]' mine.plan >round.plan
on 1 train "$@" --plan mine.plan --iters 2 --log here.log >run.out 2>run.err || fail "train --plan: $(cat run.err)"
on 1 train "$@" --plan round.plan --iters 2 --log round.log >run.out 2>run.err || fail "the other way round: $(cat run.err)"
equal "its nodes" "$(on 1 job 6 --json | jq -c .plan.nodes)" "$(jq -c .nodes round.plan)"
equal "its losses" "$(jq .loss round.log)" "$(jq .loss here.log)"
on 1 --json plan train "$@" --plan round.plan >round.json 2>round.err || fail "plan: $(cat round.err)"
equal "planned again" "$(jq -c .plan.nodes round.json)" "$(jq -c .nodes round.plan)"

refused() { # WHAT PATTERN OPTIONS...
    what=$1 pattern=$2
    shift 2
    on 1 train "$@" --iters 1 >refused.out 2>refused.err && fail "$what was taken"
    holds "$what" refused.err "$pattern"
}
jq '.split = [3, 1, 2]' mine.plan >wrong.plan
refused "too many layers" 'the model has 5 in all' "$@" --plan wrong.plan
jq '.nodes = ["n1", "n9", "n8"]' mine.plan >wrong.plan
refused "other nodes" 'plan again' "$@" --plan wrong.plan
jq 'del(.split)' mine.plan >wrong.plan
refused "a file without a split" 'has no "split"' "$@" --plan wrong.plan
refused "a plan and a schedule" 'give one' "$@" --plan mine.plan --schedule gpipe
refused "an objective of nobody" 'schedule auto' "$@" --objective memory
refused "a plan to be written by a job" 'ringctl plan train' "$@" --out x.plan
no_stages 1 2 3

# Replicas and nodes are looked for, too: the best three are shown, and what is run has the losses of one pipeline.
on 1 plan train "$@" --parallel auto --micro-batch-size 1 --out any.plan >any.txt 2>&1 || fail "plan: $(cat any.txt)"
holds "the plans that were found" any.txt '^  ([dt]p=[1-8],)*pp=[1-8+]+ +n1'
holds "which was chosen" any.txt '^([dt]p=[1-8],)*pp=[1-8+]+ was chosen: '
holds "why not the others" any.txt '^([dt]p=[1-8],)*pp=[1-8+]+ on [a-z0-9-]+ would take [+-][0-9.]+ %: '
on 1 train "$@" --parallel auto --micro-batch-size 1 --iters 2 --log any.log >run.out 2>run.err || fail "train --parallel auto: $(cat run.err)"
on 1 train "$@" --plan any.plan --iters 2 --log kept.log >run.out 2>run.err || fail "train --plan: $(cat run.err)"
on 1 train "$@" --iters 2 --log plain.log >run.out 2>run.err || fail "train: $(cat run.err)"
equal "the losses of --parallel auto" "$(jq .loss any.log)" "$(jq .loss plain.log)"
equal "the losses of its plan" "$(jq .loss kept.log)" "$(jq .loss plain.log)"

# Where layers take long and there is one microbatch, nodes share each stage. So what was timed of layers is made long here, and what was timed of
# their slices, if this machine was slow enough for that, is forgotten: whatever the clock said, the choice is the same.
on 1 plan train "$@" --batch-size 1 --parallel auto >one.txt 2>&1 || fail "plan: $(cat one.txt)"
find "$work/cache" -name '*.json' -exec grep -q '"slices"' {} \; -delete
find "$work/cache" -name '*.json' -exec sed -i -E 's/^ "([fir])": [0-9].*[0-9]/ "\1": 9.5/' {} +
on 1 --json plan train "$@" --batch-size 1 --parallel auto --out one.plan >one.json 2>one.err || fail "plan: $(cat one.err)"
jq -e '.plan | .slices > 1 and (.forecast.choices[0] | (.parallel | startswith("tp=")) and .gather_seconds > 0 and
    (.seconds - .work_seconds - .bubble_seconds - .cable_seconds - .gather_seconds - .sum_seconds - .update_seconds | . < 1e-6 and . > -1e-6))' one.json >/dev/null ||
    fail "nodes that share a stage: $(jq -c .plan one.json)"
holds "the file" one.plan '"parallel": *"tp='
on 1 train "$@" --batch-size 1 --parallel auto --iters 2 --log one.log >run.out 2>run.err || fail "train --parallel auto: $(cat run.err)"
equal "nodes that share, in the job" "$(on 1 job "$(on 1 jobs --json | jq '[.jobs[].id] | max')" --json | jq '.plan.slices > 1')" true
on 1 train "$@" --batch-size 1 --iters 2 --log single.log >run.out 2>run.err || fail "train: $(cat run.err)"
equal "the losses of nodes that share a stage" "$(jq .loss one.log)" "$(jq .loss single.log)"

# A replica of one node and one of two: order and splits are looked for, written down, and run.
on 1 plan train "$@" --parallel pp=1+2 --schedule auto --micro-batch-size 1 --out unlike.plan >unlike.txt 2>&1 || fail "plan: $(cat unlike.txt)"
holds "the replicas" unlike.txt '^2 replicas \(pp=1\+2\), which take [0-9]+ and [0-9]+ of [0-9]+ groups'
holds "what a step takes" unlike.txt '^a step should take [0-9.e-]+ s'
equal "the plan's replicas" "$(jq -r .parallel unlike.plan)" "pp=1+2"
equal "the layers of its nodes" "$(jq -c '[.split[0], .split[1] + .split[2]]' unlike.plan)" "[5,5]"
on 1 train "$@" --plan unlike.plan --iters 2 --log unlike.log >run.out 2>run.err || fail "train --plan: $(cat run.err)"
equal "the losses of unlike replicas" "$(jq .loss unlike.log)" "$(jq .loss plain.log)"
on 1 --json plan train "$@" --plan unlike.plan >unlike.json 2>unlike.err || fail "plan: $(cat unlike.err)"
equal "planned again" "$(jq -c '[.plan.split[0][-1], .plan.split[2][-1], .plan.split[1][-1] - .plan.split[1][0]]' unlike.json)" \
    "$(jq -c '[.split[0], .split[1], .split[2]]' unlike.plan)"
on 1 --json plan train "$@" --parallel pp=1+2 --fine-tune-type full --zero 1 >zero.json 2>zero.err || fail "plan: $(cat zero.err)"
jq -e '.plan.forecast.spared_bytes | length == 3 and all(. > 0)' zero.json >/dev/null || fail "what is spared: $(jq -c .plan.forecast zero.json)"
refused "two stages on a node" 'have one stage on each node: take --schedule 1f1b' "$@" --parallel pp=1+2 --schedule zbv
refused "more nodes than there are" 'pp=2\+3 takes 5 nodes, and 3 take part: add nodes' "$@" --parallel pp=2+3
no_stages 1 2 3

# A generation and a scoring: the prompt, a token, the caches, the rows.
on 1 --json plan generate --model "$llama" --max-tokens 40 "Once upon a time" >speed.json 2>speed.err || fail "plan generate: $(cat speed.err)"
jq -e '.plan | (.speed | .prompt_seconds > 0 and .token_seconds > 0 and (.tokens_per_second * .token_seconds | . > 0.99 and . < 1.01)
    and (.costs | length) == 3 and (.kv | add) > 0 and .timed == [true, true, true]) and ((.speed.kv | max) < (.bytes | min)) and (has("forecast") | not)' speed.json >/dev/null ||
    fail "the speed of a generation: $(jq -c .plan.speed speed.json)"
on 1 plan generate --model "$llama" --max-tokens 40 "Once upon a time" >speed.txt 2>&1 || fail "plan generate: $(cat speed.txt)"
holds "the table" speed.txt 'SLOTS +CACHE +PROMPT +TOKEN'
holds "the speed" speed.txt 'the prompt of [0-9]+ tokens should take [0-9.e-]+ s, every token after it [0-9.e-]+ ms: [0-9.e+]+ tokens/s'
on 1 plan score --model "$llama" --data "$tables" >speed.txt 2>&1 || fail "plan score: $(cat speed.txt)"
holds "a scoring" speed.txt '[0-9]+ rows of some [0-9]+ tokens should take [0-9.e-]+ s: [0-9.e+]+ tokens/s'

last() { on 1 jobs --json | jq '[.jobs[].id] | max'; }
# Of a generation the nodes are looked for, too: those whose answer is there first by what was measured, whichever that are. It gives the same
# tokens.
on 1 plan generate --model "$llama" --parallel auto --max-tokens 20 "Once upon a time" >answer.txt 2>&1 || fail "plan generate: $(cat answer.txt)"
holds "the layouts of an answer" answer.txt '^  tp=[12],pp=[12] +n1, n[23] +[0-9.e-]+ s +[0-9.e-]+ ms +[0-9.e-]+ s'
on 1 --json plan generate --model "$llama" --parallel auto --max-tokens 20 "Once upon a time" >answer.json 2>answer.err || fail "plan: $(cat answer.err)"
jq -e '.plan | .nodes == .speed.choices[0].nodes and (.speed.choices | length == 3 and .[0].seconds <= .[1].seconds and .[1].seconds <= .[2].seconds)' \
    answer.json >/dev/null || fail "the layouts of an answer: $(jq -c '.plan | .nodes, .speed' answer.json)"
on 1 --json generate --model "$llama" --parallel auto --max-tokens 20 "Once upon a time" >auto.out 2>run.err || fail "generate: $(cat run.err)"
on 1 --json generate --model "$llama" --max-tokens 20 "Once upon a time" >plain.out 2>run.err || fail "generate: $(cat run.err)"
equal "its tokens" "$(jq -c .ids auto.out)" "$(jq -c .ids plain.out)"
on 1 job "$(($(last) - 1))" >job.txt || fail "job: $(cat job.txt)"
holds "its tokens, against what was foreseen" job.txt '^a token after it took [0-9.e+-]+ ms, [+-][0-9]+ % of the [0-9.e+-]+ ms foreseen$'
[ "$(jq '.ids | length' auto.out)" -gt 0 ] || fail "no tokens: $(cat auto.out)"

# A generation and a scoring that are to be foreseen are held against what came of it.
on 1 generate --model "$llama" --max-tokens 20 --forecast "Once upon a time" >run.out 2>run.err || fail "generate --forecast: $(cat run.err)"
on 1 job "$(last)" >job.txt || fail "job: $(cat job.txt)"
holds "the prompt" job.txt '^the prompt took [0-9.e+-]+ s, [+-][0-9]+ % of the [0-9.e+-]+ s foreseen$'
holds "a token" job.txt '^a token after it took [0-9.e+-]+ ms, [+-][0-9]+ % of the [0-9.e+-]+ ms foreseen$'
head -n 40 "$tables/valid.jsonl" >rows.jsonl
on 1 score --model "$llama" --data rows.jsonl --forecast >run.out 2>run.err || fail "score --forecast: $(cat run.err)"
on 1 job "$(last)" >job.txt || fail "job: $(cat job.txt)"
holds "the rows" job.txt '^the rows took [0-9.e+-]+ s, [+-][0-9]+ % of the [0-9.e+-]+ s foreseen$'
on 1 generate --model "$llama" --max-tokens 20 "Once upon a time" >run.out 2>run.err || fail "generate: $(cat run.err)"
on 1 job "$(last)" >job.txt || fail "job: $(cat job.txt)"
! grep -q foreseen job.txt || fail "nobody asked: $(cat job.txt)"

# A job must not be disturbed: what was not timed before stays unknown while it runs, what was is known.
long_job 1 long
on 1 --json plan train --model "$llama" --data "$tables" --adapter-out out2 --seq-len 48 --batch-size 8 >busy.json 2>busy.err || fail "plan: $(cat busy.err)"
jq -e '(.plan | has("forecast") | not) and (.lines | any(test("while a job runs")))' busy.json >/dev/null || fail "timed beside a job: $(cat busy.json)"
on 1 --json plan train "$@" --schedule auto >busy.json 2>busy.err || fail "plan: $(cat busy.err)"
equal "what was kept of every node" "$(jq -c .plan.forecast.timed busy.json)" "[true,true,true]"
on 1 cancel "$(on 1 jobs --json | jq '[.jobs[] | select(.state == "running")][0].id')" >/dev/null || fail "the job cannot be cancelled"
await_end "$job_process" 30

# A config alone is enough for a plan, which is that of the whole folder, and for no job.
mkdir bare
cp "$data/cases/qwen3_next/model/config.json" bare
echo '{"input_ids": [1, 2, 3, 4, 5, 6, 7, 8]}' >ids.jsonl
for what in "train --data ids.jsonl --adapter-out out" "serve --name bare"; do
    # shellcheck disable=SC2086
    on 1 --json plan $what --model "$work/bare" >bare.json 2>bare.err || fail "plan $what of a config: $(cat bare.err)"
    # shellcheck disable=SC2086
    on 1 --json plan $what --model "$data/cases/qwen3_next/model" >whole.json 2>whole.err || fail "plan $what: $(cat whole.err)"
    equal "the memory of a config's plan" "$(jq -c '.plan | [.first, .bytes]' bare.json)" "$(jq -c '.plan | [.first, .bytes]' whole.json)"
    jq -e '.plan.forecast == null' bare.json >/dev/null || fail "what was not timed is foreseen: $(cat bare.json)"
done
on 1 plan serve --name bare --model "$work/bare" >bare.txt 2>&1 || fail "plan serve: $(cat bare.txt)"
holds "where sizes are from" bare.txt 'has a config and no weights: sizes are computed from the config'
! on 1 train --model "$work/bare" --data ids.jsonl --adapter-out out >bare.txt 2>&1 || fail "a config was trained"
holds "what a job lacks" bare.txt 'has neither model.safetensors nor model.safetensors.index.json'

# A node that cannot time anything is taken to be as fast as its threads say.
stop_node 3
from=$(next_line "$(log_of 1)")
node_options="--stage-binary /bin/false"
start_node 3
node_options=
await_ring 1 "$from"
on 1 --json plan train "$@" --schedule auto >blind.json 2>blind.err || fail "plan: $(cat blind.err)"
jq -e '(.plan.forecast.timed | map(select(.)) | length) == 2 and (.lines | any(test("n3 was not timed, for its stage process")))' blind.json >/dev/null ||
    fail "a node that cannot: $(cat blind.json)"
