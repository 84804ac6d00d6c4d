#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A served model with a draft model on its head: the same answers whatever the draft model says, greedy and sampled, alone and among
# others. One that is the model itself is right, another is not. A stage ends, the daemon ends, the draft model is gone: the answers stay.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/../lib/endless.sh"

endless "$work/small" "$llama"
endless "$work/other" "$data/models/qwen3"
endless "$work/strange" "$llama"
jq '(.model.vocab | to_entries | map(select(.value == 300))[0].key) as $k | .model.vocab |= (del(.[$k]) + {"\($k)x": 300})
    | .model.merges |= map(select((if type == "array" then join("") else gsub(" "; "") end) != $k))' \
    "$llama/tokenizer.json" >"$work/tokenizer.json"
rm "$work/strange/tokenizer.json"
mv "$work/tokenizer.json" "$work/strange/"
start_ring

post() { limit 60 curl -sS --max-time 60 --unix-socket "$(sock_of "$1")" -H 'Content-Type: application/json' http://localhost/v1/completions -d "$2"; }
# body NUMBER: a request of its own, every third of them greedy
body() {
    printf '{"model":"small","prompt":"Text number %s goes","max_tokens":60,"temperature":%s,"seed":%s%s}' "$1" \
        "$([ $(($1 % 3)) -eq 0 ] && echo 0 || echo 1.2)" "$1" "$([ $(($1 % 4)) -eq 1 ] && echo ',"presence_penalty":0.5')"
}
# answers NAME: of eight requests at once, at all nodes
answers() {
    waits=
    for i in 1 2 3 4 5 6 7 8; do
        post $((i % 3 + 1)) "$(body $i)" >"$work/$1.$i" &
        waits="$waits $!"
    done
    # shellcheck disable=SC2086 # numbers
    wait $waits
    for i in 1 2 3 4 5 6 7 8; do
        jq -er '.choices[0].text' "$work/$1.$i" || fail "$1, request $i: $(cat "$work/$1.$i")"
    done >"$work/$1"
}
# serves NODE OPTIONS…: until it is stopped
serves() {
    node=$1
    shift
    on "$node" serve --model "$work/small" --max-context 512 --max-num-seqs 32 "$@" >"$work/said" 2>&1 || fail "serve $*: $(cat "$work/said")"
}
stops() {
    on 1 serve stop small || fail 'stop'
    no_stages 1 2 3
}
# drafted: guesses of the draft model, and the right ones, once its requests are over
drafted() {
    await_line "$work/events" '"requests": ?0,.*"drafted_tokens": ?[1-9]' 30
    kill $follower
    on 1 serve show small --json | jq -r '.serving.load | "\(.drafted_tokens) \(.drafted_right)"'
}
# follows: hears the served job's events from now on
follows() {
    job=$(sed -n 's/^job \([0-9]*\) serves.*/\1/p' "$work/said")
    : >"$work/events"
    curl -sSN -D "$work/follows" --unix-socket "$(sock_of 1)" "http://localhost/v1/jobs/$job/events" >"$work/events" &
    follower=$!
    await_line "$work/follows" '200 OK' 20 # from here on it misses nothing
}

say 'without'
serves 1 --draft-max 0
answers without
stops

say 'the model is its own draft model'
serves 1 --draft-model "$work/small"
post 1 "$(body 1)" >"$work/alone"
equal 'alone' "$(jq -r '.choices[0].text' "$work/alone")" "$(jq -r '.choices[0].text' "$work/without.1")"
follows
answers itself
same 'with its own guesses' "$work/itself" "$work/without"
drafted >"$work/counts"
read -r guessed right <"$work/counts"
[ "$guessed" -gt 0 ] && [ $((right * 10)) -ge $((guessed * 9)) ] || fail "of $guessed guesses $right were right"
on 2 serve show small >"$work/show"
holds 'what show says' "$work/show" "^draft +$work/small, weights stored"
holds 'what show says' "$work/show" '^guesses +[0-9]+ by the draft model, [0-9]+ % of them right'
limit 20 curl -sS --unix-socket "$(sock_of 1)" http://localhost/metrics >"$work/metrics"
holds 'metrics' "$work/metrics" '^ringd_serve_drafted_tokens_total\{.*model="small".*\} [1-9]'

say 'a stage ends'
from=$(next_line "$(log_of 1)")
kill -KILL "$(stage_of 1)"
await_line "$(log_of 1)" 'job [0-9]+: begins again' 30 "$from"
answers again
same 'after a stage ended' "$work/again" "$work/without"
stops

say 'quantized on the way, the head elsewhere'
serves 3 --draft-model "$work/small" --draft-weights int4
answers quantized
same 'with a quantized draft model' "$work/quantized" "$work/without"
stops

say 'another model'
cp -rL "$work/other" "$work/lost"
serves 1 --draft-model "$work/lost"
follows
answers answered
same 'with guesses of another model' "$work/answered" "$work/without"
drafted >"$work/counts"
read -r guessed right <"$work/counts"
[ "$guessed" -gt 0 ] && [ "$right" -lt "$guessed" ] || fail "of $guessed guesses of another model $right were right"

say 'it is gone when the daemon of its head is started again: served without'
rm -r "$work/lost"
stop_node 1
start_node 1
await_line "$(log_of 1)" 'job [0-9]+: begins again' 60
limit 60 curl -sS --retry 10 -o "$work/later" --unix-socket "$(sock_of 1)" -H 'Content-Type: application/json' http://localhost/v1/completions \
    -d "$(body 1)"
equal 'after a restart' "$(jq -r '.choices[0].text' "$work/later")" "$(jq -r '.choices[0].text' "$work/without.1")"
answers gone
same 'without the draft model that is gone' "$work/gone" "$work/without"
on 1 log "$(sed -n 's/^job \([0-9]*\) serves.*/\1/p' "$work/said")" >"$work/lines"
holds 'its log' "$work/lines" 'served without its draft model: .*lost'
stops

say 'what is refused'
for options in "--draft-model $work/lost" "--draft-model $work/strange" "--draft-model $work/small --draft-max 0" '--draft-weights int8'; do
    # shellcheck disable=SC2086 # words
    on 1 serve --model "$work/small" $options >"$work/said" 2>&1 && fail "$options was not refused"
    cat "$work/said"
done >"$work/refused"
holds 'a folder that there is not' "$work/refused" '--draft-model .*/lost cannot be opened'
holds 'another vocabulary' "$work/refused" 'has another vocabulary: token 300 is "[^"]*x" there'
holds 'none to guess' "$work/refused" '--draft-model guesses nothing with --draft-max 0'
holds 'no draft model' "$work/refused" '--draft-weights needs --draft-model'
no_stages 1 2 3
