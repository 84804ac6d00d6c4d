#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The life of an adapter: trained on two nodes in a shape of its own, loaded from either of its two forms with the same bits, and
# merged into its model, which then scores as model and adapter did.
. "$(dirname "$0")/lib/check.sh"
cd "$work" || exit 1

cat >in-ring <<'END'
set -e
timeout 60 "$ringctl" --json train --model "$llama" --data "$tables" --adapter-out out --iters 3 --seq-len 64 --lr 1e-2 --rank 4 \
    --alpha 6 --rslora --lora-plus-ratio 4 --layers 1-2 --target-modules q_proj,down_proj >trained
mkdir mlx
cp out/adapter_config.json out/adapters.safetensors mlx/
for adapter in out mlx; do
    timeout 60 "$ringctl" --json score --model "$llama" --adapter $adapter --ids 5,6,7,8,9,10,11,12 >score.$adapter
done
timeout 60 "$ringctl" --json score --model "$llama" --ids 5,6,7,8,9,10,11,12 >score.bare
timeout 60 "$ringctl" --json merge --model "$llama" --adapter out --out merged --dtype f32 >merged.said
timeout 60 "$ringctl" --json score --model merged --ids 5,6,7,8,9,10,11,12 >score.merged
END
export ringctl llama tables
"$ringctl" local 2 exec sh in-ring >said 2>&1 || { cat said; fail "the adapter could not be trained, scored and merged"; }

config() { jq -c "$1" out/adapter_config.json; }
equal "rsLoRA" "$(config '[.use_rslora, .lora_alpha == 6, .r]')" '[true,true,4]'
equal "layers" "$(config '[.layers_to_transform, .num_layers]')" "[[1,2],$(($(jq .num_hidden_layers "$llama/config.json") - 1))]"
equal "mlx-lm's scale" "$(config '.lora_parameters | [.rank, .scale == 3]')" '[4,true]'
same "scores with the adapter in mlx-lm's form" score.out score.mlx
equal "linears merged" "$(jq .linears merged.said)" 4

apart() { jq -n --slurpfile a "$1" --slurpfile b "$2" '($a[0].total - $b[0].total) | fabs'; }
jq -ne "$(apart score.out score.merged) < 1e-4" >/dev/null || fail "merged: $(apart score.out score.merged) apart"
jq -ne "$(apart score.out score.bare) > 1e-3" >/dev/null || fail "the adapter changes nothing: $(apart score.out score.bare)"

"$ringctl" merge --model "$llama" --adapter out --out merged >said 2>&1
equal "a second merge: exit status" $? 1
grep -q '^ringctl: --out merged is there already and not empty' said || fail "$(cat said)"
"$ringctl" merge --model "$llama" --adapter mlx --out other >said 2>&1 || fail "$(cat said)"
equal "what is left" "$(ls -d other* merged*)" "$(printf 'merged\nmerged.said\nother')"
