#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Lines typed into ringctl chat on a terminal: editing, the history and its file. The small model of the demo answers, with a chat
# template put beside it.
. "$(dirname "$0")/lib/check.sh"
pty=$build/tests/system/lib/pty
[ -x "$pty" ] || skip "$pty is missing: make test-programs"
mkdir "$work/talks"
cp share/tiny-llama/*.json share/tiny-llama/*.safetensors "$work/talks/"
printf '%s' '{% for m in messages %}{{ m.content }} {% endfor %}' >"$work/talks/chat_template.jinja"
cd "$work" || exit 1
export ringctl pty work
cat >script <<'END'
export TERM=xterm HOME="$work/home"
unset XDG_STATE_HOME
kept=$HOME/.local/state/ringd/chat_history
up=$(printf '\033[A') left=$(printf '\033[D')
enter='
'
wrong() { echo "$*: $(cat -v screen)"; exit 1; }
# at STEP... [-- OPTION...]: a conversation on a terminal; what was said in the file said, what is seen in screen
at() {
    "$pty" 80x24 "$@" >screen 2>&1
}
chat="$work/chat"
printf '#!/bin/sh\nexec "$ringctl" chat --json --model "$work/talks" --max-tokens 2 --temperature 0 "$@" >"$work/said"\n' >"$chat"
chmod +x "$chat"
said() { # WHAT TEXT...: the user's messages
    what=$1
    shift
    for text in "$@"; do echo "$text"; done >wanted
    jq -r '.messages[] | select(.role == "user").content' said >got && cmp got wanted || wrong "$what: said was $(cat got)"
}

# A letter in the middle, a character of two bytes rubbed out, ^D at the end.
at 'await:> ' "send:Onc a time$left$left$left$left$left$left${left}e" "send:$enter" 'await:> ' \
    "send:caf$(printf '\303\251\177')e au lait$enter" 'await:> ' "send:$(printf '\004')" -- "$chat" || wrong "editing, status $?"
said "editing" "Once a time" "cafe au lait"
[ "$(stat -c %a "$kept")" = 600 ] || wrong "the history can be read by others: $(stat -c %a "$kept")"
printf 'Once a time\ncafe au lait\n' | cmp - "$kept" || wrong "the history: $(cat "$kept")"

# The arrow key brings back what was typed in the conversation before; ^C drops a line.
at 'await:> ' "send:nothing of this^C" 'await:> ' "send:$up$up" 'await:Once' "send:$enter" 'await:> ' "send:/quit$enter" -- "$chat" ||
    wrong "the history, status $?"
said "the history" "Once a time"

# ^C right behind typed text, many times: the prompt comes back each time, whatever was read of it.
set --
while [ $# -lt 400 ]; do set -- "$@" "send:nothing of this^C" 'await:> '; done
at 'await:> ' "$@" "send:/quit$enter" -- "$chat" || wrong "^C behind text, status $?"

# Nothing is kept if that is not wanted; nor where it cannot be, which is said.
cp "$kept" before
at 'await:> ' "send:secret$enter" 'await:> ' "send:/quit$enter" -- "$chat" --no-history || wrong "--no-history, status $?"
cmp before "$kept" || wrong "--no-history keeps: $(cat "$kept")"
XDG_STATE_HOME=/dev/null at 'await:are not saved, as /dev/null/ringd/chat_history cannot be used: Not a directory' 'await:> ' "send:x$enter" 'await:> ' \
    "send:/quit$enter" -- "$chat" || wrong "no place for the history, status $?"
said "no place for the history" x

# It does not grow for ever, and the end of it stays.
seq 5000 >"$kept"
chmod 644 "$kept"
at 'await:> ' "send:$up" 'await:5000' "send:^C" 'await:> ' "send:/quit$enter" -- "$chat" || wrong "a long history, status $?"
[ "$(wc -l <"$kept")" -le 1001 ] && [ "$(tail -n 2 "$kept" | head -n 1)" = 5000 ] || wrong "a long history: $(wc "$kept") $(tail -n 2 "$kept")"
[ "$(stat -c %a "$kept")" = 600 ] || wrong "a history that others could read stays so"

# A terminal that cannot move its cursor gives its lines as they are.
TERM=dumb at 'await:> ' "send:plain$enter" 'await:> ' "send:/quit$enter" -- "$chat" || wrong "a dumb terminal, status $?"
said "a dumb terminal" plain
END
limit 120 "$ringctl" local 1 --threads 1 -- exec sh "$work/script" || fail "see above"
say "lines can be edited, and come back"
