#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What every family can do, asked of the programs: LoRA in a zero-bubble schedule and full training in an interleaved one on two nodes with the bits
# of one node, and texts in 8 bits of the model and with its adapter, by jobs and where it is served, from the adapter in mlx-lm's form too. Of
# each family the golden case, or random weights for a config of tests/data/families. What a family cannot is refused by name. What is computed of
# a merged model, a converted one and both forms of an adapter, tests/golden/test_each_family.c compares.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/every_model.sh"
cd "$work" || exit 1
XDG_CACHE_HOME=$work/cache
unset CACHE_DIRECTORY
every_model

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
        ! $is_trained || train full-1 $full
        ask generate --model "models/$model" --ids 7,8,9 --max-tokens 10 --weights int8
        cp said.1 "out/$model-text-1"
        ask generate --model "models/$model" --ids 7,8,9 --max-tokens 10 --weights int8 --adapter "out/$model-lora-1"
        cp said.1 "out/$model-tuned-1"
    else
        train lora-2 $lora --schedule zbv
        ! $is_trained || train full-2 $full --schedule interleaved-1f1b
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
    for kind in lora full; do
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
