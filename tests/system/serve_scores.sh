#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Texts that a deployment scores: the log-probabilities of a job that scores, bit for bit, whoever else asks, in the forms of
# `ringctl score` and of OpenAI's /v1/completions; also when a stage is killed meanwhile.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/../lib/endless.sh"

endless "$work/small" "$llama"
start_ring

# post NODE PATH BODY: the answer
post() {
    limit 60 curl -sS --max-time 60 --unix-socket "$(sock_of "$1")" -H 'Content-Type: application/json' "http://localhost$2" -d "$3"
}
text='The little dog ran over the hill and the owl said it was late.'
long=$(seq -s , 5 204)
# ids FILE: of the job's tokens
ids() { jq -c '[.tokens[].id]' "$1"; }

say 'what jobs say'
yes '{"text":"The little dog ran over the hill and the owl owl owl said owl, owl and owl again."}' | head -n 20 >"$work/owl.jsonl"
on 1 --json train --model "$work/small" --data "$work/owl.jsonl" --adapter-out "$work/owl" --iters 6 --lr 2e-2 >"$work/trained" 2>&1 ||
    fail "owl: $(cat "$work/trained")"
on 1 --json score --model "$work/small" --text "$text" --top-logprobs 3 >"$work/text.job" || fail 'score'
on 1 score --model "$work/small" --text "$text" --top-logprobs 3 >"$work/text.job.table" || fail 'score as a table'
on 2 --json score --model "$work/small" --ids "$long" >"$work/long.job" || fail 'score of ids'
on 1 --json score --model "$work/small" --adapter "$work/owl" --text "$text" --top-logprobs 3 >"$work/owl.job" || fail 'score by the adapter'
cmp -s "$work/owl.job" "$work/text.job" && fail 'an adapter that changes nothing'

say 'what a deployment says'
on 1 serve --model "$work/small" --adapter "$work/owl" --max-context 256 --max-num-seqs 4 --prefill-step-size 24 >"$work/said" 2>&1 ||
    fail "serve: $(cat "$work/said")"
had=$(on 1 jobs --json | jq '.jobs | length')
for node in 1 2 3; do
    on $node --json score --model small --text "$text" --top-logprobs 3 >"$work/text.$node" || fail "score on node $node"
    same "node $node" "$work/text.job" "$work/text.$node"
done
on 1 --json score --model "$work/small" --ids "$long" >"$work/long.served" || fail 'score of the folder'
same 'many pieces' "$work/long.job" "$work/long.served"
on 2 score --model small --text "$text" --top-logprobs 3 >"$work/text.table" || fail 'score as a table'
same 'the table' "$work/text.job.table" "$work/text.table"
on 2 --json score --model owl --text "$text" --top-logprobs 3 >"$work/owl.served" || fail 'score by the adapter'
same 'the adapter' "$work/owl.job" "$work/owl.served"
equal 'jobs' "$(on 1 jobs --json | jq '.jobs | length')" "$had"

say 'among others'
waits=
for i in 1 2 3 4 5 6; do
    post $((i % 3 + 1)) /v1/completions "{\"model\":\"small\",\"prompt\":\"Text $i\",\"max_tokens\":60,\"temperature\":1,\"seed\":$i}" >"$work/other$i" &
    waits="$waits $!"
    on $((i % 3 + 1)) --json score --model small --ids "$long" >"$work/long.$i" &
    waits="$waits $!"
done
# shellcheck disable=SC2086 # numbers
wait $waits
for i in 1 2 3 4 5 6; do
    same "among others, $i" "$work/long.job" "$work/long.$i"
done

say 'in the form of OpenAI'
scores='[.tokens[].logprob]'
echoed='.choices[0].logprobs.token_logprobs'
post 2 /v1/completions "{\"model\":\"small\",\"prompt\":\"$text\",\"max_tokens\":0,\"echo\":true,\"logprobs\":3}" >"$work/echoed"
equal 'of a text' "$(jq -c "$echoed" "$work/echoed")" "$(jq -c "$scores" "$work/text.job")"
equal 'its text' "$(jq -r '.choices[0].text' "$work/echoed")" "$text"
equal 'how it ends' "$(jq -c '[.choices[0].finish_reason, .usage.completion_tokens]' "$work/echoed")" '["length",0]'
equal 'the first token' "$(jq -c '.choices[0].logprobs | [.token_logprobs[0], .top_logprobs[0], .text_offset[0]]' "$work/echoed")" '[null,null,0]'
equal 'the space that a tokenizer begins with' "$(jq -c '.choices[0].logprobs | [.tokens[1], .text_offset[1]]' "$work/echoed")" '[" Th",0]'
equal 'the likeliest' "$(jq -c '[.choices[0].logprobs.top_logprobs[1:][] | length] | unique' "$work/echoed")" '[3]'
jq -e '.choices[0] | .text as $t | .logprobs | [.tokens, .text_offset] | transpose | .[2:] | all(.[0] as $p | .[1] as $at |
    $t[$at:$at + ($p | length)] == $p)' "$work/echoed" >/dev/null || fail "offsets: $(cat "$work/echoed")"
two="[$(ids "$work/text.job"),[$long]]"
post 1 /v1/completions "{\"model\":\"small\",\"prompt\":$two,\"max_tokens\":1,\"echo\":true,\"logprobs\":1,\"temperature\":0}" >"$work/echoed"
equal 'of lists of tokens, with one more' "$(jq -c '[.choices[].logprobs.token_logprobs[:-1]]' "$work/echoed")" \
    "$(jq -cs "map($scores)" "$work/text.job" "$work/long.job")"
equal 'that token is the likeliest' "$(jq -c '[.choices[].logprobs | (.top_logprobs[-1] | add) == .token_logprobs[-1]]' "$work/echoed")" '[true,true]'
post 3 /v1/completions "{\"model\":\"small\",\"prompt\":[$long],\"max_tokens\":2,\"echo\":true,\"logprobs\":1,\"n\":2,\"stream\":true}" >"$work/stream"
for choice in 0 1; do
    sed -n 's/^data: \({.*\)$/\1/p' "$work/stream" |
        jq -cs "[.[].choices[] | select(.index == $choice).logprobs.token_logprobs // [] | .[]] | .[:-2]" >"$work/streamed"
    equal "a stream, answer $choice" "$(cat "$work/streamed")" "$(jq -c "$scores" "$work/long.job")"
done
equal 'nothing is asked for' "$(post 1 /v1/completions '{"model":"small","prompt":"x","max_tokens":0}' | jq -r .error.param)" max_tokens
equal 'a text that is too long' "$(post 1 /v1/score "{\"model\":\"small\",\"prompt\":[$(seq -s , 5 261)]}" | jq -r .error.code)" context_length_exceeded
equal 'one token' "$(post 1 /v1/score '{"model":"small","prompt":[5]}' | jq -r .error.param)" prompt

say 'a stage that is killed'
waits=
for i in 1 2 3 4; do
    on 1 --json score --model small --ids "$long" >"$work/killed.$i" &
    waits="$waits $!"
done
kill -KILL "$(stage_of 3)"
# shellcheck disable=SC2086 # numbers
wait $waits
for i in 1 2 3 4; do
    same "after a kill, $i" "$work/long.job" "$work/killed.$i"
done
RINGD_SOCKET=$(sock_of 3) limit 30 "$ringctl" serve stop small || fail 'stop'
no_stages 1 2 3
