#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A training job that is asked questions: its answers are those of `ringctl eval` with the adapter as it was then, on any ring, and
# training notices nothing of it.
. "$(dirname "$0")/lib/check.sh"
cd "$work" || exit 1
head -n 4 "$tables/valid.jsonl" | jq -c "{text: .text[0:50]}" >valid.jsonl

cat >in-ring <<'END'
set -e
train() {
    name=$1
    shift
    timeout 90 "$ringctl" --json train --model "$llama" --data "$tables" --valid valid.jsonl --seq-len 64 --batch-size 2 --iters 4 --lr 3e-2 --rank 4 \
        --adapter-out "$name" --log "$name.log" "$@" >/dev/null
}
answer() { timeout 60 "$ringctl" --json generate --model "$llama" --adapter "$1" --temperature 0 --max-tokens 6 "$2" | jq .text; }
train "alone-$nodes"
if [ $nodes = 1 ]; then # one answer that is right in the end, and one that never is
    jq -nc --argjson a "$(answer alone-1 "Once upon a time")" '{prompt: "Once upon a time", completion: $a}' >questions.jsonl
    jq -nc '{prompt: "The cat", completion: "certainly not"}' >>questions.jsonl
fi
train "asked-$nodes" --eval-questions questions.jsonl --eval-every 2 --sample-tokens 6
timeout 60 "$ringctl" --json eval --model "$llama" --adapter "asked-$nodes" --data questions.jsonl --max-tokens 6 >"eval-$nodes"
END
export ringctl llama tables nodes
for nodes in 1 2; do
    limit 60 "$ringctl" local $nodes --threads 1 -- exec sh ./in-ring >said 2>&1 || { cat said; fail "$nodes nodes"; }
    numbers "asked-$nodes.log" | jq -c 'select(.loss)' >steps
    numbers "alone-$nodes.log" | jq -c 'select(.loss)' >steps.alone
    same "steps of a run that is asked" steps.alone steps
    same "its result" "alone-$nodes/adapter_model.safetensors" "asked-$nodes/adapter_model.safetensors"
    jq -c 'select(.exact_match != null) | [.step, .exact_match, .questions]' "asked-$nodes.log" >matches
    equal "evaluations" "$(jq -sc 'map(.[0])' matches)" '[0,2,4]'
    equal "none matches before training" "$(head -n 1 matches | jq '.[0] == 0 and .[1] == 0')" true
    equal "the last" "$(tail -n 1 matches)" '[4,0.5,2]'
    equal "as ringctl eval says" "$(jq .exact_match "eval-$nodes")" 0.5
    [ $nodes = 1 ] || same "matches on two nodes" matches.1 matches
    cp matches matches.1
    near "perplexity" "$(jq -s 'map(.valid_perplexity // empty)[-1] | log' "asked-$nodes.log")" "$(jq -s 'map(.valid_loss // empty)[-1]' "asked-$nodes.log")" 1e-9
done
"$ringctl" --json train --model "$llama" --data "$tables" --eval-questions questions.jsonl --adapter-out x >said 2>&1
holds "questions without rows" said 'give --valid FILE|DIR too'
limit 60 "$ringctl" local 1 train --model "$llama" --data "$tables" --valid valid.jsonl --eval-questions questions.jsonl --seq-len 64 --sample-tokens 64 \
    --adapter-out x >said 2>&1 && fail "answers that leave no room for a question"
holds "answers that leave no room" said 'eval-questions: --sample-tokens 64 leaves no room for a prompt in 64 tokens'
