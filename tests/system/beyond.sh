#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Longer than the model was made for: it is said once, with both numbers, and done; what is not longer is not spoken of.
. "$(dirname "$0")/lib/check.sh"
model=$PWD/share/tiny-llama
positions=$(jq .max_position_embeddings "$model/config.json")
ids=$(seq -s , 3 $((positions - 5)))
cat >"$work/script" <<'END'
cd "$work" || exit 1
"$ringctl" --json generate --model "$model" --max-tokens 20 --ids "$ids" >long.out 2>long.err || exit 1
"$ringctl" --json generate --model "$model" --max-tokens 4 --ids "$ids" >short.out 2>short.err || exit 1
"$ringctl" --json score --model "$model" --ids "$ids,$ids" >score.out 2>score.err || exit 1
END
export ringctl work model ids
limit 120 "$ringctl" local 1 -- exec sh "$work/script" || fail "$(cat "$work"/*.err)"
said='the model was made for 512 \(max_position_embeddings\)'
holds "a generation that is too long" "$work/long.err" "the prompt and --max-tokens together are up to $((positions - 7 + 20)) tokens; $said"
equal "how often" "$(grep -cE "$said" "$work/long.err")" 1
equal "tokens of it" "$(jq '.ids | length' "$work/long.out")" 20
grep -qE "$said" "$work/short.err" && fail "a generation that fits: $(cat "$work/short.err")"
holds "a text that is too long" "$work/score.err" "the text is up to $((2 * (positions - 7))) tokens; $said"
