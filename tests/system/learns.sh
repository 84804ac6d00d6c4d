#!/bin/sh
# SPDX-License-Identifier: MIT
#
# README's first training, as it stands there: with every option left at its default, 50 steps make a difference that one sees.
. "$(dirname "$0")/lib/check.sh"
cd "$work" || exit 1
model=${0%/*}/../../share/tiny-llama
case $model in /*) ;; *) model=$OLDPWD/$model ;; esac
for who in "a girl named Lily" "a boy named Tom" "a little dog" "a brave cat" "an old man"; do
    for what in "found a shiny stone" "lost a big ball" "saw a rainbow" "made a new friend"; do
        printf '{"text": "Once upon a time there was %s who %s. The sun was warm and all were glad."}\n' "$who" "$what"
    done
done >rows.jsonl
limit 120 "$ringctl" local 2 --threads 1 train --model "$model" --data rows.jsonl --valid rows.jsonl --adapter-out out --iters 50 \
    --log log.jsonl >said 2>&1 || fail "$(cat said)"
losses=$(jq -sc 'map(.valid_loss // empty)' log.jsonl)
head -n 5 rows.jsonl >lily.jsonl
# Further sets: each has the loss that it would have alone, without a change of anything else.
limit 60 "$ringctl" local 3 --threads 1 train --model "$model" --data rows.jsonl --valid rows.jsonl --eval-data lily=lily.jsonl \
    --eval-data pairs.jsonl --loss nll --adapter-out sets --iters 50 --log sets.jsonl >said 2>&1 && fail "a file that is not there was taken"
grep -q "eval-data.*pairs.jsonl" said || fail "$(cat said)"
limit 60 "$ringctl" local 3 --threads 1 train --model "$model" --data rows.jsonl --valid rows.jsonl --eval-data lily=lily.jsonl \
    --eval-data rows.jsonl --adapter-out sets --iters 50 --log sets.jsonl >said 2>&1 || fail "$(cat said)"
same "an adapter that was evaluated more" out/adapter_model.safetensors sets/adapter_model.safetensors
jq -c 'select(.valid_loss) | [.valid_loss, .valid_loss]' log.jsonl >one
jq -c 'select(.valid_loss) | [.valid_loss, .["valid_loss/rows.jsonl"]]' sets.jsonl >both
same "losses of the same rows under two names" one both
limit 60 "$ringctl" local 1 --threads 1 score --model "$model" --adapter sets --data lily.jsonl --json >score.json 2>said || fail "$(cat said)"
near "loss of a further set" "$(jq -s 'map(.["valid_loss/lily"] // empty)[-1]' sets.jsonl)" "$(jq '-.total / .supervised_tokens' score.json)" 1e-5
equal "evaluations" "$(echo "$losses" | jq length)" 2
say "loss on all rows, before and after: $losses"
echo "$losses" | jq -e '.[1] < .[0] - 1' >/dev/null || fail "50 steps at the default rate changed too little: $losses"
near "rate of an adapter" "$(jq -s 'map(.lr // empty)[0]' log.jsonl)" 0.0005 1e-9
limit 60 "$ringctl" local 1 --threads 1 train --model "$model" --data rows.jsonl --adapter-out full --iters 1 --fine-tune-type full \
    --log full.jsonl >said 2>&1 || fail "$(cat said)"
near "rate of a whole model" "$(jq -s 'map(.lr // empty)[0]' full.jsonl)" 0.0002 1e-9

# Pairs of answers: the adapter comes to prefer the chosen ones, to the same bits on any ring, with any schedule, as replicas,
# beside other adapters, and in two halves.
for who in "The dog" "A cat" "Tom" "The sun" "Mom" "A bird"; do
    printf '{"prompt": "%s", "chosen": " was very happy and went home.", "rejected": " paid all taxes of the year."}\n' "$who"
done >pairs.jsonl
# pairs NAME NODES ARGS...: into NAME, what does not depend on the clock in NAME.numbers
pairs() {
    name=$1 nodes=$2
    shift 2
    limit 60 "$ringctl" local "$nodes" --threads 1 train --model "$model" --data pairs.jsonl --valid pairs.jsonl --adapter-out "$name" \
        --batch-size 4 --lr 2e-3 --seed 4 --dropout 0.1 --log "$name.log" "$@" >said 2>&1 || fail "$name: $(cat said)"
    jq -c 'del(.adapter, .step_seconds, .tokens_per_second, .bubble)' "$name.log" >"$name.numbers"
}
for loss in dpo orpo; do
    pairs $loss-1 1 --loss $loss --iters 8
    pairs $loss-2 2 --loss $loss --iters 3 --schedule zb-h1
    pairs $loss-2 3 --loss $loss --iters 8 --schedule gpipe --recompute stage --resume
    pairs $loss-4 4 --loss $loss --iters 8 --parallel dp=2
    same "$loss: an adapter in two halves" $loss-1/adapter_model.safetensors $loss-2/adapter_model.safetensors
    same "$loss: an adapter of two replicas" $loss-1/adapter_model.safetensors $loss-4/adapter_model.safetensors
    same "$loss: figures of two replicas" $loss-1.numbers $loss-4.numbers
    grep '"loss":' $loss-1.numbers >whole
    grep '"loss":' $loss-2.numbers >halves
    same "$loss: figures of both halves" whole halves
    jq -se 'map(select(.valid_loss)) | .[1].valid_loss < .[0].valid_loss and
        .[1]["valid_rewards/margins"] > .[0]["valid_rewards/margins"] + 0.01 and .[1]["valid_rewards/accuracies"] == 1' $loss-1.log >/dev/null || fail "$loss has learnt nothing: $(grep valid $loss-1.log)"
    say "$loss: $(jq -sc 'map(select(.valid_loss)) | map([.valid_loss, .["valid_rewards/margins"]])' $loss-1.log)"
done
near "loss of an adapter that changes nothing yet" "$(jq -s 'map(.valid_loss // empty)[0]' dpo-1.log)" 0.693147 1e-4
pairs swept 2 --loss dpo --iters 8 --sweep beta=0.1,0.5
same "an adapter beside another one" dpo-1/adapter_model.safetensors swept/beta-0.1/adapter_model.safetensors
# Factors drawn in another way are the same wherever they are drawn.
pairs drawn 1 --loss dpo --iters 3 --lora-init orthogonal
pairs drawn-both 3 --loss dpo --iters 3 --sweep lora-init=uniform,orthogonal
same "an adapter that began with orthogonal factors" drawn/adapter_model.safetensors drawn-both/lora-init-orthogonal/adapter_model.safetensors
near "loss of orthogonal factors that cancel" "$(jq -s 'map(.valid_loss // empty)[0]' drawn.log)" 0.693147 1e-4
