#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The likeliest tokens of every position: what generation takes is the first of them, their log-probabilities fall, the token that is
# there has the same in both places, and one node and three say the same. Questions are answered by the same numbers.
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

# What `eval` should find right follows from what `score` and `generate` say.
if [ "$nodes" = 1 ]; then
    context=$("$ringctl" --json score --model "$model" --text "There was a" 2>said | jq '.tokens | length')
    for choice in dog owl "old king"; do
        "$ringctl" --json score --model "$model" --text "There was a $choice" 2>said |
            jq -c --arg choice "$choice" --argjson n "$context" '{choice: $choice, sum: ([.tokens[$n:][].logprob] | add)}' || exit 1
    done >sums
    jq -c -s '. as $all | (max_by(.sum).choice) as $best | {prompt: "There was a", choices: [$all[].choice], answer: $best},
        {text: "There was a ", choices: [$all[].choice], answer: ($all | map(.choice) | index($best))},
        {prompt: "There was a", choices: [$all[].choice], answer: ($all | min_by(.sum).choice)}' sums >choices.jsonl
    jq -c '{prompt: "Once upon a time", completion: ["never", .text]}, {question: "Once", answer: "never"}' written.json >answers.jsonl
    jq -c '{text: "The owl was late."}, {text: ("Once upon a time" + .text)}' written.json >texts.jsonl
    behind=$(jq .eos_token_id "$model/config.json") # its tokenizer puts no token before a text
    "$ringctl" --json score --model "$model" --ids "$behind,$("$ringctl" tokenize --model "$model" --ids "The owl was late.")" >total.json 2>said || exit 1
    "$ringctl" --json eval --model "$model" --data texts.jsonl --limit 1 >first.json 2>said || exit 1
    "$ringctl" eval --model "$model" --data choices.jsonl >figures 2>said || exit 1
    sed '2s/prompt/x/; 2s/text/y/' choices.jsonl >bad.jsonl
    ! "$ringctl" eval --model "$model" --data bad.jsonl >bad 2>&1 || exit 1
fi
for task in choices answers texts; do
    "$ringctl" --json eval --model "$model" --data $task.jsonl --max-tokens 8 --stop nothing 2>said | jq -c 'del(.seconds)' >"$task.$nodes" || exit 1
done
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

for task in choices answers texts; do
    same "one node and three, $task" "$work/$task.1" "$work/$task.3"
done
equal "two of three are the likeliest" "$(jq -c '[.task, .rows, (.acc, .acc_stderr | . * 3 | round)]' "$work/choices.1")" '["multiple-choice",3,2,1]'
equal "the first is what it writes" "$(jq -c '[.task, .exact_match, .exact_match_stderr]' "$work/answers.1")" '["generation",0.5,0.5]'
equal "the text's total" "$(jq .total "$work/first.json")" "$(jq .total "$work/total.json")"
jq -e '.total as $t | (.bits_per_byte * .bytes * (2 | log) + $t | fabs) < 1e-9 and ((.word_perplexity | log) * .words + $t | fabs) < 1e-9' "$work/texts.1" >/dev/null ||
    fail "figures of texts: $(cat "$work/texts.1")"
holds "a figure and its error" "$work/figures" '^acc +0.666667 +0.333333$'
holds "a row that is wrong" "$work/bad" 'bad.jsonl:2: a row of the task multiple-choice needs "prompt", "question" or "text"'
