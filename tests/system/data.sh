#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Data sets as people have them, on a ring of three: sums by the names of its keys, texts, alpaca's array, conversations with tools. Each is looked at first
# (ringctl data check), then learnt from, and the loss falls. What is trained is what the printed rows say; a resumed run takes the rows that come next, and
# packing changes nothing but the grouping.
. "$(dirname "$0")/lib/check.sh"
datasets=$data/datasets
cd "$work" || exit 1

# The trained model, with a template that marks turns by the one special token its tokenizer has for that.
mkdir chat
for file in "$llama"/*.safetensors "$llama"/*.json; do
    ln -s "$(realpath "$file")" chat/
done
cat >chat/chat_template.jinja <<'END'
{{ bos_token }}{% for m in messages %}{{ m.role }}: {% if m.content %}{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}call {{ c.function.name }} {{ c.function.arguments.items() | list | length }}{% endfor %}{{ eos_token if m.role == "assistant" }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}
END
cat >talk.jsonl <<'END'
{"messages": [{"role": "user", "content": "Be happy"}, {"role": "assistant", "content": "I am."}, {"role": "user", "content": "And now"}, {"role": "assistant", "content": "Still."}]}
{"messages": [{"role": "user", "content": "Look"}, {"role": "assistant", "content": "Wait.", "weight": 0}, {"role": "user", "content": "Go"}, {"role": "assistant", "tool_calls": [{"function": {"name": "run", "arguments": "{\"far\": 1}"}}]}]}
END

check() { "$ringctl" --color never data check --model chat "$@" 2>err || fail "data check $*: $(cat err)"; }
# rows_are FILE-OF-WHAT-IS-WANTED OPTION...: the rows as they are shown
rows_are() {
    want=$1
    shift
    check "$@" | sed -n '/^row 1,/,$p' | grep -v '^row' | sed 's/ *$//' >rows
    printf '%s\n' "$want" | cmp - rows || fail "$*: $(cat rows)"
}
say "what is trained"
rows_are '<s> user: Be happy
assistant:[[ I am.</s>]]
user: And now
assistant:[[ Still.</s>]]


<s> user: Look
assistant: Wait.</s>
user: Go
assistant:[[ call run 1</s>]]
' --data talk.jsonl --mask assistant
rows_are '<s> user: Be happy
assistant: I am.</s>
user: And now
assistant:[[ Still.</s>
]]

<s> user: Look
assistant: Wait.</s>
user: Go
assistant:[[ call run 1</s>
]]' --data talk.jsonl --mask prompt
rows_are '<s>[[ user: Be happy
assistant: I am.</s>
user: And now
assistant: Still.</s>
]]' --data talk.jsonl --rows 1
"$ringctl" data check --model "$llama" --data talk.jsonl >said 2>&1 && fail "conversations without a template: $(cat said)"
grep -q 'talk.jsonl:1: "messages" needs a chat template' said || fail "$(cat said)"
"$ringctl" data check --model chat --data "$datasets/tables" --mask prompt >said 2>&1 && fail "texts with a mask: $(cat said)"
grep -q 'leave out --mask' said || fail "$(cat said)"
"$ringctl" --json data check --model chat --data "$datasets/tables" --rows 1 >said || fail "data check --json"
equal "splits" "$(jq -c 'keys' said)" '["test","train","valid"]'
equal "rows of train, packs, shown" "$(jq -c '.train | [.rows, .packs, (.first_rows | length), .first_rows[0].trained[0]]' said)" '[1000,1000,1,false]'

# learn NAME OPTION...: the mean loss of the last steps is below that of the first
export ringctl work llama datasets
cat >script <<'END'
learn() {
    name=$1
    shift
    timeout 100 "$ringctl" train --adapter-out "$name" --log "$name.log" --iters 24 --batch-size 4 --lr 1e-2 --rank 4 --target-modules all-linear --seed 3 "$@" >"$name.said" 2>&1 ||
        { cat "$name.said"; exit 1; }
    jq -se '([.[:4][].loss] | add / 4) as $a | ([.[-4:][].loss] | add / 4) as $b | $b < $a - 0.05' "$name.log" >/dev/null ||
        { echo "$name: the loss does not fall"; jq .loss "$name.log"; exit 1; }
    jq -rs '"'"$name"': loss \(.[0].loss) to \(.[-1].loss)"' "$name.log"
}
learn sums --model "$llama" --data "$datasets/sums" --prompt-field question --completion-field answer --mask prompt --seq-len 384 --overlong drop
learn tables --model "$llama" --data "$datasets/tables" --packing --batch-size 2 --seq-len 512
learn alpaca --model "$llama" --data "$datasets/identity.json" --mask prompt --seq-len 256 --group-by-length
learn talk --model chat --data "$datasets/chat/tools.json" --mask assistant --seq-len 512 --overlong split
timeout 60 "$ringctl" --json score --model chat --adapter talk --data "$datasets/chat/weights.jsonl" --mask assistant --seq-len 512 --overlong drop >scored 2>score.err || { cat score.err; exit 1; }
jq -e '.perplexity > 1 and .rows > 0' scored >/dev/null || { cat scored; exit 1; }

# The same rows, packed or not, are as likely.
for pack in "" --packing; do
    timeout 60 "$ringctl" train --model chat --data talk.jsonl --valid "$datasets/identity.json" --mask assistant --seq-len 256 --iters 1 --lr 0 --batch-size 1 \
        --adapter-out packed --log "packed$pack.log" $pack >half.said 2>&1 || { cat half.said; exit 1; }
    jq 'select(.step == 0) | .valid_loss' "packed$pack.log"
done >losses
jq -es '(.[0] - .[1]) / .[0] | fabs < 1e-5' losses >/dev/null || { echo "packed rows are not the rows"; cat losses; exit 1; }

# Half a run, then the other half: the lines of the whole.
train() { timeout 60 "$ringctl" train --model chat --data "$datasets/identity.json" --mask assistant --seq-len 256 --batch-size 8 --packing --group-by-length "$@" >half.said 2>&1; }
train --adapter-out whole --log whole.log --iters 6 || { cat half.said; exit 1; }
train --adapter-out halves --log halves.log --iters 3 || { cat half.said; exit 1; }
train --adapter-out halves --log halves.log --iters 6 --resume || { cat half.said; exit 1; }
jq -c '[.step, .lines, .loss]' whole.log >whole.order
jq -c '[.step, .lines, .loss]' halves.log | cmp - whole.order || { echo "resumed in another order"; exit 1; }
! train --adapter-out halves --iters 9 --resume --seed 1 && grep -q 'seed was 0 and is 1' half.said || { cat half.said; exit 1; }
! train --adapter-out halves --iters 9 --resume --mask none && grep -q 'other data (fingerprint was' half.said || { cat half.said; exit 1; }
END
say "a ring of three learns"
limit 300 "$ringctl" local 3 --threads 1 -- exec sh "$work/script" >said 2>&1 || fail "$(cat said)"
grep ': loss' said
