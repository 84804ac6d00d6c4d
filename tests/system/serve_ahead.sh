#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Served models whose own layer behind the last guesses tokens, on a ring of three: the same answers as without, greedy and sampled, eight at
# once, with a head on any node, and behind a stage that ended. One has latent attention, one linear layers and `mtp.*`, one is a Qwen3.5 of
# random weights, whose case has no such layer. A model without one is refused.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/../lib/endless.sh"

# with_text NAME CASE [drawn]: a case's weights, or others that are drawn, and a tokenizer with as many tokens as it has
with_text() {
    mkdir "$work/from-$1"
    for file in "$data/cases/$2"/model/*; do
        [ $# = 3 ] || ln -s "$(realpath "$file")" "$work/from-$1/"
    done
    rm -f "$work/from-$1/config.v5.json"
    if [ $# = 3 ]; then
        cp "$data/cases/$2/model/config.json" "$work/from-$1/"
        "$build/tests/system/lib/random_model" "$work/from-$1" || fail "no weights for $2"
    fi
    cp "$llama/tokenizer_config.json" "$work/from-$1/"
    jq --argjson n "$(jq .vocab_size "$data/cases/$2/model/config.json")" \
        '.model.vocab |= with_entries(select(.value < $n)) | .model.merges = []' "$llama/tokenizer.json" >"$work/from-$1/tokenizer.json"
    endless "$work/$1" "$work/from-$1"
}
with_text latent deepseek_v3
with_text linear qwen3_next
with_text dense qwen3_5 drawn
endless "$work/none" "$llama"
start_ring

# answers MODEL NAME: of eight requests at once, at all nodes. Four choose among three tokens, so that some guesses are right.
few=',"logit_bias":{"40":100,"41":100,"42":100}'
answers() {
    waits=
    for i in 1 2 3 4 5 6 7 8; do
        limit 60 curl -sS --max-time 60 --unix-socket "$(sock_of $((i % 3 + 1)))" -H 'Content-Type: application/json' \
            http://localhost/v1/completions -d "$(printf '{"model":"%s","prompt":"Text number %s goes","max_tokens":60,"temperature":%s,"seed":%s%s}' \
            "$1" $i "$([ $((i % 3)) -eq 0 ] && echo 0 || echo 1.2)" $i "$([ $i -le 4 ] || echo "$few")")" >"$work/$2.$i" &
        waits="$waits $!"
    done
    # shellcheck disable=SC2086 # numbers
    wait $waits
    for i in 1 2 3 4 5 6 7 8; do
        jq -er '.choices[0].text, .usage.completion_tokens' "$work/$2.$i" || fail "$2, request $i: $(cat "$work/$2.$i")"
    done >"$work/$2"
}
# serves NODE MODEL OPTIONS…: until it is stopped
serves() {
    node=$1 model=$2
    shift 2
    on "$node" serve --model "$work/$model" --max-context 256 --max-num-seqs 32 "$@" >"$work/said" 2>&1 || fail "serve $*: $(cat "$work/said")"
}
stops() {
    on 1 serve stop "$1" || fail 'stop'
    no_stages 1 2 3
}

for model in latent linear dense; do
    say "$model: without"
    serves 1 $model --draft-max 0
    answers $model plain
    stops $model
    for head in 1 2; do
        say "$model: with its own layer, the head on node $head"
        serves $head $model --draft-mtp
        job=$(sed -n 's/^job \([0-9]*\) serves.*/\1/p' "$work/said")
        : >"$work/events"
        curl -sSN -D "$work/follows" --unix-socket "$(sock_of $head)" "http://localhost/v1/jobs/$job/events" >"$work/events" &
        follower=$!
        await_line "$work/follows" '200 OK' 20
        answers $model ahead
        same "$model, with guesses" "$work/ahead" "$work/plain"
        await_line "$work/events" '"requests": ?0,.*"drafted_tokens": ?[1-9]' 30
        kill $follower
        on 3 serve show $model >"$work/show"
        holds 'what show says' "$work/show" "^guesses +[0-9]+ by the model's own layer"
        [ $head = 1 ] || break
        from=$(next_line "$(log_of 1)")
        kill -KILL "$(stage_of 2)"
        await_line "$(log_of 1)" 'job [0-9]+: begins again' 30 "$from"
        answers $model again
        same "$model, after a stage ended" "$work/again" "$work/plain"
        stops $model
    done
    stops $model
done

say 'what is refused'
on 1 serve --model "$work/none" --draft-mtp >"$work/said" 2>&1 && fail 'a model without such a layer was served'
holds 'a model without such a layer' "$work/said" '--draft-mtp: a model of the family llama has no layer that predicts a further token'
no_stages 1 2 3
