#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model that is served is spread over a node that joins, and leaves one that is drained; the stream under way has the tokens that
# it has in peace. With --keep-alive it leaves all nodes while nobody asks. Keys and values are kept in 8 bits.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/../lib/endless.sh"

endless "$work/small" "$llama"
start_ring

body() { printf '{"model":"small","prompt":"Once upon","max_tokens":%s,"temperature":1.3,"seed":3%s}' "$1" "$2"; }
post() {
    limit 120 curl -sS --max-time 120 --unix-socket "$(sock_of "$1")" -H 'Content-Type: application/json' http://localhost/v1/completions -d "$2"
}
streamed() { sed -n 's/^data: \({.*\)$/\1/p' "$1" | jq -j '.choices[]?.text // ""'; }

say 'on two nodes of three'
stop_node 3
on 1 serve --model "$work/small" --kv int8 --max-context 2048 >"$work/said" 2>&1 || fail "serve: $(cat "$work/said")"
await_line "$(log_of 1)" 'job 1: planned: n[12] .*, n[12] ' 20
equal 'the type of keys and values' "$(on 1 job 1 --json | jq -r '.plan.kv_type')" int8
post 2 "$(body 1500 '')" >"$work/calm"

say 'a third joins, and one is drained, in the middle of a stream'
mkfifo "$work/stream"
post 2 "$(body 1500 ',"stream":true')" >"$work/stream" &
asker=$!
exec 5<"$work/stream"
dd bs=1 count=2000 <&5 >"$work/streamed" 2>"$work/dd"
start_node 3
await_line "$(log_of 1)" 'job 1: stops after its next token: node n3 can take part' 60
await_line "$(log_of 1)" 'job 1: planned: .*n3 ' 30
from=$(next_line "$(log_of 1)")
on 1 drain n3 --reason 'a new disk' || fail 'drain'
await_line "$(log_of 1)" 'job 1: stops after its next token: node n3 is drained: a new disk' 30 "$from"
await_line "$(log_of 1)" 'job 1: planned: n[12] [^,]*, n[12] [^,]*$' 30 "$from"
limit 120 cat <&5 >>"$work/streamed"
exec 5<&-
await_end $asker 20
equal 'the stream' "$(streamed "$work/streamed")" "$(jq -r '.choices[0].text' "$work/calm")"
from=$(next_line "$(log_of 1)")
on 1 undrain n3 || fail 'undrain'
await_line "$(log_of 1)" 'job 1: stops after its next token: node n3 can take part' 60 "$from"
await_line "$(log_of 1)" 'job 1: begins again' 30 "$from"
equal 'after all' "$(post 3 "$(body 100 '')" | jq -r '.choices[0].text')" "$(post 1 "$(body 100 '')" | jq -r '.choices[0].text')"
on 1 serve stop small || fail 'stop'
no_stages 1 2 3

say 'with --keep-alive it lets its nodes go while nobody asks, and the next request loads it again'
on 2 serve --model "$work/small" --kv int8 --keep-alive 1 --max-context 2048 >"$work/said" 2>&1 || fail "serve: $(cat "$work/said")"
await_line "$(log_of 2)" 'nobody has asked for 1 s, so it let its memory go' 30
on 2 serve list >"$work/list"
holds 'the list' "$work/list" '^small +1 +paused'
for node in 3 2; do # whichever node is asked
    from=$(next_line "$(log_of 2)")
    equal "of node $node" "$(post $node "$(body 1500 '')" | jq -r '.choices[0].text')" "$(jq -r '.choices[0].text' "$work/calm")"
    await_line "$(log_of 2)" 'nobody has asked for 1 s, so it let its memory go' 30 "$from"
done
stop_node 2
from=$(next_line "$(log_of 2)")
start_node 2
await_line "$(log_of 2)" 'a ring of 3' 30 "$from"
# Who asks first does what Retry-After says: the daemon does not know yet what the model takes.
limit 60 curl -sS --retry 10 -o "$work/later" --unix-socket "$(sock_of 2)" -H 'Content-Type: application/json' http://localhost/v1/completions \
    -d "$(body 1500 '')"
equal 'after a restart' "$(jq -r '.choices[0].text' "$work/later")" "$(jq -r '.choices[0].text' "$work/calm")"

await_line "$(log_of 2)" 'nobody has asked for 1 s, so it let its memory go' 30 "$from"
say 'the node that it rests on is lost: another one has it, and loads it again'
heir=$(on 2 job "$(on 2 serve list | awk '$1 == "small" {print $2}')" --json | jq -r .deputy)
from=$(next_line "$(log_of "${heir#n}")")
kill -KILL "$(pid_of 2)"
await_line "$(log_of "${heir#n}")" 'job [0-9]+: begins again' 60 "$from"
limit 60 curl -sS --retry 10 -o "$work/later" --unix-socket "$(sock_of 1)" -H 'Content-Type: application/json' http://localhost/v1/completions \
    -d "$(body 1500 '')"
equal 'after the loss' "$(jq -r '.choices[0].text' "$work/later")" "$(jq -r '.choices[0].text' "$work/calm")"
on 1 serve stop small || fail 'stop'
