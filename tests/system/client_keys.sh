#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Keys of clients: a key that one node makes opens what is served on all, also on one that was off meanwhile, and is gone from all.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"

node_options='--http-listen 127.0.0.1:0'
start_ring
port_of() { on "$1" dashboard --no-open 2>"$work/said" | sed -n 's|^http://127\.0\.0\.1:\([0-9]*\)/.*|\1|p'; }
# status NODE KEY
status() { limit 20 curl -sS -o "$work/answer" -w '%{http_code}' -H "Authorization: Bearer $2" "http://127.0.0.1:$(port_of "$1")/v1/models"; }

say 'a key of one node opens the others'
phone=$(on 1 key add phone --rate 60) || fail 'key add'
for node in 2 3; do
    await_line "$(log_of $node)" 'keys of clients are now as n1 has them' 20
    equal "with the key, at node $node" "$(status $node "$phone")" 200
done
equal 'with another' "$(status 2 "${phone%?}")" 401
on 2 key add phone 2>"$work/said" && fail 'the name was given twice'
holds 'a name that is taken' "$work/said" 'phone has a key already'

say 'a node that was off hears of it'
stop_node 3
from=$(next_line "$(log_of 1)")
on 2 key remove phone >"$work/said" || fail 'key remove'
tablet=$(on 2 key add tablet) || fail 'key add'
await_line "$(log_of 1)" 'keys of clients are now as n2 has them' 20 "$from"
start_node 3
await_line "$(log_of 3)" 'keys of clients are now as n[12] has them' 30
equal 'a key that was made meanwhile' "$(status 3 "$tablet")" 200
for node in 1 2 3; do
    equal "a key that is gone, at node $node" "$(status $node "$phone")" 401
    equal "the list of node $node" "$(on $node key list --json | jq -r '[.keys[].name] | join(" ")')" tablet
done
