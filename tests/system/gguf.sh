#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model in a GGUF file, whole and split, against the folder that it was made from: texts, every digit of a score, and an
# adapter, on rings of one node and three. Parts that are missing are named.
. "$(dirname "$0")/lib/check.sh"

command -v python3 >/dev/null || skip "no python3, which makes the GGUF file"
python3 "$(dirname "$0")/lib/to_gguf.py" "$llama" "$work/whole" || fail "no GGUF file was made"
python3 "$(dirname "$0")/lib/to_gguf.py" "$llama" "$work/split" split || fail "no split file was made"
prompt=$(jq -r '.prompts[1].prompt' "$llama/expected.json")

# ask NODES MODEL NAME: what a ring makes of it, in $work/NAME-*
ask() {
    limit 60 "$ringctl" --json local "$1" generate --model "$2" --temperature 0 --max-tokens 24 "$prompt" >"$work/out" 2>"$work/err" ||
        fail "$3: no text: $(cat "$work/err")"
    jq -c '[.prompt_ids, .ids, .text]' "$work/out" >"$work/$3-text"
    limit 60 "$ringctl" --json local "$1" score --model "$2" --text "$prompt" >"$work/out" 2>"$work/err" || fail "$3: no score: $(cat "$work/err")"
    jq -c .total "$work/out" >"$work/$3-score"
    limit 60 "$ringctl" local "$1" train --model "$2" --data "$tables" --iters 3 --seq-len 64 --adapter-out "$work/$3-adapter" \
        --target-modules q_proj,k_proj,down_proj >"$work/out" 2>&1 || fail "$3: no adapter: $(cat "$work/out")"
}
ask 1 "$llama" folder
ask 1 "$work/whole.gguf" one
ask 3 "$work/whole.gguf" three
ask 3 "$work/split-00001-of-00002.gguf" parts
for as in one three parts; do
    same "text" "$work/folder-text" "$work/$as-text"
    same "score" "$work/folder-score" "$work/$as-score"
done
same "adapters of one node and three" "$work/one-adapter/adapter_model.safetensors" "$work/three-adapter/adapter_model.safetensors"
same "adapters of a whole file and a split one" "$work/three-adapter/adapter_model.safetensors" \
    "$work/parts-adapter/adapter_model.safetensors"
say "texts and scores are those of the folder"

"$ringctl" merge --model "$work/whole.gguf" --adapter "$work/one-adapter" --out "$work/merged" >"$work/out" 2>&1 || fail "not merged: $(cat "$work/out")"
limit 60 "$ringctl" --json local 1 generate --model "$work/merged" --temperature 0 --max-tokens 8 "$prompt" >"$work/out" 2>"$work/err" ||
    fail "the merged model: $(cat "$work/out")"
equal "prompt of the merged model" "$(jq -c .prompt_ids "$work/out")" "$(jq -c '.[0]' "$work/folder-text")"

mv "$work/split-00002-of-00002.gguf" "$work/elsewhere"
limit 60 "$ringctl" local 2 generate --model "$work/split-00001-of-00002.gguf" "$prompt" >"$work/out" 2>&1 && fail "half a model was enough"
holds "the missing part" "$work/out" 'split-00002-of-00002\.gguf.*(No such file|is missing)'
