#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Conversations through real daemons: a prompt that goes through the model's chat template, an answer to each line, ^C during
# one of them, and what is said where there is no template.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"

# model NAME JQ-OF-TOKENIZER-CONFIG [FROM]: the trained model with another tokenizer_config.json
model() {
    from=${3:-$llama}
    mkdir "$work/$1"
    for file in "$from"/*.safetensors "$from"/*.json; do
        ln -s "$(realpath "$file")" "$work/$1/"
    done
    rm "$work/$1/tokenizer_config.json"
    jq "$2" "$from/tokenizer_config.json" >"$work/$1/tokenizer_config.json"
}
template='"{{ bos_token }}{% for m in messages %}{{ m.content }}{{ \" \" if not loop.last }}{% endfor %}{{ mark }}"'
model talks ".chat_template = $template"
model lists ".chat_template = [{name: \"tool_use\", template: \"{{ nothing.here }}\"}, {name: \"default\", template: $template}]"
model file '.chat_template = "{{ not this one }}"'
printf '%s' "$template" | jq -j . >"$work/file/chat_template.jinja"
for family in qwen3 deepseek_v3; do
    model $family ".chat_template = $template" "$data/models/$family"
done
model strange '.chat_template = "{{ bos_token }}\n{% include \"x\" %}"'
model refuses '.chat_template = "{{ raise_exception(\"nobody but me\") }}"'

# No token ends this one's answers.
model endless ".chat_template = $template | del(.eos_token)"
for file in config generation_config; do
    jq 'del(.eos_token_id)' "$llama/$file.json" >"$work/$file.new"
    rm "$work/endless/$file.json"
    mv "$work/$file.new" "$work/endless/$file.json"
done
jq '.eos_token_id = null' "$work/endless/config.json" >"$work/config.new" && mv "$work/config.new" "$work/endless/config.json"

export ringctl work llama
cat >"$work/script" <<'END'
ask() { timeout 60 "$ringctl" --json generate --max-tokens 8 "$@" >"$work/out" 2>"$work/err"; }
must() { "$@" || { echo "$*: $(cat "$work/err")"; exit 1; }; }

# The template's text is what a plain prompt of the same words gives, beginning-of-text token and all.
must ask --model "$llama" "Be Once upon a time"
cp "$work/out" "$work/plain"
for model in talks lists file; do
    must ask --model "$work/$model" --chat --system Be "Once upon a time"
    cmp "$work/plain" "$work/out" || { echo "$model: not the tokens of the template's text"; exit 1; }
done
must ask --model "$llama" "Once!"
cp "$work/out" "$work/plain"
must ask --model "$work/talks" --chat --template-arg mark=! Once
cmp "$work/plain" "$work/out" || { echo "--template-arg: other tokens"; exit 1; }

# What is refused is refused with its reason.
refuse() { # PATTERN ARGS...
    pattern=$1
    shift
    ! ask "$@" && grep -Eqe "$pattern" "$work/err" || { echo "$*: $(cat "$work/err")"; exit 1; }
}
refuse 'has no chat template' --model "$llama" --chat x
refuse 'tokenizer_config.json: line 2: the tag \{% include %\} is not known' --model "$work/strange" --chat x
refuse 'refuses these messages: nobody but me' --model "$work/refuses" --chat x
refuse '--system needs --chat' --model "$work/talks" --system a x
refuse '--template-arg .*NAME=VALUE' --model "$work/talks" --chat --template-arg a x

# A conversation: the prompt of the second answer holds all that was said; /reset forgets it.
chat() { timeout 60 "$ringctl" --json chat --max-tokens 6 --temperature 0 "$@" 2>"$work/err"; }
printf 'Once upon a time\nThen\n' | chat --model "$work/talks" --system Be >"$work/said" || { cat "$work/err"; exit 1; }
first=$(jq -r '.messages[2].content' "$work/said")
must ask --model "$llama" --max-tokens 6 "Be Once upon a time"
[ "$(jq -r .text "$work/out")" = "$first" ] || { echo "the first answer: $(cat "$work/said")"; exit 1; }
must ask --model "$llama" --max-tokens 6 "Be Once upon a time $first Then"
[ "$(jq -r .text "$work/out")" = "$(jq -r '.messages[4].content' "$work/said")" ] || { echo "the second answer: $(cat "$work/said")"; exit 1; }
[ "$(jq -c '[.messages[].role]' "$work/said")" = '["system","user","assistant","user","assistant"]' ] || { cat "$work/said"; exit 1; }
# One job answers both, and does not compute again what it has computed.
"$ringctl" --json jobs | jq -e '[.jobs[] | select(.type == "generate")][0:3] | map(.state) == ["done", "done", "done"]' >/dev/null || { "$ringctl" jobs; exit 1; }
turns() { "$ringctl" --json job "$("$ringctl" --json jobs | jq '.jobs[0].id')"; }
again() { # NAME OPTION...: the same conversation once more, with the same answers
    name=$1
    shift
    printf 'Once upon a time\nThen\n' | chat --model "$work/talks" --system Be "$@" >"$work/$name" || { cat "$work/err"; exit 1; }
    cmp "$work/said" "$work/$name" || { echo "$name: other answers: $(cat "$work/$name")"; exit 1; }
}
again kept
turns | jq -e '.result.cached_tokens > 5 and .idle == false' >/dev/null || { echo "nothing was kept: $(turns | jq -c .result)"; exit 1; }
for family in qwen3 deepseek_v3; do # caches of other kinds
    for keep in 0 60; do
        printf 'ROMEO:\nO, speak again\nAnd more' | chat --model "$work/$family" --keep-alive $keep >"$work/$family.$keep" || { cat "$work/err"; exit 1; }
    done
    cmp "$work/$family.0" "$work/$family.60" || { echo "$family: other answers: $(cat "$work/$family.0" "$work/$family.60")"; exit 1; }
    turns | jq -e '.result.cached_tokens > 5' >/dev/null || { echo "$family: nothing was kept: $(turns | jq -c .result)"; exit 1; }
done
again outgrown --max-kv-size 1
turns | jq -e '.result.cached_tokens == 0' >/dev/null || { echo "kept what has no room: $(turns | jq -c .result)"; exit 1; }
again unkept --keep-alive 0
turns | jq -e '.result.cached_tokens == 0 and .spec.keep_alive == 0' >/dev/null || { echo "kept: $(turns | jq -c .result)"; exit 1; }
mkfifo "$work/lines" "$work/answers"
timeout 60 "$ringctl" chat --model "$work/talks" --max-tokens 6 --temperature 0 --keep-alive 600 <"$work/lines" >"$work/answers" 2>"$work/err" &
process=$!
exec 5>"$work/lines" 6<"$work/answers"
echo "Once upon a time" >&5
read -r one <&6
kept=$("$ringctl" --json jobs | jq '.jobs[0] | select(.idle) .id')
must ask --model "$llama" "Once upon a time"
"$ringctl" --json job "$kept" | jq -e '.idle' >/dev/null || { echo "job $kept gives way to what goes beside it"; exit 1; }
echo "Then" >&5
read -r two <&6
exec 5>&-
wait $process || { echo "beside another job: $(cat "$work/err")"; exit 1; }
[ -n "$one" ] && [ -n "$two" ] || { echo "beside another job: \"$one\", \"$two\""; exit 1; }
printf 'One\n/reset\nTwo' | chat --model "$work/talks" | jq -e '.messages | length == 2 and .[0].content == "Two"' >/dev/null ||
    { echo "/reset"; exit 1; }
! echo x | chat --model "$llama" >/dev/null && grep -q 'has no chat template' "$work/err" || { echo "chat without a template"; exit 1; }
END
say "the template, and what it is asked for"
limit 120 "$ringctl" local 2 --threads 1 -- exec sh "$work/script" || fail "see above"

# A job of another node goes beside a conversation in which nobody speaks, which stays loaded.
start_ring
mkfifo "$work/said1" "$work/answered1"
RINGD_SOCKET=$(sock_of 1) limit 90 "$ringctl" chat --model "$work/talks" --max-tokens 6 --temperature 0 --keep-alive 3600 \
    <"$work/said1" >"$work/answered1" 2>"$work/err" &
process=$!
exec 5>"$work/said1" 6<"$work/answered1"
echo "Once upon a time" >&5
read -r answer <&6
[ -n "$answer" ] || fail "no answer: $(cat "$work/err")"
limit 30 env RINGD_SOCKET="$(sock_of 2)" "$ringctl" generate --model "$llama" --max-tokens 2 Once >"$work/out" 2>"$work/waited" ||
    fail "a job of another node waits for a conversation in which nobody speaks: $(cat "$work/waited")"
on 1 --json job 1 | jq -e .idle >/dev/null || fail "the conversation gave way: $(on 1 job 1)"
echo "Then" >&5
read -r answer <&6
[ -n "$answer" ] || fail "no second answer: $(cat "$work/err")"
exec 5>&-
wait $process || fail "the conversation beside another job: $(cat "$work/err")"
exec 6<&-
stop_ring

# ^C as soon as the answer begins: it ends, and the conversation goes on.
cat >"$work/interrupt" <<'END'
mkfifo "$work/in" "$work/heard"
# A shell lets what runs in the background ignore SIGINT.
env --default-signal=INT "$ringctl" chat --model "$work/endless" --max-tokens 100000 --temperature 0 <"$work/in" >"$work/heard" 2>"$work/err" &
process=$!
exec 3>"$work/in" 4<"$work/heard"
echo "Once upon a time" >&3
timeout 30 dd bs=1 count=1 <&4 >"$work/first" 2>/dev/null
kill -INT $process
printf '/reset\n/quit\n' >&3
timeout 30 cat <&4 >"$work/rest" || { echo "the answer goes on after ^C"; kill $process; exit 1; }
wait $process
END
say "^C during an answer"
limit 90 "$ringctl" local 1 --threads 1 -- exec sh "$work/interrupt" || fail "^C: status $?, $(cat "$work/err")"
[ -s "$work/first" ] || fail "no answer at all: $(cat "$work/err")"
[ "$(wc -c <"$work/rest")" -lt 100000 ] || fail "the answer was not ended"
