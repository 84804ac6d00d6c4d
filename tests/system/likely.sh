#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The likeliest tokens of every position: what generation takes is the first of them, their log-probabilities fall, the token that is
# there has the same in both places, and one node and three say the same.
. "$(dirname "$0")/lib/check.sh"
model=$PWD/share/tiny-llama
cat >"$work/script" <<'END'
cd "$work" || exit 1
"$ringctl" --json generate --model "$model" --max-tokens 8 "Once upon a time" >written.json 2>said || exit 1
ids=$(jq -r '.prompt_ids + .ids | map(tostring) | join(",")' written.json)
"$ringctl" --json score --model "$model" --ids "$ids" --top-logprobs 3 >"score.$nodes" 2>said || exit 1
"$ringctl" score --model "$model" --ids "$ids" --top-logprobs 3 >shown 2>said || exit 1
"$ringctl" --json score --model "$model" --ids "$ids" >plain 2>said || exit 1
echo '{"text": "Once upon a time"}' >rows.jsonl
! "$ringctl" score --model "$model" --data rows.jsonl --top-logprobs 3 >refused 2>&1 || exit 1
END
export ringctl work model nodes
for nodes in 1 3; do
    limit 120 "$ringctl" local $nodes --threads 1 -- exec sh "$work/script" || fail "$nodes nodes: $(cat "$work/said")"
done
same "one node and three" "$work/score.1" "$work/score.3"
new=$(jq '.ids | length' "$work/written.json")
jq -e '.tokens | .[0].top == [] and (.[1:] | all((.top | length) == 3))' "$work/score.1" >/dev/null || fail "three of each: $(cat "$work/score.1")"
jq -e '.tokens[1:] | all(.top | .[0].logprob >= .[1].logprob and .[1].logprob >= .[2].logprob)' "$work/score.1" >/dev/null || fail "not in order"
jq -e '.tokens[1:] | all(. as $t | .top[] | select(.id == $t.id) | .logprob == $t.logprob)' "$work/score.1" >/dev/null || fail "two numbers of one token"
jq -e --argjson n "$new" '.tokens[-$n:] | all(.id == .top[0].id and .text == .top[0].text)' "$work/score.1" >/dev/null ||
    fail "what was written is not the likeliest: $(cat "$work/score.1")"
jq -e '.tokens | all(has("top") | not)' "$work/plain" >/dev/null || fail "not asked for, and there: $(cat "$work/plain")"
holds "a table" "$work/shown" '^ID +TOKEN +LOGPROB +LIKELIEST$'
holds "a row" "$work/shown" '^[0-9]+ +".*" +-[0-9.]+ +".*" -[0-9.]+ +".*" -[0-9.]+ +".*" -[0-9.]+$'
holds "of a data set" "$work/refused" 'top-logprobs needs --text or --ids'
