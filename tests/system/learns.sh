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
equal "evaluations" "$(echo "$losses" | jq length)" 2
say "loss on all rows, before and after: $losses"
echo "$losses" | jq -e '.[1] < .[0] - 1' >/dev/null || fail "50 steps at the default rate changed too little: $losses"
near "rate of an adapter" "$(jq -s 'map(.lr // empty)[0]' log.jsonl)" 0.0005 1e-9
limit 60 "$ringctl" local 1 --threads 1 train --model "$model" --data rows.jsonl --adapter-out full --iters 1 --fine-tune-type full \
    --log full.jsonl >said 2>&1 || fail "$(cat said)"
near "rate of a whole model" "$(jq -s 'map(.lr // empty)[0]' full.jsonl)" 0.0002 1e-9
