#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model that is served with adapters: each is a model of its own to clients, many share a batch, and each answer has the tokens
# that it has alone. Adapters come and go while others are answered.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/../lib/endless.sh"

endless "$work/small" "$llama"
start_ring

post() { # NODE PATH BODY [OPTION...]: the answer
    post_to=$(sock_of "$1")
    post_at=http://localhost$2
    post_of=$3
    shift 3
    limit 60 curl -sS --max-time 60 "$@" --unix-socket "$post_to" -H 'Content-Type: application/json' "$post_at" -d "$post_of"
}
get() { limit 20 curl -sS --unix-socket "$(sock_of "$1")" "http://localhost$2"; }
prompt='The little dog ran over the hill and'
# ask NODE NAME MODEL [SEED]: its answer in $work/NAME. A model that is not ready yet is asked again, as Retry-After says.
ask() {
    post "$1" /v1/completions "{\"model\":\"$3\",\"prompt\":\"$prompt\",\"max_tokens\":40,\"temperature\":${4:+1.}${4:-0},\"seed\":${4:-0}}" \
        --retry 10 -o "$work/$2"
}
text_of() { jq -er '.choices[0].text' "$work/$1" || fail "$1: $(cat "$work/$1")"; }
models() { get "$1" /v1/models | jq -c '[.data[] | [.id, .parent // ""]]'; }

say 'two adapters, of other linears and layers'
for name in owl fox; do
    yes "{\"text\":\"The little dog ran over the hill and the $name $name $name said $name, $name and $name again.\"}" | head -n 20 >"$work/$name.jsonl"
done
on 1 --json train --model "$work/small" --data "$work/owl.jsonl" --adapter-out "$work/owl" --iters 12 --lr 2e-2 >"$work/trained" 2>&1 ||
    fail "owl: $(cat "$work/trained")"
on 2 --json train --model "$work/small" --data "$work/fox.jsonl" --adapter-out "$work/fox" --iters 12 --lr 1e-2 --rank 4 --num-layers 2 \
    --target-modules all-linear >"$work/trained" 2>&1 || fail "fox: $(cat "$work/trained")"
generated() { # [OPTION...]: what a job of its own says
    on 1 --json generate --model "$work/small" --max-tokens 40 "$@" "$prompt" | jq -r .text
}
generated >"$work/plain.said"
generated --adapter "$work/owl" >"$work/owl.said"
generated --adapter "$work/fox" >"$work/fox.said"
[ "$(sort -u "$work"/*.said | wc -l)" = 3 ] || fail "adapters that change nothing: $(cat "$work"/*.said)"

say 'served: each is a model'
on 1 serve --model "$work/small" --adapter "$work/owl" --adapter reynard="$work/fox" --max-context 256 --max-num-seqs 16 \
    --prefill-step-size 32 >"$work/said" 2>&1 || fail "serve: $(cat "$work/said")"
served=$(sed -n 's/^job \([0-9]*\) serves small\..*/\1/p' "$work/said")
for node in 1 2 3; do
    equal "the models of node $node" "$(models $node)" '[["small",""],["owl","small"],["reynard","small"]]'
done
equal 'one of them' "$(get 2 /v1/models/reynard | jq -r .parent)" small

say 'alone, among others, behind a prompt that was there: what generate says'
same_as() { equal "$1" "$(text_of "$2")" "$(cat "$work/$3.said")"; }
ask 1 cold small
ask 2 cold.owl owl
ask 3 cold.fox reynard
same_as 'the model' cold plain
same_as 'owl' cold.owl owl
same_as 'fox' cold.fox fox
equal 'tokens of the prompt that others had' "$(jq -s 'map(.usage.prompt_tokens_details.cached_tokens) | add' "$work/cold.owl" "$work/cold.fox")" 0
waits=
for i in 1 2 3 4 5 6; do
    ask $((i % 3 + 1)) "plain$i" small &
    waits="$waits $!"
    ask $((i % 3 + 1)) "owl$i" owl &
    waits="$waits $!"
    ask $((i % 3 + 1)) "fox$i" reynard &
    waits="$waits $!"
    ask $((i % 3 + 1)) "drawn$i" owl "$i" &
    waits="$waits $!"
done
# shellcheck disable=SC2086 # numbers
wait $waits
for i in 1 2 3 4 5 6; do
    same_as "the model, $i" "plain$i" plain
    same_as "owl, $i" "owl$i" owl
    same_as "fox, $i" "fox$i" fox
done
[ "$(jq .usage.prompt_tokens_details.cached_tokens "$work/owl6")" -gt 0 ] || fail "nothing of owl's prompt was there: $(cat "$work/owl6")"
ask 1 drawn owl 3
equal 'drawn alone' "$(text_of drawn)" "$(text_of drawn3)"
RINGD_SOCKET=$(sock_of 3) limit 30 "$ringctl" generate --model owl --max-tokens 40 "$prompt" >"$work/asked" || fail 'generate --model owl'
equal 'generate --model owl' "$(cat "$work/asked")" "$(cat "$work/owl.said")"

embedding() { post 1 /v1/embeddings "{\"model\":\"$1\",\"input\":\"the dog\"}" | jq -c '.data[0].embedding'; }
[ "$(embedding owl)" != "$(embedding small)" ] || fail 'an embedding by owl is that of the model alone'
equal 'no such adapter' "$(post 2 /v1/completions '{"model":"wolf","prompt":"x"}' | jq -r .error.code)" model_not_found

say 'what is served'
on 2 serve show small >"$work/shown" || fail 'show'
for line in "^small: job $served@n1, running" '^adapter  owl, from .*/owl$' '^adapter  reynard, from .*/fox$' '^requests 0 in flight, 0 waiting' '^  0 +n1 '; do
    holds 'show' "$work/shown" "$line"
done

# stream NAME MODEL: the answer's events go to $work/NAME; returns when the answer has begun
stream() {
    mkfifo "$work/$1.pipe"
    limit 60 curl -sS -N --unix-socket "$(sock_of 3)" -H 'Content-Type: application/json' http://localhost/v1/completions \
        -d "{\"model\":\"$2\",\"prompt\":\"$prompt\",\"max_tokens\":200,\"temperature\":1,\"seed\":5,\"stream\":true}" >"$work/$1.pipe" &
    asker=$!
    exec 5<"$work/$1.pipe"
    dd bs=1 count=2000 <&5 >"$work/$1" 2>"$work/dd"
}
end_stream() {
    limit 60 cat <&5 >>"$work/$1"
    exec 5<&-
    await_end $asker 20
}
streamed() { sed -n 's/^data: \({.*\)$/\1/p' "$work/$1" | jq -j '.choices[]?.text // ""'; }

curl -sN --unix-socket "$(sock_of 3)" http://localhost/v1/events >"$work/events" 2>/dev/null &
events=$!
# heard NAMES: node 3 knows what is served with the model
heard() { await_line "$work/events" "\"id\":$served,.*\"serves_with\":\[$1\]" 20; }

say 'an adapter comes while a stream goes on'
post 1 /v1/completions "{\"model\":\"owl\",\"prompt\":\"$prompt\",\"max_tokens\":200,\"temperature\":1,\"seed\":5}" >"$work/calm"
stream coming owl
RINGD_SOCKET=$(sock_of 1) limit 60 "$ringctl" serve adapter add small fox2="$work/fox" >"$work/said" 2>&1 || fail "add: $(cat "$work/said")"
end_stream coming
equal 'the stream' "$(streamed coming)" "$(text_of calm)"
heard '"owl","reynard","fox2"'
equal 'the models' "$(models 3)" '[["small",""],["owl","small"],["reynard","small"],["fox2","small"]]'
ask 3 added fox2
same_as 'the one that came' added fox

say 'what cannot be served changes nothing'
mkdir "$work/broken"
jq '.r = 3' "$work/owl/adapter_config.json" >"$work/broken/adapter_config.json"
cp "$work/owl/adapter_model.safetensors" "$work/broken/"
stream staying owl
RINGD_SOCKET=$(sock_of 1) limit 60 "$ringctl" serve adapter add small broken="$work/broken" >"$work/said" 2>&1 && fail 'a broken adapter was added'
holds 'why' "$work/said" "^ringctl: job $served goes on as it was: node n1: --adapter broken"
end_stream staying
equal 'the stream' "$(streamed staying)" "$(text_of calm)"
equal 'the models' "$(models 1)" '[["small",""],["owl","small"],["reynard","small"],["fox2","small"]]'
on 1 serve adapter remove small wolf >"$work/said" 2>&1 && fail 'wolf was removed'
holds 'no such adapter' "$work/said" 'the job serves no adapter "wolf"'
on 1 serve adapter add small small="$work/owl" >"$work/said" 2>&1 && fail 'the name of the model was taken'
holds 'a name that is taken' "$work/said" 'what clients call the model without adapters'

say 'an adapter goes, and its answers end'
stream going reynard
RINGD_SOCKET=$(sock_of 1) limit 60 "$ringctl" serve adapter remove small reynard >"$work/said" 2>&1 || fail "remove: $(cat "$work/said")"
end_stream going
holds 'the end of its stream' "$work/going" 'the adapter \\"reynard\\" is not served any more'
heard '"owl","fox2"'
equal 'it is no model' "$(post 3 /v1/completions '{"model":"reynard","prompt":"x"}' | jq -r .error.code)" model_not_found
ask 2 left owl
same_as 'the one that stays' left owl

say 'a training puts its adapter in place, under a new name and again: answers end with the one that they began with'
long='{"model":"bird","prompt":"The","max_tokens":200,"temperature":1.1,"seed":5}'
# asked FILE: the same question again and again, each answer a line, until there is $work/enough
asked() {
    while [ ! -e "$work/enough" ]; do
        post 2 /v1/completions "$long" --retry 10 | jq -c '.choices[0].text' >>"$work/$1"
    done
}
askers=
for name in wren seal; do
    if [ $name = seal ]; then
        for i in 1 2 3 4 5 6; do
            asked "asked$i" &
            askers="$askers $!"
        done
    fi
    from=$(next_line "$(log_of 1)")
    yes "{\"text\":\"The little dog ran over the hill and the $name $name $name said $name, $name and $name again.\"}" | head -n 20 >"$work/bird.jsonl"
    on 1 --json train --model "$work/small" --data "$work/bird.jsonl" --adapter-out "$work/bird" --iters 12 --lr 2e-2 --serve-as bird@small \
        >"$work/trained" 2>&1 || fail "$name: $(cat "$work/trained")"
    await_line "$(log_of 1)" "job $served: is served with (the|another form of the) adapter bird" 30 "$from"
    heard '"owl","fox2","bird"'
    generated --adapter "$work/bird" >"$work/$name.said"
    ask 2 "bird.$name" bird
    same_as "$name" "bird.$name" "$name"
    post 1 /v1/completions "$long" --retry 10 | jq -c '.choices[0].text' >"$work/$name.long"
done
touch "$work/enough"
# shellcheck disable=SC2086 # numbers
wait $askers
sort -u "$work"/asked[1-6] >"$work/answers"
sort -u "$work/wren.long" "$work/seal.long" >"$work/wanted"
same 'answers while an adapter was replaced' "$work/wanted" "$work/answers"
holds 'what they began with' "$(log_of 1)" "job $served: is served with another form of the adapter bird"
cmp -s "$work/wren.said" "$work/seal.said" && fail 'both birds say the same'
say 'a training of another node does, at each save: what was saved later changes nothing of what is served'
from=$(next_line "$(log_of 1)")
at=$(next_line "$(log_of 2)")
on 2 --json train --model "$work/small" --data "$work/owl.jsonl" --adapter-out "$work/hen" --iters 60 --lr 1e-2 --save-every 20 --serve-as hen@small \
    >"$work/trained" 2>&1 &
training=$!
await_line "$(log_of 2)" 'its adapter of step 20 goes to the deployment' 60 "$at"
wait $training || fail "hen: $(cat "$work/trained")"
await_line "$(log_of 2)" 'its adapter of step 60 goes to the deployment' 60 "$at"
await_line "$(log_of 1)" "job $served: is served with (the|another form of the) adapter hen" 30 "$from"
heard '"owl","fox2","bird","hen"'
generated --adapter "$work/hen" >"$work/hen.said"
rm -r "$work/hen"
ask 3 hen hen
same_as 'the last one that was saved' hen hen
[ "$(find "$work/n1/results" -name '.served-*' | wc -l)" -le 3 ] || fail "folders that nobody reads: $(ls -a "$work/n1/results")"
on 3 train --model "$work/small" --data "$work/bird.jsonl" --adapter-out "$work/other" --serve-as bird@large >"$work/said" 2>&1 &&
    fail 'a deployment that there is not took a training'
holds 'which' "$work/said" 'there is no deployment of large'

kill $events
wait $events 2>/dev/null

say 'it is there again after a restart'
stop_node 1
start_node 1
await_line "$(log_of 1)" "job $served: begins again" 30
equal 'the models' "$(models 1)" '[["small",""],["owl","small"],["fox2","small"],["bird","small"],["hen","small"]]'
ask 1 later fox2
same_as 'after a restart' later fox
ask 2 later.hen hen
same_as 'what came from another node, after a restart' later.hen hen
RINGD_SOCKET=$(sock_of 3) limit 30 "$ringctl" serve stop small || fail 'stop'
no_stages 1 2 3

say 'on one node, and on two: the same'
cat >"$work/in-ring" <<'END'
set -e
"$ringctl" serve --model "$work/small" --adapter "$work/owl" --adapter "$work/fox" --max-context 256 >"$work/local.said"
for model in small owl fox; do
    "$ringctl" generate --model $model --max-tokens 40 "$prompt" >"$work/local.$model"
done
END
export ringctl work prompt
for nodes in 1 2; do
    limit 60 "$ringctl" local $nodes exec sh "$work/in-ring" >"$work/said" 2>&1 || fail "$nodes nodes: $(cat "$work/said")"
    equal "the model on $nodes" "$(cat "$work/local.small")" "$(cat "$work/plain.said")"
    equal "owl on $nodes" "$(cat "$work/local.owl")" "$(cat "$work/owl.said")"
    equal "fox on $nodes" "$(cat "$work/local.fox")" "$(cat "$work/fox.said")"
done
