#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Training on nodes that share each stage (--parallel tp=2): losses, norms and files are those of one node, to the byte, with any
# schedule, and a run goes on with another tp. What cannot be shared is refused in a sentence.
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
# both NAME ARGS...: one node, two that share it, and two stages of two
both() {
    which=$1
    shift
    say "$which"
    shared "$which-1" 1 --iters 3 "$@"
    shared "$which-2" 2 --iters 3 --parallel tp=2 "$@"
    alike "$which-1" "$which-2"
    shared "$which-4" 4 --iters 3 --parallel tp=2,pp=2 "$@"
    alike "$which-1" "$which-4"
}

both lora --dropout 0.1
shared lora-z 4 --iters 3 --dropout 0.1 --parallel tp=2,pp=2 --schedule zb-h1
alike lora-1 lora-z
shared lora-auto 4 --iters 3 --dropout 0.1 --parallel tp=2,pp=2 --schedule auto --micro-batch-size 1
alike lora-1 lora-auto
shared lora-3 3 --iters 3 --dropout 0.1 --parallel tp=3 --schedule gpipe
alike lora-1 lora-3
both again --micro-batch-size 1 --grad-groups 3 --recompute stage --schedule interleaved-1f1b
both all --fine-tune-type full
both bytes --compute int8
both quantized --weights int8 --sample-prompt "Hello" --sample-every 2
both adapters --sweep lr=1e-3,1e-4
both dora --dora --target-modules all-linear --dropout 0.1 --recompute stage
both principal --sweep lora-init=uniform,pissa --rank 4

say 'pairs, and a tied embedding'
for i in 1 2 3 4 5 6 7 8; do
    echo "{\"prompt\": \"What is $i?\", \"chosen\": \" It is a number.\", \"rejected\": \" Nobody knows at all.\"}" >>pairs.jsonl
    echo "{\"input_ids\": [$i, 2, 3, $((i * 5)), 7, 8, 9, $((i * 3)), 4, 5]}" >>ids.jsonl
done
rows=pairs.jsonl
both dpo --loss dpo
both orpo --loss orpo --fine-tune-type full
rows=ids.jsonl model=$cases/llama_tied_bf16/model
both tied --fine-tune-type full --schedule zbv --micro-batch-size 2
model=$cases/qwen3_moe/model
both experts --micro-batch-size 2
both all-experts --fine-tune-type full --micro-batch-size 2 --schedule zb-h1
rows='' model=''

say 'a run in two halves'
for kind in lora full; do
    shared halves-$kind 1 --iters 4 --fine-tune-type $kind
    shared half-$kind 2 --iters 2 --fine-tune-type $kind --parallel tp=2
    shared half-$kind 3 --iters 4 --fine-tune-type $kind --parallel tp=3 --resume
    grep '"loss":' halves-$kind.numbers >whole
    grep '"loss":' half-$kind.numbers >parts
    same "figures of both halves" whole parts
    for file in "halves-$kind"/*.safetensors; do
        same "$file in two halves" "$file" "half-$kind/${file##*/}"
    done
done

say 'a plan that is kept'
limit 60 "$ringctl" local 4 --threads 1 --json plan train --model "$llama" --data "$tables" --adapter-out no --seq-len 64 --batch-size 8 \
    --parallel tp=2,pp=2 --out kept.plan >plan.json 2>said || fail "plan: $(cat said)"
jq -e '.plan | .slices == 2 and .forecast.seconds > 0 and (.forecast.costs | length) == 2 and (.forecast.timed | length) == 4' plan.json >/dev/null ||
    fail "the plan: $(cat plan.json)"
equal "what is kept" "$(jq -r .parallel kept.plan)" tp=2,pp=2
shared kept 4 --iters 3 --dropout 0.1 --plan kept.plan
alike lora-1 kept

say 'a schedule that is found'
shared found 4 --iters 3 --dropout 0.1 --schedule auto --micro-batch-size 1 --parallel tp=2,pp=2
alike lora-1 found

# refused SENTENCE ARGS...
refused() {
    sentence=$1
    shift
    limit 60 "$ringctl" local 2 --threads 1 train --model "$llama" --data "$tables" --adapter-out no --iters 1 "$@" >said 2>&1 && fail "not refused: $*"
    holds "what was said of $*" said "$sentence"
}
refused '--zero 1 divides moments among replicas' --parallel tp=2 --fine-tune-type full --zero 1
refused 'takes 4 nodes \(2 stages, each shared by 2\), and 2 take part' --parallel tp=2,pp=2
