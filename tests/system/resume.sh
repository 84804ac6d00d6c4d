#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What was saved goes on as if nothing had happened: resumed runs, adapters to begin with, adapters made elsewhere.
. "$(dirname "$0")/lib/check.sh"
# Short rows: nothing is cut off them, neither in training nor in scoring.
head -n 4 "$tables/valid.jsonl" | jq -c "{text: .text[0:50]}" >"$work/valid.jsonl"

cat >"$work/script" <<'END'
run() {
    name=$1
    shift
    timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" --json "$@" >"$work/$name.out" 2>"$work/$name.err" || { cat "$work/$name.err"; exit 1; }
}
train() {
    name=$1
    shift
    run "$name" train --model "$llama" --data "$tables" --seq-len 96 --batch-size 4 --seed 3 --dropout 0.05 \
        --lr 2e-3 --lr-schedule constant --weight-decay 0.02 --max-grad-norm 1 --adapter-out "$work/$name.adapter" \
        --log "$work/$name.log" "$@"
}
lora="--rank 4 --alpha 8 --target-modules q_proj,v_proj,down_proj"
train straight $lora --iters 6 --valid "$work/valid.jsonl"
train halves $lora --iters 3
train halves --iters 6 --resume
# A search chooses how the ring works, and leaves the rows of a microbatch as they were.
train straight2 $lora --iters 4 --micro-batch-size 1
train searched $lora --iters 2 --micro-batch-size 1
train searched --iters 4 --resume --parallel auto
train saving $lora --iters 6 --save-every 2
train sampling $lora --iters 6 --sample-prompt "Once upon a time" --sample-every 4 --sample-tokens 12
run folded train --model "$llama" --data "$tables" --seq-len 16 --iters 1 --batch-size 1 --schedule zbv --micro-batch-size 1 \
    --adapter-out "$work/folded.adapter" --sample-prompt "$(seq -s ' ' 30)" --sample-tokens 4
run written generate --model "$llama" --adapter "$work/sampling.adapter" --max-tokens 12 "Once upon a time"
run folded-written generate --model "$llama" --adapter "$work/folded.adapter" --max-tokens 4 "$(seq -s ' ' 30)"
"$ringctl" --json jobs | jq -r '.jobs[] | select(.type == "train") | .id' | while read -r id; do "$ringctl" --json job "$id"; done |
    jq -sc 'map(select(.samples)) | map({(.spec.adapter_out | split("/") | last): .samples}) | add' >"$work/samples"
# The finished adapter is what a new run begins with: its first evaluation is the other's last.
train onward --init-adapter "$work/straight.adapter" --iters 1 --valid "$work/valid.jsonl"
train onward --init-adapter "$work/straight.adapter" --iters 1 --valid "$work/valid.jsonl" # which replaces that
# An adapter loads for scoring, and changes what is scored.
run plain score --model "$llama" --data "$work/valid.jsonl"
run tuned score --model "$llama" --data "$work/valid.jsonl" --adapter "$work/straight.adapter"
# Full fine-tuning goes on too, moments included.
train full6 --fine-tune-type full --iters 4
train full --fine-tune-type full --iters 2
train full --fine-tune-type full --iters 4 --resume
# One that was made elsewhere: the loss of every microbatch of the case, its prompt masked.
i=0
for i in 0 1 2 3; do
    jq -c ".microbatches[$i] | {input_ids: .ids, labels: (.prompt_len as \$p | .ids | to_entries | map(if .key < \$p then -100 else .value end))}" \
        "$cases/llama_gqa_rope3/expected.json" >"$work/mb$i.jsonl"
    run "foreign$i" score --model "$cases/llama_gqa_rope3/model" --adapter "$cases/llama_gqa_rope3/adapter_attn_init" \
        --data "$work/mb$i.jsonl"
done
END

export ringctl work llama tables cases
for nodes in 1 3; do
    rm -rf "$work"/*.adapter "$work"/*.log
    limit 90 "$ringctl" local $nodes --threads 1 -- exec sh "$work/script" || fail "$nodes nodes"
    holds "a run that is replaced" "$work/onward.err" 'will replace the run in .*onward.adapter: --resume would continue it'
    for name in straight halves saving sampling full full6 straight2 searched; do
        numbers "$work/$name.log" | jq -c 'select(.loss)' >"$work/$name.steps"
    done
    equal "steps of six" "$(wc -l <"$work/straight.steps")" 6
    same "three steps and three more" "$work/straight.steps" "$work/halves.steps"
    same "a search in between" "$work/straight2.steps" "$work/searched.steps"
    holds "rows of a microbatch" "$work/searched.err" 'goes on with 1 row in a microbatch, as it began'
    same "saving on the way" "$work/straight.steps" "$work/saving.steps"
    equal "steps of four" "$(wc -l <"$work/full6.steps")" 4
    same "two full steps and two more" "$work/full6.steps" "$work/full.steps"
    # A sample is what the adapter writes that was saved at that step; training does not notice that it was taken.
    same "sampling on the way" "$work/straight.steps" "$work/sampling.steps"
    equal "steps of samples" "$(jq -c '[.["sampling.adapter"][].step]' "$work/samples")" '[4,6]'
    for name in sampling folded; do
        written=$work/written.out
        [ $name = sampling ] || written=$work/folded-written.out
        equal "sample of $name" "$(jq -c --arg n "$name.adapter" '.[$n][-1].sample' "$work/samples")" "$(jq -c .text "$written")"
    done
    for name in halves saving sampling; do
        same "result of $name" "$work/straight.adapter/adapter_model.safetensors" "$work/$name.adapter/adapter_model.safetensors"
    done
    same "result of full fine-tuning" "$work/full6.adapter/model.safetensors" "$work/full.adapter/model.safetensors"
    last=$(jq -s 'map(.valid_loss // empty)[-1]' "$work/straight.log")
    equal "loss after loading" "$(jq -s 'map(.valid_loss // empty)[0]' "$work/onward.log")" "$last"
    near "perplexity after loading" "$(jq '.perplexity | log' "$work/tuned.out")" "$last" 1e-12
    equal "the adapter helps" "$(jq -n "$(jq .perplexity "$work/tuned.out") < $(jq .perplexity "$work/plain.out")")" true
    for i in 0 1 2 3; do
        want=$(jq -c ".lora.attn.per_microbatch_sum_nll_and_tokens[$i]" "$cases/llama_gqa_rope3/expected.json")
        equal "supervised tokens of microbatch $i" "$(jq .supervised_tokens "$work/foreign$i.out")" "$(echo "$want" | jq '.[1]')"
        near "loss of microbatch $i" "$(jq '-.total' "$work/foreign$i.out")" "$(echo "$want" | jq '.[0]')" 1e-3
    done
    say "$nodes nodes"
done
