#!/bin/sh
# A model that one node of a chain has: each of the others takes the weights of its own layers, and no more. usage: share.sh BUILD
#
#     a = node 1 ══════ b = node 2 ══════ c = node 3
#            cable1              cable2
#
# What each cable carries fits the shares of those behind it, each disk holds its own share, and tokens and losses are those of the whole
# model on one node. Then c is killed while the job trains: what the others lack of its layers comes, and the job goes on to the same
# result. Needs root, and python3.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
command -v python3 >/dev/null || skip "python3 is not installed"
block=$((4 << 20))

# Eight layers of 6 MiB, so that each block of 4 MiB is of one or two of them, as a snapshot in a cache of Hugging Face.
make_model() {
    mkdir "$tmp/whole"
    cp share/tiny-llama/tokenizer.json share/tiny-llama/tokenizer_config.json "$tmp/whole/"
    python3 tests/lib/layers.py "$tmp/whole"
    make_cache "$tmp/whole"
    layer=$((2 * (4 * 512 * 512 + 3 * 512 * 1408)))
}
start_nodes() {
    for node; do
        HF_HOME=$tmp/nothing HF_HUB_OFFLINE=1
        [ "$node" != 1 ] || HF_HOME=$tmp/home
        export HF_HOME HF_HUB_OFFLINE
        start_ringd "$node" --dead-after 4
    done
}
crossed() { # CABLE NODE OTHER: bytes that have gone over it, both ways
    echo $(($(ns_exec "$2" cat "/sys/class/net/cable$1/statistics/tx_bytes") + $(ns_exec "$3" cat "/sys/class/net/cable$1/statistics/tx_bytes")))
}
disk_of() { # NODE: bytes of weights that are there
    echo $(($(stat -c %b "$tmp/$1/models/$big/model.safetensors") * 512))
}
# at_most WHAT BYTES MOST LEAST
within() {
    [ "$2" -le "$3" ] && [ "$2" -ge "$4" ] || fail "$1: $2 bytes, where $4 to $3 are right"
    ok "$1: $2 bytes"
}
generate() { # MODEL NAME
    on a --json generate --model "$1" --max-tokens 12 --ids 1,2,3 --seed 7 >"$tmp/$2.out" 2>"$tmp/$2.err" ||
        fail "generate: $(cat "$tmp/$2.err")"
    jq -c .ids "$tmp/$2.out" >"$tmp/$2.ids"
    [ "$(wc -c <"$tmp/$2.ids")" -gt 12 ] || fail "generate said: $(cat "$tmp/$2.out")"
}
# layers NODE: how many the last job had there, by its plan, which gives each node one stage
layers() {
    on a --json job "$(on a --json jobs --all | jq '[.jobs[].id] | max')" >"$tmp/job.json"
    jq --arg node "$1" '.plan as $p | $p.nodes | index($node) as $r | if $r == null then 0 else $p.split[$r] | .[1] - .[0] end' "$tmp/job.json"
}

make_model
for node in 1 2 3; do
    begin_logs $node
done
ns_up 3
no_dad 1 2 3
for node in 1 2 3; do
    start_link $node
done
start_nodes 1
await_line "$tmp/a.log" 'API on' 20
enrol 1
on a pull test/big >/dev/null || fail 'pull'
generate "$tmp/whole" alone
iters=6
model=$tmp/whole train a alone
await_job alone

cable 1 2
cable 2 3
for node in 2 3; do
    start_nodes $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
    enrol $node
done
await_all 'a chain of 3' 20 a b c
await_all 'cable on cable1 to .* Mb/s out' 60 a b # what is sent to measure them would be counted
await_all 'cable on cable2 to .* Mb/s out' 60 b c

# What a plan says has to travel is what does, and it is timed by the cables.
on a plan generate --model test/big --max-tokens 12 --ids 1,2,3 >"$tmp/plan" 2>"$tmp/plan.err" || fail "plan: $(cat "$tmp/plan.err")"
for node in b c; do
    grep -Eq "^node $node lacks [0-9.]+ MiB of [0-9.]+ MiB: from node a$" "$tmp/plan" || fail "the plan says of $node: $(cat "$tmp/plan")"
done
grep -Eq '^[0-9.]+ MiB must travel: [0-9.]+ (s|min) at [0-9.]+ [MG]b/s$' "$tmp/plan" || fail "the plan says: $(cat "$tmp/plan")"
ok "a plan says: $(grep 'must travel' "$tmp/plan")"
[ "$(disk_of b)" -le $block ] && [ "$(disk_of c)" -le $block ] || fail "the plan has fetched weights: $(disk_of b) and $(disk_of c) bytes"

before1=$(crossed 1 1 2) before2=$(crossed 2 2 3)
generate test/big chain
foreseen=$(on a --json job "$(on a --json jobs --all | jq '[.jobs[].id] | max')" | jq .plan.travel.bytes)
cmp "$tmp/alone.ids" "$tmp/chain.ids" || fail "a chain generates other tokens than one node"
ok "the same tokens as with the whole model on one node"
over1=$(($(crossed 1 1 2) - before1)) over2=$(($(crossed 2 2 3) - before2))
b=$(layers b) c=$(layers c)
echo "a has $(layers a) layers, b $b, c $c"
[ "$b" -gt 0 ] && [ "$c" -gt 0 ] || fail "the plan leaves a node without a layer: $(jq -c .plan.split "$tmp/job.json")"
# A share has a block at each edge that is not all its own, embedding or head, and the outline, one block; packets have heads.
share() { echo $(($1 * layer + 4 * block)); }
within "the disk of b" "$(disk_of b)" "$(share "$b")" $((b * layer))
within "the disk of c" "$(disk_of c)" "$(share "$c")" $((c * layer))
within "over cable2" "$over2" $(($(share "$c") * 110 / 100 + 2000000)) $((c * layer))
within "over cable1" "$over1" $((($(share "$b") + $(share "$c")) * 110 / 100 + 2000000)) $(((b + c) * layer))
within "of what was foreseen, over cable1" "$over1" $((foreseen * 110 / 100 + 2000000)) "$foreseen"
on c models verify test/big >/dev/null || fail "c: what came is not right"
on c models list | grep -Eq 'test/big.* of .*in part' || fail "c says: $(on c models list)"
ok "c has a part: $(on c models list | tail -n 1)"

say_again=$(crossed 1 1 2)
generate test/big again
cmp "$tmp/alone.ids" "$tmp/again.ids" || fail "the second time other tokens"
[ $(($(crossed 1 1 2) - say_again)) -lt $block ] || fail "weights were taken again: $(($(crossed 1 1 2) - say_again)) bytes"
ok "what is here is not taken again"

model=test/big train a chain
await_job chain
cmp "$tmp/alone/adapter_model.safetensors" "$tmp/chain/adapter_model.safetensors" || fail "a chain trains another adapter than one node"
ok "bit for bit what one node trains"

# Eight layers over a cable that takes seconds for them, and the process that takes them is killed meanwhile.
for node in b c; do
    wait_for 10 on $node models remove test/big >/dev/null || fail "remove on $node" # once it knows that the job is over
done
_tune 1 cable1 60mbit
says_what_comes() {
    on a --json jobs | jq -r '.jobs[] | select(.state == "planned") | .id' >"$tmp/id"
    [ -s "$tmp/id" ] && on a --json job "$(cat "$tmp/id")" | jq -r .waits_for | tee "$tmp/waits" | grep -Eq "$1"
}
generate test/big slow &
job=$!
wait_for 20 says_what_comes '^test/big: layers [0-9]+-[0-9]+ come from node a to node [bc]: [0-9]+ %, [0-9]+ s left$' ||
    fail "nobody says what the job waits for: $(cat "$tmp/waits")"
ok "the job says: $(cat "$tmp/waits")"
pkill -KILL -P "$(cat "$tmp/c.pid")" ringd-fetch || fail 'no process brings it to c'
wait $job || exit 1
cmp "$tmp/alone.ids" "$tmp/slow.ids" || fail "other tokens after the process that brings weights was killed"
ok "the process that brought weights to c was killed, and another one went on"
_tune 1 cable1 1gbit

iters=60
model=$tmp/whole train a calm
await_job calm
mark b
model=test/big train a lost --on-loss shrink --wait-for 1
await_line "$tmp/lost.steps" '"step":3[,}]' 30
had=$(disk_of b)
stop c KILL
await_job lost
cmp "$tmp/calm/adapter_model.safetensors" "$tmp/lost/adapter_model.safetensors" || fail "after a loss the adapter differs"
await_line "$tmp/b.log" 'test/big.* is here, as far as a job needs it' 1 "$(cat "$tmp/b.mark")"
[ "$(disk_of b)" -gt "$had" ] || fail "b has no more of it than before"
ok "c was killed; b took what it lacked of the layers that c had, $(($(disk_of b) - had)) bytes, and the result is the same"

# Nobody in the ring has all of it: a, which has, takes no part.
same_tokens() { # HEAD WHAT
    on "$1" --json generate --model $big --max-tokens 12 --ids 1,2,3 --seed 7 >"$tmp/two.out" 2>"$tmp/two.err" || fail "$2: $(cat "$tmp/two.err")"
    jq -c .ids "$tmp/two.out" >"$tmp/two.ids"
    cmp "$tmp/alone.ids" "$tmp/two.ids" || fail "$2: other tokens"
}
mark b c
start_nodes 3
await_all 'a (chain|ring) of 3' 20 b c
for node in b c; do
    wait_for 10 on $node models remove test/big >/dev/null || fail "remove on $node"
done
on a drain a >/dev/null || fail 'drain'
same_tokens c "begun on c, without a"
ok "b and c share it without a, which gives them what they lack"

# And then a is gone, and each of the two lacks what the other has.
had=$(disk_of b)
[ "$had" -lt $((6 * layer)) ] && [ "$(disk_of c)" -lt $((6 * layer)) ] || fail "b or c has most of it: $had and $(disk_of c) bytes"
mark b c
stop a KILL
await_all 'a (chain|ring) of 2' 30 b c
same_tokens b "begun on b, with a gone"
[ "$(disk_of b)" -gt "$had" ] || fail "b has no more of it than before"
ok "with a gone they give each other what they lack"
