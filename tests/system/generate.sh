#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Generation and scoring through real daemons: every expected token on rings of 1 to 7 nodes, and the same bits of
# log-probability whatever the number of nodes.
. "$(dirname "$0")/lib/check.sh"

# ask COMMAND ...: ringctl inside a ring, its object in $work/out; what generates takes $shared too
cat >"$work/ask" <<'END'
command=$1
shift
[ "$command" = generate ] || shared=
# shellcheck disable=SC2086 # words
timeout 60 "$ringctl" --json "$command" $shared "$@" >"$work/out" 2>"$work/err" || { cat "$work/err"; exit 1; }
END

# All prompts of the trained model, by text and by ids. An end-of-text token stops a text and is not part of it.
cat >"$work/prompts" <<'END'
expected=$llama/expected.json
i=0
n=$(jq '.prompts | length' "$expected")
while [ $i -lt "$n" ]; do
    want=$(jq -c --slurpfile c "$llama/generation_config.json" \
        ".prompts[$i].greedy_new_ids | if .[-1] | IN(\$c[0].eos_token_id[]) then .[:-1] else . end" "$expected")
    tokens=$(jq ".prompts[$i].greedy_new_ids | length" "$expected")
    ids=$(jq -r ".prompts[$i].ids | map(tostring) | join(\",\")" "$expected")
    for by in text $([ "$nodes" = 1 ] && echo ids); do
        if [ $by = text ]; then
            set -- -- "$(jq -r ".prompts[$i].prompt" "$expected")"
        else
            set -- --ids "$ids"
        fi
        sh "$work/ask" generate --model "$llama" --max-tokens "$tokens" "$@" || exit 1
        [ "$(jq -c .ids "$work/out")" = "$want" ] || { echo "prompt $i by $by: $(jq -c .ids "$work/out"), not $want"; exit 1; }
        [ "$(jq -r '.prompt_ids | map(tostring) | join(",")' "$work/out")" = "$ids" ] || { echo "prompt $i by $by: ids"; exit 1; }
    done
    i=$((i + 1))
done
END

# The tiny cases have no tokenizer: tokens in, tokens out; and what a text is worth, every digit.
cat >"$work/cases" <<'END'
for c in llama_gqa_rope3 llama_tied_bf16; do
    expected=$cases/$c/expected.json
    ids=$(jq -r '.generate.prompt | map(tostring) | join(",")' "$expected")
    want=$(jq -c .generate.tokens "$expected")
    sh "$work/ask" generate --model "$cases/$c/model" --max-tokens "$(jq '.generate.tokens | length' "$expected")" --ids "$ids" ||
        exit 1
    [ "$(jq -c .ids "$work/out")" = "$want" ] || { echo "$c: $(jq -c .ids "$work/out"), not $want"; exit 1; }
    sh "$work/ask" score --model "$cases/$c/model" --ids "$(jq -r '.logits.ids | map(tostring) | join(",")' "$expected")" || exit 1
    cp "$work/out" "$work/$c.score.$nodes"
done
sh "$work/ask" score --model "$llama" --text "$(jq -r .score.text "$llama/expected.json")" || exit 1
cp "$work/out" "$work/llama.score.$nodes"
# The token of a zero byte has a text too.
"$ringctl" --json score --model "$llama" --ids 1,3,5 2>"$work/err" | jq -e '.tokens[1] | .id == 3 and .text == "\ufffd"' >/dev/null || {
    echo "a zero byte: $(cat "$work/err")"
    exit 1
}
END

# How tokens are chosen: cuts that leave one token are greedy; what is biased away never comes, what is biased most always; a
# token that was said is not said again; and the same tokens on every ring with all of it.
cat >"$work/choices" <<'END'
expected=$cases/llama_gqa_rope3/expected.json
ids=$(jq -r '.generate.prompt | map(tostring) | join(",")' "$expected")
tokens() { sh "$work/ask" generate --model "$cases/llama_gqa_rope3/model" --max-tokens 20 --ids "$ids" "$@" && jq -c .ids "$work/out"; }
greedy=$(tokens) || exit 1
for cut in "--top-k 1" "--min-p 1" "--top-p 0.000001"; do
    is=$(tokens --temperature 1.5 --seed 3 $cut)
    [ "$is" = "$greedy" ] || { echo "$cut: $is, not $greedy"; exit 1; }
done
second=$(echo "$greedy" | jq '.[1]')
tokens --logit-bias "$second=-100" | jq -e "index($second) == null" >/dev/null || { echo "a bias of -100: $(cat "$work/out")"; exit 1; }
tokens --logit-bias 5=100 | jq -e 'length == 20 and all(. == 5)' >/dev/null || { echo "a bias of 100: $(cat "$work/out")"; exit 1; }
tokens --presence-penalty 100 | jq -e 'length == 20 and (unique | length) == 20' >/dev/null || { echo "a penalty: $(cat "$work/out")"; exit 1; }
tokens --temperature 1.2 --seed 9 --top-k 40 --top-p 0.95 --min-p 0.01 --repetition-penalty 1.3 --frequency-penalty 0.1 \
    --presence-penalty 0.1 --repeat-last-n 8 --logit-bias 7=1.5 --logit-bias 8=-2 >"$work/choices.$nodes" || exit 1
# How likely the tokens are does not depend on penalties and cuts; a score of the same text says the same.
tokens --logprobs --top-logprobs 3 --presence-penalty 2 --repeat-last-n 4 >/dev/null || exit 1
jq -c .tokens "$work/out" >"$work/likely.$nodes"
sh "$work/ask" score --model "$cases/llama_gqa_rope3/model" --top-logprobs 3 --ids "$(jq -r '.prompt_ids + .ids | map(tostring) | join(",")' "$work/out")"
jq -c '.tokens[-20:]' "$work/out" | jq -e --slurpfile g "$work/likely.$nodes" '[., $g[0]] | transpose | length == 20 and all(
    .[0].id == .[1].id and (.[0].logprob - .[1].logprob | fabs) < 1e-4 and
    (.[1].top | length) == 3 and .[0].top[0].id == .[1].top[0].id and (.[0].top[0].logprob - .[1].top[0].logprob | fabs) < 1e-4)' >/dev/null ||
    { echo "log-probabilities: $(cat "$work/likely.$nodes"), not $(cat "$work/out")"; exit 1; }
"$ringctl" generate --model "$cases/llama_gqa_rope3/model" --ids 1 --logit-bias 1000000=1 >"$work/out" 2>&1 && exit 1
grep -q 'logit-bias "1000000": the id of a token is needed' "$work/out" || { cat "$work/out"; exit 1; }
END

# What cannot be shared, in a sentence.
cat >"$work/refused" <<'END'
shared=
refused() {
    sh "$work/ask" generate --max-tokens 1 --ids 1 --model "$@" >"$work/said" && { echo "not refused: $*"; exit 1; }
    cat "$work/said"
}
refused "$cases/llama_gqa_rope3/model" --parallel tp=4,pp=2 | grep -q 'takes 8 nodes (2 stages, each shared by 4), and [24] take part' || exit 1
refused "$cases/llama_gqa_rope3/model" --parallel dp=2 | grep -q 'dp=D is for training' || exit 1
refused "$cases/deepseek_v3/model" --parallel tp=2 | grep -q 'has latent attention, which several nodes cannot share' || exit 1
# A plan for some of the nodes has no schedule, as one for all.
"$ringctl" --json plan generate --model "$cases/llama_gqa_rope3/model" --ids 1 --parallel pp=1 >"$work/some" 2>&1 || { cat "$work/some"; exit 1; }
grep -q '"schedule": *"[^"]' "$work/some" && { cat "$work/some"; exit 1; }
true
END

export ringctl work llama cases
shared=
export shared
for nodes in 1 2 3 4 7; do
    export nodes
    say "$nodes nodes"
    case $nodes in 1 | 3 | 7) script="$work/prompts" ;; *) script= ;; esac
    for s in $script "$work/cases" "$work/choices"; do
        limit 60 "$ringctl" local $nodes --threads 1 -- exec sh "$s" || fail "$nodes nodes, $(basename "$s")"
    done
    for score in llama_gqa_rope3 llama_tied_bf16 llama; do
        same "score of $score on 1 and $nodes nodes" "$work/$score.score.1" "$work/$score.score.$nodes"
    done
    same "log-probabilities on 1 and $nodes nodes" "$work/likely.1" "$work/likely.$nodes"
    same "chosen tokens on 1 and $nodes nodes" "$work/choices.1" "$work/choices.$nodes"
done

say 'nodes that share each stage'
for shared in 'tp=2' 'tp=2,pp=2'; do
    nodes=$shared
    shared="--parallel $shared"
    [ "$nodes" = tp=2 ] && n=2 || n=4
    for s in "$work/choices" "$work/refused"; do
        limit 60 "$ringctl" local $n --threads 1 -- exec sh "$s" || fail "$shared, $(basename "$s")"
    done
    same "log-probabilities with $shared" "$work/likely.1" "$work/likely.$nodes"
    same "chosen tokens with $shared" "$work/choices.1" "$work/choices.$nodes"
done

mean=$(jq '-([.tokens[1:][].logprob] | add / length)' "$work/llama.score.1")
equal "tokens scored" "$(jq '.tokens[1:] | length' "$work/llama.score.1")" "$(jq .score.tokens "$llama/expected.json")"
near "mean loss of a text" "$mean" "$(jq .score.mean_nll "$llama/expected.json")" 1e-5
near "perplexity" "$(jq .perplexity "$work/llama.score.1")" "$(jq '-.total / ((.tokens | length) - 1) | exp' "$work/llama.score.1")" 1e-6
