#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ringctl tokenize, detokenize and render, with the demo's small model and a chat template put beside it: what they print is what a job
# is given. Where the shared data is, the recorded cases of other tokenizers too.
. "$(dirname "$0")/lib/check.sh"
tiny=$PWD/share/tiny-llama
mkdir "$work/talks"
cp "$tiny"/*.json "$tiny"/*.safetensors "$work/talks/"
printf '%s' '{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ tail }}
{% endfor %}{% if tools %}tools: {{ tools | length }}{% endif %}{% if add_generation_prompt %}<assistant>{% endif %}' >"$work/talks/chat_template.jinja"
cd "$work" || exit 1
export RINGD_SOCKET="$work/none"
tokenize() { "$ringctl" tokenize --model "$tiny" "$@"; }
detokenize() { "$ringctl" detokenize --model "$tiny" "$@"; }
render() { "$ringctl" render --model talks "$@"; }

# There and back, as arguments and through pipes, with characters of several tokens and line ends in them.
text="Once upon a time — there was a \"cat\", naïve 猫
and so on"
tokenize "$text" >tokens || fail "tokenize"
cut -f 1 tokens | detokenize - >back || fail "detokenize"
equal "there and back" "$(cat back)" "$text"
printf '%s' "$text" | tokenize - >piped || fail "tokenize -"
same "a pipe and an argument" tokens piped
printf '%s' "$text" | tokenize --json >json || fail "tokenize --json"
equal "the pieces together" "$(jq -r '.pieces | add' json)" "$text"
equal "the ids" "$(jq -r '.ids | join(",")' json)" "$(tokenize --ids "$text")"
cut -f 2 tokens | jq -s -c . >pieces
jq -c .pieces json | cmp - pieces || fail "the pieces: $(cat tokens)"
# shellcheck disable=SC2046 # ids apart
equal "ids as arguments" "$(detokenize $(cut -f 1 tokens) --json | jq -r .text)" "$text"
equal "nothing" "$(tokenize "" | wc -l)" 0
detokenize 1 x 2 2>wrong && fail "detokenize takes what is no id"
holds "what is no id" wrong 'entry 2, "x", is no token id'
detokenize 1,99999 2>wrong && fail "detokenize takes an id that there is not"
holds "an id that there is not" wrong 'entry 2: the tokenizer in .*tiny-llama has no token 99999'
tokenize a b 2>wrong
equal "status of two texts" $? 2
"$ringctl" tokenize --model none x 2>wrong && fail "a model that is not there"
holds "a model that is not there" wrong 'none cannot be opened: No such file'

# As many bytes as a buffer has.
head -c 131072 /dev/zero | tr '\0' a >long
tokenize --json - <long >json || fail "tokenize a long file"
equal "a long file" "$(jq -j '.pieces | add' json | wc -c)" 131072

# Messages as options, as a file, from a pipe; with tools beside them, variables, and without the question for an answer.
printf '<system>Be.\n<user>Hi\n<assistant>' >want
render --message system=Be. --message user=Hi >got || fail "render"
same "messages as options" got want
echo '[{"role": "system", "content": "Be."}, {"role": "user", "content": "Hi"}]' >messages.json
render messages.json >got || fail "render FILE"
same "a file of messages" got want
render - <messages.json >got || fail "render -"
same "messages from a pipe" got want
printf '<system>Be.!\n<user>Hi!\n' >want
render --template-arg tail=! --no-generation-prompt messages.json >got || fail "render with options"
same "options of render" got want
jq -c '{messages: ., tools: [{type: "function"}]}' messages.json | render - | tail -n 1 >got
equal "tools" "$(cat got)" "tools: 1<assistant>"
echo '{"role": "user"}' | render - 2>wrong && fail "render takes what has no messages"
holds "no messages" wrong 'standard input has no messages: a list is needed'
echo '[{"role": "user",' | render - 2>wrong && fail "render takes half a file"
holds "half a file" wrong 'standard input, line 2, column 0: no JSON'
render --message Hi 2>wrong
equal "status of a message without a role" $? 2
holds "a message without a role" wrong 'ROLE=TEXT'
"$ringctl" render --model "$tiny" --message user=Hi 2>wrong && fail "render without a template"
holds "no template" wrong 'has no chat template.*put the chat_template.jinja'

# The same tokens as those that a generation is given.
cat >script <<'END'
"$ringctl" --json generate --model talks --chat --system Be. --max-tokens 1 Hi | jq -c .prompt_ids >fed
"$ringctl" --json generate --model talks --max-tokens 1 "Once upon a time" | jq -c .prompt_ids >fed.text
# A model that cannot converse is refused before anybody is asked for a line.
"$ringctl" chat --model "$tiny" <lines >said 2>wrong &
process=$!
exec 5>lines
wait $process
echo $? >status
END
mkfifo lines
export ringctl tiny
limit 60 "$ringctl" local 1 --threads 1 -- exec sh script 2>nodes || fail "generations: $(cat nodes)"
equal "what a conversation is given" "$(cat fed)" "$(render --json messages.json | jq -c .ids)"
equal "what a text is given" "$(cat fed.text)" "$(tokenize --json "Once upon a time" | jq -c .ids)"
equal "status of a conversation without a template" "$(cat status)" 1
holds "a conversation without a template" wrong 'has no chat template.*put the chat_template.jinja'

# Recorded by other programs.
cases=0
for folder in "$data"/tokenizers/*/; do
    [ -e "$folder/expected.jsonl" ] || continue
    jq -c 'select((.text | explode | index(0) | not) and .text != "")' "$folder/expected.jsonl" | awk 'NR % 83 == 1' >some
    while read -r row; do
        printf '%s\n' "$row" | jq -j .text >text.txt
        "$ringctl" tokenize --model "$folder" --no-special --json - <text.txt >got || fail "tokenize with $folder"
        jq -e --slurpfile got got '.ids == $got[0].ids and (.stream | map(. // "")) == $got[0].pieces' >/dev/null <<ROW || fail "$folder: $row: $(cat got)"
$row
ROW
        equal "special tokens with $folder" "$("$ringctl" tokenize --model "$folder" --json - <text.txt | jq -c .ids)" "$(printf '%s\n' "$row" | jq -c .ids_with_special)"
        equal "back with $folder" "$(printf '%s\n' "$row" | jq -c .ids | "$ringctl" detokenize --model "$folder" --json - | jq -c .text)" "$(printf '%s\n' "$row" | jq -c .decoded)"
        cases=$((cases + 1))
    done <some
done
say "texts as a model sees them; $cases recorded cases of other tokenizers"
