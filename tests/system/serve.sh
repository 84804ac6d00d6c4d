#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model that a ring serves: many requests at once, on every node, each with the tokens that it has alone; streams that go on
# when stages are killed; errors in the form of the API that is spoken.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/../lib/endless.sh"

endless "$work/small" "$llama"
start_ring

# post NODE PATH BODY: the answer
post() {
    limit 60 curl -sS --max-time 60 --unix-socket "$(sock_of "$1")" -H 'Content-Type: application/json' "http://localhost$2" -d "$3"
}
get() { limit 20 curl -sS --unix-socket "$(sock_of "$1")" "http://localhost$2"; }
# asks NODE NAME BODY: in the background; its answer in $work/NAME
asks() { post "$1" /v1/completions "$3" >"$work/$2" & }
# body PROMPT TOKENS [MORE]
body() { printf '{"model":"small","prompt":%s,"max_tokens":%s%s}' "$1" "$2" "${3:-}"; }
text_of() { jq -er '.choices[0].text' "$work/$1" || fail "$1: $(cat "$work/$1")"; }
# streamed FILE: what its events say
streamed() { sed -n 's/^data: \({.*\)$/\1/p' "$1" | jq -j '.choices[]?.text // ""'; }

say 'served until it is stopped'
on 1 serve --model "$work/small" --max-context 512 --max-num-seqs 16 --prefill-step-size 32 >"$work/said" 2>"$work/said.err" ||
    fail "serve: $(cat "$work/said.err")"
holds 'what serve says' "$work/said" '^job 1 serves small\.'
on 2 serve list >"$work/list"
holds 'the list on another node' "$work/list" '^small +1@n1 '
for node in 1 2 3; do
    equal "the models of node $node" "$(get $node /v1/models | jq -r '.data[].id')" small
done

say 'alone, among others, again, on any node: the same tokens'
long=$(seq -s , 5 204)
asks 1 alone "$(body '"The little dog"' 60 ',"temperature":1.2,"seed":7')"
wait $!
asks 1 prompt "$(body "[$long]" 40 ',"temperature":1.2,"seed":9')"
wait $!
waits=
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    asks $((i % 3 + 1)) "among$i" "$(body "\"Text number $i goes\"" 50 ",\"temperature\":1,\"seed\":$i")"
    waits="$waits $!"
done
asks 2 among "$(body '"The little dog"' 60 ',"temperature":1.2,"seed":7')"
waits="$waits $!"
asks 3 again "$(body "[$long]" 40 ',"temperature":1.2,"seed":9')"
# shellcheck disable=SC2086 # numbers
wait $waits $!
equal 'among others' "$(text_of among)" "$(text_of alone)"
equal 'behind a prompt that was there' "$(text_of again)" "$(text_of prompt)"
equal 'tokens that were there' "$(jq .usage.prompt_tokens_details.cached_tokens "$work/again")" 192
equal 'tokens of a prompt' "$(jq .usage.prompt_tokens "$work/again")" 200
equal 'tokens of an answer' "$(jq .usage.completion_tokens "$work/again")" 40

say 'what generate says'
RINGD_SOCKET=$(sock_of 1) limit 30 "$ringctl" serve stop small || fail 'stop'
await_line "$(log_of 1)" 'job 1: (cancelled|it was cancelled)' 20
on 1 --json generate --model "$work/small" --max-tokens 60 --temperature 1.2 --seed 7 'The little dog' | jq -r .text >"$work/generated"
equal 'generate' "$(cat "$work/generated")" "$(text_of alone)"
no_stages 1 2 3

say 'nodes that share each stage: the same tokens'
on 1 serve --model "$work/small" --name shared --max-context 512 --prefill-step-size 32 --parallel tp=2,pp=1 >"$work/said" 2>"$work/said.err" ||
    fail "serve: $(cat "$work/said.err")"
waits=
for i in 1 2 3 4; do
    asks $((i % 3 + 1)) "beside$i" "$(body "\"Text number $i goes\"" 50 ",\"temperature\":1,\"seed\":$i" | sed s/small/shared/)"
    waits="$waits $!"
done
asks 2 shared "$(body '"The little dog"' 60 ',"temperature":1.2,"seed":7' | sed s/small/shared/)"
# shellcheck disable=SC2086 # numbers
wait $waits $!
equal 'on two nodes that share it' "$(text_of shared)" "$(text_of alone)"
for i in 1 2 3 4; do
    equal "beside it, text $i" "$(text_of "beside$i")" "$(text_of "among$i")"
done
RINGD_SOCKET=$(sock_of 1) limit 30 "$ringctl" serve stop shared || fail 'stop'
no_stages 1 2 3

say 'a stream goes on when stages are killed, with the same tokens'
on 2 serve --model "$work/small" --name other --max-context 512 >"$work/said" 2>&1 || fail "serve: $(cat "$work/said")"
other() { printf '{"model":"other","prompt":"Once upon","max_tokens":400,"temperature":1.3,"seed":3%s}' "$1"; }
post 1 /v1/completions "$(other '')" >"$work/calm"
for node in 3 2; do
    mkfifo "$work/stream$node"
    post 1 /v1/completions "$(other ',"stream":true')" >"$work/stream$node" &
    asker=$!
    exec 5<"$work/stream$node"
    dd bs=1 count=4000 <&5 >"$work/streamed$node" 2>"$work/dd"
    kill -KILL "$(stage_of $node)"
    limit 60 cat <&5 >>"$work/streamed$node"
    exec 5<&-
    await_end $asker 20
    equal "the stream after the stage of n$node was killed" "$(streamed "$work/streamed$node")" "$(text_of calm)"
    holds 'its end' "$work/streamed$node" '^data: \[DONE\]'
done
on 2 serve list >"$work/list"
holds 'still served' "$work/list" '^other +1 +running'

say 'stages that end while nobody asks are no fault of the model'
for node in 1 3 2 1; do
    from=$(next_line "$(log_of 2)")
    kill -KILL "$(stage_of $node)"
    await_line "$(log_of 2)" 'job 1: begins again' 30 "$from"
done
limit 60 curl -sS --retry 10 -o "$work/idle" --unix-socket "$(sock_of 1)" -H 'Content-Type: application/json' http://localhost/v1/completions \
    -d "$(other '')"
equal 'after four kills' "$(text_of idle)" "$(text_of calm)"

say 'generate and chat ask what is served, by its name or its folder: nothing is opened'
on 3 generate --model other --max-tokens 400 --temperature 1.3 --seed 3 'Once upon' >"$work/asked" || fail 'generate --model other'
equal 'generate --model other' "$(cat "$work/asked")" "$(text_of calm)"
on 2 generate --model "$work/small" --max-tokens 400 --temperature 1.3 --seed 3 'Once upon' >"$work/asked" || fail 'generate of the folder'
equal 'generate of the folder' "$(cat "$work/asked")" "$(text_of calm)"
printf 'Once upon\nagain\n' | on 1 chat --model other --temperature 1.3 --seed 3 --max-tokens 20 --json >"$work/asked" || fail 'chat'
equal 'turns of chat' "$(jq '.messages | map(.role) | join(" ")' "$work/asked")" '"user assistant user assistant"'
for node in 1 2 3; do
    equal "short jobs of node $node" "$(on $node jobs --json | jq '[.jobs[] | select(.model == "'"$work/small"'" and .state == "running")] | length')" 1
done

say 'answers in a form'
form() { post "$1" /v1/chat/completions "{\"model\":\"other\",\"messages\":[{\"role\":\"user\",\"content\":\"Who?\"}],\"max_tokens\":300,\"temperature\":1,\"seed\":$2,$3}"; }
person='"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{
    "name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":1,"maximum":99},"likes":{"enum":["bread","wine"]}},
    "required":["name","age","likes"]}}}'
for seed in 1 2 3 4; do
    form $((seed % 3 + 1)) $seed "$person" >"$work/form$seed"
    jq -er '.choices[0].message.content' "$work/form$seed" | jq -e '(.name | length <= 12) and (.age | . == floor and 1 <= . and . <= 99) and
        ([.likes] | inside(["bread", "wine"])) and (keys == ["age", "likes", "name"])' >"$work/valid" ||
        fail "form $seed: $(cat "$work/form$seed")"
    equal "the end of form $seed" "$(jq -r '.choices[0].finish_reason' "$work/form$seed")" stop
done
equal 'a grammar' "$(form 1 5 '"grammar":"root ::= (\"ab\" | \"cd\"){3} [0-9]"' | jq -r '.choices[0].message.content' | grep -Ec '^(ab|cd){3}[0-9]$')" 1
equal 'what a grammar lacks' "$(form 1 5 '"grammar":"root ::= foo"' | jq -r .error.message)" \
    'line 1, column 10: this rule is used here and nowhere defined'
equal 'what no schema can hold' "$(form 1 5 '"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"not":{}}}}' |
    jq -r .error.type)" invalid_request_error

say 'what asks for too much, or for nothing'
error_of() { post 1 "$1" "$2" | jq -r '.error.message'; }
equal 'no such model' "$(post 1 /v1/completions '{"model":"none","prompt":"x"}' | jq -r '.error.code')" model_not_found
case $(error_of /v1/completions '{"model":"other","prompt":"x","max_tokens":5000}') in
*'both together may be 512 here'*) ;;
*) fail "too many tokens: $(error_of /v1/completions '{"model":"other","prompt":"x","max_tokens":5000}')" ;;
esac
equal 'of Anthropic' "$(post 3 /v1/messages '{"model":"none","max_tokens":5,"messages":[{"role":"user","content":"x"}]}' | jq -r '.error.type')" \
    not_found_error
post 3 /v1/messages '{"model":"other","max_tokens":5,"messages":[{"role":"user","content":"God said"}]}' >"$work/message"
equal 'a message' "$(jq -r '.content[0].type, .stop_reason' "$work/message" | tr '\n' ' ')" 'text max_tokens '
equal 'an embedding has length 1' "$(post 1 /v1/embeddings '{"model":"other","input":["a b","c"]}' |
    jq -c '[.data[].embedding | map(. * .) | add | . * 1000 | round]')" '[1000,1000]'
post 2 /v1/tokenize '{"model":"other","prompt":"In the beginning"}' >"$work/tokens"
equal 'back from tokens' "$(post 3 /v1/detokenize "$(jq -c '{model: "other", tokens: .tokens}' "$work/tokens")" | jq -r .content)" \
    "$(jq -r .text <<IN
$(on 1 --json detokenize --model "$work/small" "$(jq -r '.tokens | join(" ")' "$work/tokens")")
IN
    )"

say 'it is there again when the daemon of its head was started again'
stop_node 2
start_node 2
await_line "$(log_of 2)" 'job 1: begins again' 30
# Until its stage takes requests they are refused for a moment, and curl does what Retry-After says.
limit 60 curl -sS --retry 10 -o "$work/later" --unix-socket "$(sock_of 2)" -H 'Content-Type: application/json' http://localhost/v1/completions \
    -d "$(other '')"
equal 'after a restart' "$(text_of later)" "$(text_of calm)"
RINGD_SOCKET=$(sock_of 3) limit 30 "$ringctl" serve stop other || fail 'stop'
no_stages 1 2 3
