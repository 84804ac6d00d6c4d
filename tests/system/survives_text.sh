#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Generation, conversations and scoring that outlive their processes and nodes: each text goes on where it was, and is that of a
# run in which nothing happened, to the byte.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/../lib/endless.sh"

endless "$work/llama" "$llama"
endless "$work/deepseek" "$data/models/deepseek_v3"
start_ring
mkfifo "$work/stream" "$work/lines"

# generate NAME OPTION...: in the background, its text at descriptor 5
generate() {
    name=$1
    shift
    RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" generate --max-tokens 1500 --seed 3 "$@" >"$work/stream" 2>"$work/$name.err" &
    job_process=$!
    exec 5<"$work/stream"
}
# reach NAME BYTES: so much of the text is there
reach() { timeout 60 dd bs=1 count="$2" <&5 >"$work/$1.text" 2>"$work/dd" || fail "$1 does not come: $(cat "$work/$1.err")"; }
# ended NAME: the job is done; its text and its result
ended() {
    timeout 120 cat <&5 >>"$work/$1.text" || fail "$1 does not end"
    exec 5<&-
    await_end "$job_process" 20 || fail "$1: $(cat "$work/$1.err")"
    result "$1"
}
result() { on 1 --json job "$(on 1 --json jobs | jq '.jobs[0].id')" | jq -c '.result | del(.prompt_seconds, .tokens_per_second, .seconds)' >"$work/$1.result"; }
# the_same NAME AS
the_same() {
    same "the text of $1" "$work/$2.text" "$work/$1.text"
    same "the result of $1" "$work/$2.result" "$work/$1.result"
    no_stages 1 3
}

# A text drawn at random: many of its characters come in several tokens. Its prompt takes several chunks.
wild() { name=$1; shift; generate "$name" --model "$work/llama" --temperature 1.6 --ids "$prompt" "$@"; }
prompt=$(seq -s , 5 504),$(seq -s , 100 399)
wild wild
reach wild 0
ended wild
[ "$(wc -m <"$work/wild.text")" -gt 2000 ] || fail "a short text: $(cat "$work/wild.text")"
for node in 2 1; do
    wild "killed$node"
    reach "killed$node" 900
    kill -KILL "$(stage_of $node)"
    ended "killed$node"
    the_same "killed$node" wild
    holds "what ringctl said" "$work/killed$node.err" "interrupted after token [0-9]+: node n$node: the stage process was killed by SIGKILL"
    holds "what ringctl said" "$work/killed$node.err" 'goes on behind token [0-9]+$'
done

# Two processes, one after the other.
wild twice
reach twice 900
kill -KILL "$(stage_of 2)"
await_line "$work/twice.err" 'goes on behind token' 60
timeout 60 dd bs=1 count=2000 <&5 >>"$work/twice.text" 2>"$work/dd"
kill -KILL "$(stage_of 3)"
ended twice
the_same twice wild

# A text that ends where it was to stop.
stop=$(cut -c 1- "$work/wild.text" | LC_ALL=C grep -ao '[a-z][a-z ]\{6,\}' | tail -n 3 | head -n 1)
[ -n "$stop" ] || fail "no words in $(cat "$work/wild.text")"
wild stops --stop "$stop"
reach stops 0
ended stops
wild stopped --stop "$stop"
reach stopped 900
kill -KILL "$(stage_of 3)"
ended stopped
the_same stopped stops

# Latent attention, experts and weights of 4 bits; and how likely each token was.
few() { name=$1; shift; generate "$name" --model "$work/deepseek" --weights int4 --temperature 0.9 --top-p 0.95 --top-k 200 --min-p 0.001 --repetition-penalty 1.1 --frequency-penalty 0.2 --repeat-last-n 300 --logprobs --top-logprobs 2 "O, speak again"; }
few few
reach few 0
ended few
few again
reach again 900
kill -KILL "$(stage_of 2)"
ended again
the_same again few

# A node is started again, and waited for; or it stays away, and the text goes on without it.
wild back --on-loss wait
reach back 900
stop_node 2 KILL
await_line "$work/back.err" 'node n2 is gone' 60
start_node 2
ended back
the_same back wild
wild fewer --wait-for 1
reach fewer 900
stop_node 2 KILL
ended fewer
the_same fewer wild
holds "what ringctl said" "$work/fewer.err" 'was interrupted at .* after token [0-9]+: node n2 is gone: .*; it waits for n2 until .*, then goes on without'
holds "what ringctl said" "$work/fewer.err" 'is planned again on 2 nodes'
rejoin 2

# The head's own daemon is killed, twice, and another one goes on; who follows the text reads it once.
wild head
for bytes in 900 2000; do
    timeout 60 dd bs=1 count=$bytes <&5 >>"$work/head.text" 2>"$work/dd" || fail "head does not come: $(cat "$work/head.err")"
    lines=$(next_line "$work/head.err")
    stop_node 1 KILL
    await_line "$work/head.err" 'ringd has ended: job [0-9]+ goes on when ringd is started again' 60 "$lines"
    start_node 1
    await_line "$work/head.err" 'goes on behind token [0-9]+$' 60 "$lines"
done
ended head
the_same head wild

# What is not to go on ends.
wild ends --on-loss stop
reach ends 900
kill -KILL "$(stage_of 2)"
timeout 60 cat <&5 >/dev/null
exec 5<&-
await_end "$job_process" 20
equal "the status of a job that is not to go on" $? 1
holds "what ringctl said" "$work/ends.err" '^ringctl: job [0-9]+ failed: node n2: the stage process was killed by SIGKILL'

# chat NAME OPTION...: its lines go to descriptor 4, its answers come from 5, and its events are in NAME.events
chat() {
    name=$1
    shift
    RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" chat --model "$work/llama" --max-tokens 400 --seed 7 --temperature 1.2 "$@" \
        <"$work/lines" >"$work/stream" 2>"$work/$name.err" &
    job_process=$!
    exec 4>"$work/lines" 5<"$work/stream"
    : >"$work/$name.text"
    chat_job=$(($(on 1 --json jobs | jq '.jobs[0].id // 0') + 1))
    curl -sN --unix-socket "$(sock_of 1)" http://localhost/v1/events >"$work/$name.events" 2>/dev/null 4>&- 5<&- &
    watcher=$!
}
# say NAME LINE; hear NAME BYTES: of the answers, so many more; answered NAME N: the N-th answer is whole
say_line() { echo "$2" >&4; }
hear() { timeout 60 dd bs=1 count="$2" <&5 >>"$work/$1.text" 2>"$work/dd" || fail "$1 does not come: $(cat "$work/$1.err")"; }
answered() {
    limit 60 tail -n +1 -F "$work/$1.events" 2>/dev/null | grep -m"$2" -c "^data: {\"id\":$chat_job,\"state\":\"running\",\"result\"" >"$work/count"
    equal "answers of $1" "$(cat "$work/count")" "$2"
}
# over NAME: its text and its result
over() {
    exec 4>&-
    timeout 60 cat <&5 >>"$work/$1.text"
    exec 5<&-
    await_end "$job_process" 20 || fail "$1: $(cat "$work/$1.err")"
    kill $watcher
    wait $watcher 2>/dev/null
    limit 20 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" attach "$(on 1 --json jobs | jq '.jobs[0].id')" >/dev/null 2>&1
    result "$1"
}

# A conversation of three turns in which nothing happens.
chat calm
say_line calm "Once upon a time"
answered calm 1
say_line calm "Then"
answered calm 2
say_line calm "And then"
answered calm 3
over calm
[ "$(jq .cached_tokens "$work/calm.result")" -gt 400 ] || fail "the caches were not used"

# It loses a process while it answers, and another one while nobody speaks: what is said next is heard all the same.
chat rough
say_line rough "Once upon a time"
answered rough 1
say_line rough "Then"
hear rough 900
kill -KILL "$(stage_of 2)"
answered rough 2
kill -KILL "$(stage_of 1)"
say_line rough "And then"
answered rough 3
over rough
the_same rough calm

# It loses a node while nobody speaks, and gets ready before somebody does.
chat quiet --wait-for 1
say_line quiet "Once upon a time"
answered quiet 1
stop_node 2 KILL
await_line "$(log_of 1)" 'reads the conversation again, and waits for the next message' 60
say_line quiet "Then"
answered quiet 2
say_line quiet "And then"
answered quiet 3
over quiet
the_same quiet calm
rejoin 2

# Others do not wait for a conversation that waits for a node; it goes on with the next line once the node is back.
chat yields --on-loss wait
say_line yields "Once upon a time"
answered yields 1
stop_node 2 KILL
await_line "$(log_of 1)" 'interrupted after token 400: node n2 is gone' 60
works "a conversation that waits" 1
say_line yields "Then"
start_node 2 4>&- 5<&- # or it would hold the lines open
answered yields 2
exec 4>&-
limit 60 cat <&5 >/dev/null
exec 5<&-
await_end "$job_process" 20 || fail "the conversation after its node came back: $(cat "$work/yields.err")"
kill $watcher

# score NAME: a data set, in the background
score() {
    RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" --json score --model "$llama" --data "$tables/train.jsonl" --seq-len 256 >"$work/$1.json" 2>"$work/$1.err" &
    job_process=$!
}
score scored
await_end "$job_process" 120 || fail "scored: $(cat "$work/scored.err")"
result scored
score again
await_line "$work/again.err" 'step [0-9]+/1000' 60
kill -KILL "$(stage_of 2)"
await_end "$job_process" 120 || fail "scored again: $(cat "$work/again.err")"
result again
same "the score" "$work/scored.result" "$work/again.result"
score head
await_line "$work/head.err" 'step [0-9]+/1000' 60
stop_node 1 KILL
start_node 1
await_end "$job_process" 120 || fail "scored by two daemons: $(cat "$work/head.err")"
result head
same "the score of two daemons" "$work/scored.result" "$work/head.result"
holds "what ringctl said" "$work/again.err" 'begins again$'
limit 20 curl -sS -o "$work/steps" --unix-socket "$(sock_of 1)" "http://localhost/v1/jobs/$(on 1 --json jobs | jq '.jobs[0].id')/steps"
jq -e '[.steps[].step] | length == 125 and . == unique' "$work/steps" >/dev/null || fail "steps are missing or were said twice: $(jq -c '[.steps[].step]' "$work/steps")"
