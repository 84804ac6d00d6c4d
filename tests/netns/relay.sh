#!/bin/sh
# Jobs whose ranks are not all joined by cables: data connections relayed through the nodes between. usage: relay.sh BUILD
#
#     a = node 1 ══════ b = node 2 ══════ c = node 3        a chain: the closing hop from c to a goes through b
#            cable1              cable2
#
#     then a ring, by cable3 between c and a; cable1 is pulled out for good during a job, which goes on from a through c to b, and
#     plugged in again; at last c is killed while it relays.
#
# Nothing is configured but what --dead-after is. Needs root and the shared test data.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
dead_after=4

# Which way round the ring goes is not for this test: "a c b" for each way between a and c through b, in the words of the job's head.
relayed() { # NODE JOB
    on "$1" --json job "$2" | jq -r '.relayed[] | "\([.from, .to] | sort | join(" ")) \(.through)"'
}
running_job() { # NODE
    on "$1" --json jobs | jq -r '[.jobs[] | select(.state == "running" or .state == "planned")][0].id'
}
generate() { # HEAD NAME
    on "$1" --json generate --model "$model" --max-tokens 24 --ids 1 --seed 7 --temperature 0.9 >"$tmp/$2.out" 2>"$tmp/$2.err" ||
        fail "generate on $1: $(cat "$tmp/$2.err")"
    jq -c .ids "$tmp/$2.out" >"$tmp/$2.ids"
    [ "$(wc -c <"$tmp/$2.ids")" -gt 20 ] || fail "generate on $1 said: $(cat "$tmp/$2.out")"
}
for node in 1 2 3; do
    begin_logs $node
done
ns_up 3
no_dad 1 2 3
for node in 1 2 3; do
    start_link $node
    start_ringd $node --dead-after $dead_after
    await_line "$tmp/$(name_of $node).log" 'API on' 20
done

# --- one node alone: what is right
enrol 1
iters=60
train a alone
await_job alone
generate a alone

# --- a chain of three
cable 1 2
enrol 2
cable 2 3
enrol 3
await_all 'a chain of 3' 15 a b c
start=$(milliseconds)
train a chain
await_line "$tmp/b.log" 'relaying (c to a|a to c)' 20
await_line "$tmp/chain.steps" '"step":2[,}]' 20
[ "$(relayed a "$(running_job a)")" = "a c b" ] || fail "the job says: $(on a --json job "$(running_job a)")"
await_job chain
lasted "training on a chain" "$start"
cmp "$tmp/alone/adapter_model.safetensors" "$tmp/chain/adapter_model.safetensors" || fail "a chain trains another adapter than one node"
ok "bit for bit what one node trains"
train b middle
await_job middle
cmp "$tmp/alone/adapter_model.safetensors" "$tmp/middle/adapter_model.safetensors" || fail "begun in the middle, the adapter differs"
ok "the same with the head in the middle of the chain"
train a replicas --parallel dp=3
await_job replicas
cmp "$tmp/alone/adapter_model.safetensors" "$tmp/replicas/adapter_model.safetensors" || fail "three replicas train another adapter"
ok "the same with three replicas, two of which talk through the third"
generate c chain
cmp "$tmp/alone.ids" "$tmp/chain.ids" || fail "a chain generates other tokens than one node"
ok "the same tokens"
await_line "$tmp/b.log" 'no longer relaying' 5

# --- a ring, and a cable that is pulled out for good
mark a b c
cable 3 1
await_all 'a ring of 3' 10 a b c
iters=150
train a calm
await_job calm
mark a b c
train a rough
await_line "$tmp/rough.steps" '"step":10[,}]' 30
start=$(milliseconds)
before=$(steps rough)
cut 1
await_all 'relaying (a to b|b to a)' $dead_after c
lasted "from the pulled cable to the relay" "$start"
await_line "$tmp/rough.steps" "\"step\":$((before + 3))[,}]" 10
lasted "from the pulled cable to the third step after" "$start"
[ "$(relayed a "$(running_job a)")" = "a b c" ] || fail "the job says: $(on a --json job "$(running_job a)")"
mark a b c
start=$(milliseconds)
plug 1
await_all 'no longer relaying (a to b|b to a)' 10 c
lasted "from the cable plugged in to the direct way" "$start"
[ -z "$(relayed a "$(running_job a)")" ] || fail "the job still says it is relayed"
[ "$(steps rough)" -lt $iters ] || fail "the job was over too soon: more steps are needed"
await_job rough
cmp "$tmp/calm/adapter_model.safetensors" "$tmp/rough/adapter_model.safetensors" || fail "the adapters differ"
[ "$(steps rough)" = $iters ] || fail "$(steps rough) steps of $iters"
ok "no step lost, bit for bit the same adapter"

# --- the node that relays is killed
mark a b c
iters=5000
train a doomed
await_line "$tmp/doomed.steps" '"step":3[,}]' 30
cut 1
await_all 'relaying (a to b|b to a)' $dead_after c
start=$(milliseconds)
stop c KILL
wait $job && fail "the job ended well without c"
forget $job
lasted "from the killed relay to the end of the job" "$start"
on a --json jobs >"$tmp/jobs.json"
cause=$(jq -r '.jobs[0].error' "$tmp/jobs.json")
case $cause in
"node c is gone"*) ok "one cause: $cause" ;;
*) fail "the cause is \"$cause\"" ;;
esac
