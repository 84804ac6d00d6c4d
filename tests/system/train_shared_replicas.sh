#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Replicas whose stages several nodes share (--parallel dp=2,tp=2): losses, norms and files are those of one node, to the byte, with
# pipelines beside, with moments that replicas divide, and a run goes on with other numbers. What does not go together is refused.
. "$(dirname "$0")/lib/check.sh"
cd "$work" || exit 1

# shared NAME NODES ARGS...: into NAME, what does not depend on the clock in NAME.numbers
shared() {
    name=$1 nodes=$2
    shift 2
    limit 60 "$ringctl" local "$nodes" --threads 1 train --model "${model:-$llama}" --data "${rows:-$tables}" --valid "${rows:-$tables}" \
        --adapter-out "$name" --seq-len 64 --batch-size 8 --eval-every 2 --seed 3 --log "$name.log" "$@" >"$name.said" 2>&1 || fail "$name: $(cat "$name.said")"
    jq -c 'del(.adapter, .step_seconds, .tokens_per_second, .bubble)' "$name.log" >"$name.numbers"
}
# alike A B: all files of tensors, moments too, and all figures
alike() {
    (cd "$1" && find . -name '*.safetensors' | sort) >files
    [ -s files ] || fail "$1 has no tensors"
    while read -r file; do
        same "$file of $2" "$1/$file" "$2/$file"
    done <files
    same "the figures of $2" "$1.numbers" "$2.numbers"
}
# as NAME NODES PARALLEL ARGS...: like NAME, which one node made
as() {
    whole=$1 nodes=$2 parallel=$3
    shift 3
    say "$whole, $parallel"
    shared "$whole-$parallel" "$nodes" --iters 3 --parallel "$parallel" "$@"
    alike "$whole" "$whole-$parallel"
}

shared lora 1 --iters 3 --dropout 0.1
as lora 4 dp=2,tp=2 --dropout 0.1
as lora 8 dp=2,tp=2,pp=2 --dropout 0.1 --schedule zb-h1
shared dora 1 --iters 3 --dora
as dora 4 dp=2,tp=2 --dora
shared all 1 --iters 3 --fine-tune-type full --micro-batch-size 1 --grad-groups 3
as all 6 dp=3,tp=2 --fine-tune-type full --micro-batch-size 1 --grad-groups 3 --recompute stage
as all 8 tp=2,pp=2,dp=2 --fine-tune-type full --micro-batch-size 1 --grad-groups 3 --schedule zbv --zero 1
shared adapters 1 --iters 3 --sweep lr=1e-3,1e-4 --weights int8 --sample-prompt Hello --sample-every 2
as adapters 4 dp=2,tp=2 --sweep lr=1e-3,1e-4 --weights int8 --sample-prompt Hello --sample-every 2

say 'a tied embedding'
for i in 1 2 3 4 5 6 7 8; do
    echo "{\"input_ids\": [$i, 2, 3, $((i * 5)), 7, 8, 9, $((i * 3)), 4, 5]}" >>ids.jsonl
done
rows=ids.jsonl model=$cases/llama_tied_bf16/model
shared tied 1 --iters 3 --fine-tune-type full --micro-batch-size 2
as tied 8 dp=2,tp=2,pp=2 --fine-tune-type full --micro-batch-size 2 --zero 1
rows='' model=''

say 'a run in three parts'
shared parts 4 --iters 1 --fine-tune-type full --micro-batch-size 1 --grad-groups 3 --parallel dp=2,tp=2
shared parts 3 --iters 2 --fine-tune-type full --micro-batch-size 1 --grad-groups 3 --parallel tp=3 --resume
shared parts 4 --iters 3 --fine-tune-type full --micro-batch-size 1 --grad-groups 3 --parallel dp=2,tp=2 --zero 1 --resume
for file in all/*.safetensors; do
    same "$file in three parts" "$file" "parts/${file##*/}"
done

say 'a plan that is kept'
limit 60 "$ringctl" local 4 --threads 1 --json plan train --model "$llama" --data "$tables" --adapter-out no --seq-len 64 --batch-size 8 \
    --parallel dp=2,tp=2 --out kept.plan >plan.json 2>said || fail "plan: $(cat said)"
jq -e '.plan | .slices == 2 and (.shares | length) == 2 and .forecast.seconds > 0 and .forecast.exchange_seconds > 0 and
    (.forecast.costs | length) == 1 and (.forecast.timed | length) == 4' plan.json >/dev/null || fail "the plan: $(cat plan.json)"
equal "what is kept" "$(jq -r .parallel kept.plan)" dp=2,tp=2,pp=1

# refused SENTENCE ARGS...
refused() {
    sentence=$1
    shift
    limit 60 "$ringctl" local 2 --threads 1 train --model "$llama" --data "$tables" --adapter-out no --iters 1 "$@" >said 2>&1 && fail "not refused: $*"
    holds "what was said of $*" said "$sentence"
}
refused 'unlike numbers of nodes .pp=P.Q. do not go together with tp=T' --parallel tp=2,pp=1+2
refused 'dp times tp is at most 8' --parallel tp=3,dp=3
refused 'takes 4 nodes \(2 replicas of 1 stage, each shared by 2\), and 2 take part' --parallel tp=2,dp=2
