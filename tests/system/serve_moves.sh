#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model that is served is spread over a node that joins, leaves one that is drained, and goes on where it was when a newcomer
# has no such model; the stream under way has the tokens that it has in peace.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/../lib/endless.sh"

endless "$work/small" "$llama"
start_ring

body() { printf '{"model":"small","prompt":"Once upon","max_tokens":%s,"temperature":1.3,"seed":3%s}' "$1" "$2"; }
post() {
    limit 120 curl -sS --max-time 120 --retry 10 --unix-socket "$(sock_of "$1")" -H 'Content-Type: application/json' http://localhost/v1/completions -d "$2"
}
streamed() { sed -n 's/^data: \({.*\)$/\1/p' "$1" | jq -j '.choices[]?.text // ""'; }

say 'on two nodes of three'
stop_node 3
on 1 serve --model "$work/small" --max-context 2048 >"$work/said" 2>&1 || fail "serve: $(cat "$work/said")"
await_line "$(log_of 1)" 'job 1: planned: n[12] .*, n[12] ' 20
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
