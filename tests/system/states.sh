#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What a run leaves to be continued: a run that was killed between its last save and its end gets its result, the same bytes, and
# makes no further step; a state with a flipped bit is refused, and nothing beside it changes. An adapter that PEFT made with another
# alpha and rank by layer scores as when it is merged, and is learnt on from.
. "$(dirname "$0")/lib/check.sh"
model=$PWD/share/tiny-llama
for i in 1 2 3 4 5 6 7 8; do
    printf '{"text": "Once upon a time there were %s little rabbits, and they lived with their mother."}\n' $i
done >"$work/rows.jsonl"

cat >"$work/script" <<'END'
cd "$work" || exit 1
train() {
    timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" train --model "$model" --data rows.jsonl --batch-size 2 --lr 1e-3 --rank 4 "$@"
}
quick() { train --iters 4 --save-every 2 "$@"; }
quick --adapter-out whole --log whole.log >said 2>&1 || { cat said; exit 1; }
ls whole >listed
cp -r whole killed
# What a kill leaves when the state is in its place and the job has not ended: here the results are even gone.
rm killed/adapter_model.safetensors killed/adapters.safetensors killed/adapter_config.json
quick --adapter-out killed --log killed.log --resume >finished 2>&1 || { cat finished; exit 1; }
! train --adapter-out killed --iters 3 --resume >fewer 2>&1 || exit 1
# One bit of a moment, in the middle of the data.
cp -r whole flipped
size=$(stat -c %s flipped/training_state.safetensors)
printf '\001' | dd of=flipped/training_state.safetensors bs=1 seek=$((size / 2)) conv=notrunc status=none
cmp -s whole/training_state.safetensors flipped/training_state.safetensors && { echo "the byte was 1 before"; exit 1; }
! train --adapter-out flipped --iters 6 --resume >damaged 2>&1 || exit 1
# The way out that is named.
train --adapter-out again --init-adapter flipped --iters 1 >said 2>&1 || { cat said; exit 1; }
# The scale of one linear changes, and its factors do not.
mkdir scaled
cp whole/adapter_model.safetensors scaled/
jq '.alpha_pattern = {"layers.1.self_attn.q_proj": 64} | del(.lora_parameters, .fine_tune_type, .num_layers)' \
    whole/adapter_config.json >scaled/adapter_config.json
train --adapter-out onward --init-adapter scaled --iters 2 --save-every 1 >said 2>&1 || { cat said; exit 1; }
train --adapter-out onward --iters 4 --resume >said 2>&1 || { cat said; exit 1; }
score() { timeout 60 "$ringctl" --json score --text "Once upon a time there were five little rabbits" "$@" 2>said || exit 1; }
"$ringctl" merge --model "$model" --adapter scaled --out merged --dtype f32 >said 2>&1 || { cat said; exit 1; }
score --model "$model" --adapter whole >score.whole
score --model "$model" --adapter scaled >score.scaled
score --model merged >score.merged
END

export ringctl work model
limit 120 "$ringctl" local 1 --threads 1 -- exec sh "$work/script" || fail "$(tail -n 5 "$work"/said "$work"/finished 2>/dev/null)"
equal "files of a result" "$(tr '\n' ' ' <"$work/listed")" \
    "adapter_config.json adapter_model.safetensors adapters.safetensors training_state.safetensors "
for file in adapter_model.safetensors adapters.safetensors adapter_config.json training_state.safetensors; do
    same "a run that was killed at its end: $file" "$work/whole/$file" "$work/killed/$file"
done
holds "a run that was killed at its end" "$work/finished" 'has done all of its 4 steps: its result is written again'
equal "steps beyond the last" "$(wc -l <"$work/killed.log")" 0
holds "fewer steps than are done" "$work/fewer" 'has already done 4 steps, but this job asks for 3: raise --iters'
holds "a flipped bit" "$work/damaged" 'training_state.safetensors cannot be used to resume: tensor .* does not match its checksum.*--init-adapter'
for file in adapter_model.safetensors adapter_config.json; do
    same "beside a damaged state: $file" "$work/whole/$file" "$work/flipped/$file"
done
near "another alpha in one layer: merged" "$(jq .total "$work/score.merged")" "$(jq .total "$work/score.scaled")" 1e-3
[ "$(jq .total "$work/score.whole")" != "$(jq .total "$work/score.scaled")" ] || fail "another alpha in one layer changes nothing"
equal "what is learnt on from keeps it" "$(jq -c '[.alpha_pattern[]] == [64]' "$work/onward/adapter_config.json")" true
