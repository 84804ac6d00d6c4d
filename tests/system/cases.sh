#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The small models of every family through real daemons, on one to four nodes with unequal shares: five steps of LoRA on each set of
# linears have the losses of a reference implementation, the same bits on every number of nodes, and greedy text is its.
. "$(dirname "$0")/lib/check.sh"
families="llama_gqa_rope3 llama_tied_bf16 qwen3_tied deepseek_v2_lite deepseek_v3"
for family in $families; do
    jq -c '.microbatches[] | .prompt_len as $p | {input_ids: .ids, labels: [.ids | to_entries[] | if .key < $p then -100 else .value end]}' \
        "$cases/$family/expected.json" >"$work/$family.jsonl"
done

# The greedy ids end where a token ends the text; the reference went on.
cat >"$work/in-ring" <<'END_OF_SCRIPT'
run() { timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" --json "$@" 2>"$work/err" </dev/null || { cat "$work/err"; exit 1; }; }
for family in $families; do
    expected=$cases/$family/expected.json
    for set in $(jq -r '.lora | keys[]' "$expected"); do
        name=$family-$set-$nodes
        run train --model "$cases/$family/model" --data "$work/$family.jsonl" --init-adapter "$cases/$family/adapter_${set}_init" \
            --adapter-out "$work/$name" --log "$work/$name.log" --iters 5 --batch-size 4 --micro-batch-size 1 --no-shuffle --lr 1e-2 \
            --weight-decay 0.01 --max-grad-norm 0 >"$work/out"
        jq -c 'select(.loss) | [.loss, .grad_norm]' "$work/$name.log" >"$work/$name.numbers"
    done
    run generate --model "$cases/$family/model" --ids "$(jq -r '.generate.prompt | map(tostring) | join(",")' "$expected")" \
        --max-tokens "$(jq '.generate.tokens | length' "$expected")" >"$work/out"
    jq -c .ids "$work/out" >"$work/$family-$nodes.ids"
done
END_OF_SCRIPT

export ringctl work cases families nodes
for nodes in 1 2 3 4; do
    limit 150 "$ringctl" local $nodes --threads 1 -- exec sh "$work/in-ring" || fail "on $nodes nodes"
    for family in $families; do
        expected=$cases/$family/expected.json
        ids=$(cat "$work/$family-$nodes.ids")
        [ "$(jq -n "$ids | length")" -gt 0 ] || fail "$family on $nodes nodes: no token at all"
        equal "$family, greedy text on $nodes nodes" "$(jq -c --argjson n "$(jq -n "$ids | length")" '.generate.tokens[:$n]' "$expected")" "$ids"
        for set in $(jq -r '.lora | keys[]' "$expected"); do
            name=$family-$set
            same "$name: losses on $nodes nodes" "$work/$name-1.numbers" "$work/$name-$nodes.numbers"
            same "$name: result on $nodes nodes" "$work/$name-1/adapter_model.safetensors" "$work/$name-$nodes/adapter_model.safetensors"
            [ $nodes = 1 ] || continue
            apart=$(jq -s --slurpfile e "$expected" \
                "[., \$e[0].lora.$set.loss_before_each_step_0_to_5[:5]] | transpose | map(.[0][0] - .[1] | fabs) | max" "$work/$name-1.numbers")
            equal "$name: five losses" "$(wc -l <"$work/$name-1.numbers")" 5
            equal "$name: losses are $apart from the reference's" "$(jq -n "$apart < 1e-4")" true
        done
    done
    say "$nodes nodes"
done
