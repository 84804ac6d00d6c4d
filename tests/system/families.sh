#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Families beyond Llama through real daemons: the text trained models write on a ring of three, token for token; LoRA on
# attention, shared and routed experts with the same bits on one to four nodes, and an adapter that goes on from its own files.
. "$(dirname "$0")/lib/check.sh"
qwen=$data/models/qwen3
deepseek=$data/models/deepseek_v3

# Every prompt; none of these paths has a near-tie (min_margin 1e-3), else the tokens could not be compared.
cat >"$work/prompts" <<'END'
for model in "$qwen" "$deepseek"; do
    expected=$model/expected.json
    jq -c '.prompts[] | select(.min_margin >= 1e-3)' "$expected" >"$work/rows"
    while IFS= read -r row; do
        ids=$(printf '%s\n' "$row" | jq -r '.ids | map(tostring) | join(",")')
        want=$(printf '%s\n' "$row" | jq -c '.greedy_new_ids | if .[-1] == 2 then .[:-1] else . end')
        timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" --json generate --model "$model" --ids "$ids" \
            --max-tokens "$(printf '%s\n' "$row" | jq '.greedy_new_ids | length')" >"$work/out" 2>"$work/err" </dev/null ||
            { cat "$work/err"; exit 1; }
        [ "$(jq -c .ids "$work/out")" = "$want" ] || { echo "$model, prompt $ids: $(jq -c .ids "$work/out"), not $want"; exit 1; }
        echo "$model" >>"$work/compared"
    done <"$work/rows"
done
END

# train NAME ARGS...: losses without timings in $work/NAME.numbers, the result in $work/NAME
cat >"$work/train" <<'END'
name=$1
shift
timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" --json train --model "$deepseek" --data "$work/rows.jsonl" \
    --adapter-out "$work/$name" --log "$work/$name.log" --seq-len 64 --seed 5 --lr 3e-3 --weight-decay 0.05 --batch-size 4 \
    --rank 4 --dropout 0.1 --target-modules 'q_b_proj,kv_b_proj,mlp.up_proj,shared_experts.down_proj,experts.*.gate_proj' \
    "$@" >"$work/out" 2>"$work/err" || { cat "$work/err"; exit 1; }
jq -c 'del(.step_seconds, .tokens_per_second, .bubble)' "$work/$name.log" >"$work/$name.numbers"
END
cat >"$work/lora" <<'END'
sh "$work/train" "lora-$nodes" --iters 3 --schedule "$schedule" --recompute "$recompute" || exit 1
[ "$nodes" != 1 ] || sh "$work/train" half --iters 2 || exit 1
[ "$nodes" != 1 ] || sh "$work/train" half --iters 3 --resume
END

export ringctl work qwen deepseek nodes schedule recompute
: >"$work/compared"
limit 90 "$ringctl" local 3 -- exec sh "$work/prompts" || fail "greedy text on three nodes"
[ "$(sort -u "$work/compared" | wc -l)" = 2 ] || fail "no prompt without a near-tie was compared"
say "$(wc -l <"$work/compared") texts are the expected ones"

head -n 40 "$data/datasets/sums/train.jsonl" | jq -c '{text: (.question + " " + .answer)}' >"$work/rows.jsonl"
for nodes in 1 2 3 4; do
    case $nodes in 1) schedule=naive recompute=none ;; 2) schedule=zbv recompute=stage ;; *) schedule=interleaved-1f1b recompute=stage ;; esac
    limit 90 "$ringctl" local $nodes --threads 1 -- exec sh "$work/lora" || fail "LoRA on $nodes nodes"
    same "log on $nodes nodes" "$work/lora-1.numbers" "$work/lora-$nodes.numbers"
    same "result on $nodes nodes" "$work/lora-1/adapter_model.safetensors" "$work/lora-$nodes/adapter_model.safetensors"
    say "$nodes nodes give the same"
done
same "a run that was resumed" "$work/lora-1/adapter_model.safetensors" "$work/half/adapter_model.safetensors"
equal "targets are written as PEFT reads them" "$(jq -r .target_modules "$work/lora-1/adapter_config.json")" \
    '.*\.(q_b_proj|kv_b_proj|mlp\.up_proj|shared_experts\.down_proj|experts(\.\d+)?\.gate_proj)'
first=$(jq -s 'map(select(.loss))[0].loss' "$work/lora-1.numbers")
last=$(jq -s 'map(select(.loss))[-1].loss' "$work/lora-1.numbers")
equal "the loss fell from $first to $last" "$(jq -n "$last < $first")" true
