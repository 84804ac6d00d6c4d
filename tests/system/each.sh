#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What every family can do, asked of the programs: LoRA and full training with the same bits on one node and in zero-bubble and interleaved
# schedules on two, LoRA on 4 bits, and texts in 8 bits of the model and with its adapter, by jobs and where it is served, from the adapter in
# mlx-lm's form too. Of each family the golden case, or random weights for a config of tests/data/families. What a family cannot is refused by
# name. What is computed of a merged model, a converted one and both forms of an adapter, tests/golden/test_each_family.c compares.
. "$(dirname "$0")/lib/check.sh"
cd "$work" || exit 1
XDG_CACHE_HOME=$work/cache
unset CACHE_DIRECTORY
mkdir models out

# As many tokens as the model has, each with a text of its own, so that a text says which tokens it is.
with_tokens() {
    n=$(jq .vocab_size "models/$1/config.json")
    jq -nc --argjson n "$n" '{version: "1.0", added_tokens: [], model: {type: "BPE", merges: [], vocab: [range($n) | {key: "<\(.)>", value: .}] | from_entries}}' \
        >"models/$1/tokenizer.json"
    echo '{"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}' >"models/$1/tokenizer_config.json"
}
for folder in "$cases"/*; do
    name=${folder##*/}
    mkdir "models/$name"
    ln -s "$folder"/model/* "models/$name/"
    rm -f "models/$name/config.v5.json"
    with_tokens "$name"
done
for folder in "$data"/families/*; do
    name=${folder##*/}
    mkdir "models/$name"
    cp "$folder/config.json" "models/$name/"
    "$build/tests/system/lib/random_model" "models/$name" || fail "no weights for $name"
    with_tokens "$name"
done
for i in 0 1 2 3; do
    jq -nc --argjson i "$i" '{input_ids: [range(3 + $i; 20 + 2 * $i) | (. * 37 + $i * 11) % 240 + 3]}'
done >rows.jsonl

cat >in-ring <<'END_OF_SCRIPT'
ask() { timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" "$@" >"said.$nodes" 2>"err.$nodes" </dev/null || { echo "$model on $nodes: $*: $(cat "err.$nodes")"; exit 1; }; }
train() {
    name=$model-$1
    shift
    ask --json train --model "models/$model" --data rows.jsonl --adapter-out "out/$name" --log "out/$name.log" --iters 2 --seed 5 --lr 3e-3 "$@"
    jq -c 'del(.step_seconds, .tokens_per_second, .bubble)' "out/$name.log" >"out/$name.numbers"
}
lora="--target-modules all-linear --rank 4"
full="--fine-tune-type full"
for model in $(ls models); do
    is_trained=true
    [ "$model" != gpt_oss_mxfp4 ] || is_trained=false
    if [ "$nodes" = 1 ]; then
        train lora-1 $lora
        train four-1 $lora --weights int4
        ! $is_trained || train full-1 $full
        ask generate --model "models/$model" --ids 7,8,9 --max-tokens 10 --weights int8
        cp said.1 "out/$model-text-1"
        ask generate --model "models/$model" --ids 7,8,9 --max-tokens 10 --weights int8 --adapter "out/$model-lora-1"
        cp said.1 "out/$model-tuned-1"
    else
        train lora-2 $lora --schedule zbv
        train four-2 $lora --weights int4 --schedule interleaved-1f1b
        ! $is_trained || train full-2 $full --schedule zb-h1
        mkdir mlx
        jq 'del(.peft_type)' "out/$model-lora-1/adapter_config.json" >mlx/adapter_config.json
        cp "out/$model-lora-1/adapters.safetensors" mlx/
        ask serve --model "models/$model" --name base --max-context 40 --weights int8 --adapter tuned="out/$model-lora-1" --adapter other=mlx
        for name in base tuned; do
            ask generate --model $name --ids 7,8,9 --max-tokens 10
            cp said.2 "out/$model-$name-2"
        done
        for name in base tuned other; do
            ask --json score --model $name --ids 7,8,9,10,11,12
            jq .total said.2 >"out/$model-$name-score"
        done
        ask serve stop base
        rm -r mlx
    fi
done
END_OF_SCRIPT
export ringctl nodes XDG_CACHE_HOME
for nodes in 1 2; do
    limit 150 "$ringctl" local $nodes --threads 1 -- exec sh in-ring || fail "on $nodes nodes"
    say "$nodes nodes"
done

for model in $(ls models); do
    for kind in lora four full; do
        [ $kind-$model != full-gpt_oss_mxfp4 ] || continue
        same "$model, $kind: losses and norms" "out/$model-$kind-1.numbers" "out/$model-$kind-2.numbers"
        for file in "out/$model-$kind-1"/*.safetensors; do
            same "$model, $kind" "$file" "out/$model-$kind-2/${file##*/}"
        done
    done
    same "$model, served in 8 bits" "out/$model-text-1" "out/$model-base-2"
    same "$model, served in 8 bits with its adapter" "out/$model-tuned-1" "out/$model-tuned-2"
    same "$model, the adapter in mlx-lm's form, served" "out/$model-tuned-score" "out/$model-other-score"
    ! cmp -s "out/$model-base-score" "out/$model-tuned-score" || fail "$model: its adapter changes nothing"
done
limit 60 "$ringctl" local 1 train --model models/gpt_oss_mxfp4 --data rows.jsonl --adapter-out out/none --fine-tune-type full >said 2>&1 &&
    fail "MXFP4 was trained as a whole"
holds "what is refused" said 'quantized weights are not trained'
