#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What has to travel before a job can begin: a plan says it of each node, from whom and how long it takes, and fetches nothing but the
# outlines; the job then brings just that. And who holds how much of a model.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/layers.sh"

start_hub
start_ring
on 1 pull test/tiny >/dev/null || fail 'pull'
disk_of() { echo $(($(stat -c %b "$work/n$1/models/$model/model.safetensors") * 512)); }
plan() { limit 60 "$ringctl" --socket "$(sock_of 1)" "$@" --model test/tiny --max-tokens 12 --ids 1,2; }

say 'a plan waits for the outlines, and says what has to travel'
plan --json plan generate >"$work/plan.json" 2>"$work/err" || fail "plan: $(cat "$work/err")"
jq -e '.plan.travel | (.ranks | length) == 3 and ([.ranks[].lacks] | add) == .bytes and .hub == 0 and
    .ranks[0].lacks == 0 and (.ranks[1:] | all(.lacks > 4e6 and .lacks <= .share and [.from[].node] == ["n1"]))' "$work/plan.json" >/dev/null ||
    fail "travel: $(jq -c .plan.travel "$work/plan.json")"
for node in 2 3; do
    [ "$(disk_of $node)" -lt 4200000 ] || fail "n$node has fetched $(disk_of $node) bytes of weights"
done
plan plan generate >"$work/plan" 2>"$work/err" || fail "plan: $(cat "$work/err")"
holds 'the line of n2' "$work/plan" '^node n2 lacks [0-9.]+ MiB of [0-9.]+ MiB: from node n1$'
holds 'the line of n3' "$work/plan" '^node n3 lacks [0-9.]+ MiB of [0-9.]+ MiB: from node n1$'
holds 'the whole' "$work/plan" '^[0-9.]+ MiB must travel, at a rate that is not known$'
! grep -q 'n1 lacks' "$work/plan" || fail "n1 has all of it: $(cat "$work/plan")"

say 'the job says so too, and brings just that'
plan generate >/dev/null 2>"$work/err" || fail "generate: $(cat "$work/err")"
on 1 log 1 >"$work/log" || fail 'log'
holds 'the log' "$work/log" 'MiB must travel, '
on 1 job 1 >"$work/job" || fail 'job'
! grep -q ' lacks ' "$work/job" || fail "what has come is said to lack: $(cat "$work/job")"
on 1 --json job 1 >"$work/job.json"
for rank in 1 2; do
    node=$(jq -r ".plan.nodes[$rank]" "$work/job.json")
    lacked=$(jq ".plan.travel.ranks[$rank].lacks" "$work/job.json")
    # The block of the head came with the outline, and only its first part counts as on the disk.
    took=$(disk_of "${node#n}")
    [ "$took" -ge "$lacked" ] && [ "$took" -le $((lacked + 4200000)) ] || fail "$node was to take $lacked bytes and has $took"
done
plan plan generate >"$work/plan" 2>"$work/err" || fail "plan: $(cat "$work/err")"
! grep -Eq 'lacks|travel' "$work/plan" || fail "nothing lacks: $(cat "$work/plan")"
plan --json plan generate | jq -e '.plan | has("travel") | not' >/dev/null || fail 'nothing lacks, and the plan has "travel"'

say 'each node says who holds how much'
on 1 models list >"$work/list" || fail 'list'
holds 'the list of n1' "$work/list" '^test/tiny +[0-9a-f]+ +51\.1 MiB +model +ready +n2 [0-9]+ %, n3 [0-9]+ %$'
on 2 models show test/tiny >"$work/show" || fail 'show'
holds 'the commit' "$work/show" "^commit +$commit$"
holds 'the content' "$work/show" '^content +[0-9a-f]{64}$'
holds 'n1' "$work/show" '^also on +node n1: all of it$'
holds 'n3' "$work/show" '^ +node n3: [0-9.]+ MiB of [0-9.]+ MiB, [0-9]+ %$'
deadline=$(($(milliseconds) + 10000)) # by then n2 has heard that the job is over
until on 2 models show test/tiny >"$work/show" && ! grep -q 'in use' "$work/show"; do
    [ "$(milliseconds)" -lt "$deadline" ] || fail "a job that is over uses it: $(cat "$work/show")"
done
on 2 --json models show test/tiny | jq -e '.holders | length == 2 and all(.same and .bytes > 5e7) and ([.[] | select(.whole).node] == ["n1"])' >/dev/null ||
    fail "as JSON: $(on 2 --json models show test/tiny)"
limit 60 "$ringctl" --socket "$(sock_of 1)" serve --model test/tiny --name tiny --max-context 64 >/dev/null 2>"$work/err" || fail "serve: $(cat "$work/err")"
on 1 models show test/tiny >"$work/show" || fail 'show'
holds 'the job' "$work/show" '^in use by job 2$'
on 1 serve stop tiny >/dev/null || fail 'serve stop'

say 'of splits that are equally fast it takes the one for which least has to travel'
mkdir "$work/four"
cp share/tiny-llama/generation_config.json share/tiny-llama/tokenizer.json share/tiny-llama/tokenizer_config.json "$work/four/"
python3 tests/lib/layers.py "$work/four" 4 || fail 'the model cannot be made'
four=$(on 1 models add "$work/four" --name my-org/four | cut -d ' ' -f 1)
plans_four() { limit 60 "$ringctl" --socket "$(sock_of 1)" "$@" plan generate --model "$four" --max-tokens 12 --ids 1,2 2>"$work/err"; }
plans_four --json >"$work/plan.json" || fail "plan: $(cat "$work/err")"
# The head has the embedding too, which costs next to nothing: so the fastest split has two layers on the second node.
equal 'the split' "$(jq -c .plan.split "$work/plan.json")" '[[0,2],[2,3],[3,4]]'
jq -e '.plan.travel.spared > 4e6' "$work/plan.json" >/dev/null || fail "spared: $(jq -c .plan.travel "$work/plan.json")"
plans_four >"$work/plan" || fail 'plan'
holds 'the reason' "$work/plan" '^of splits that are within 2 % of the fastest, this one spares [0-9.]+ MiB of travel$'
stop_node 3
on 2 models list >"$work/list" || fail 'list'
holds 'who is gone' "$work/list" '^node n3 cannot be reached: what it has is not known$'
stop_ring
