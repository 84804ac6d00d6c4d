#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every node knows the jobs of all heads: what n1 was asked for is listed, shown, followed and cancelled at n2 and n3. Also after n1 was
# started again; and with n1 gone, both say so.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
model=$PWD/share/tiny-llama
start_ring
cd "$work" || exit 1
mkdir data
for line in 1 2 3 4 5 6 7 8; do echo '{"text":"Once upon a time there was a small ring of machines."}'; done >data/train.jsonl

# What n2 says as it happens: every wait below is for a line of it.
curl -sN --unix-socket "$(sock_of 2)" http://localhost/v1/events >events 2>/dev/null &
events=$!
train() {
    head=$1
    shift
    on "$head" train --model "$model" --data data --adapter-out "$work/out$head" --iters 100000 --seq-len 32 --detach "$@"
}

# Listed: by name on other nodes, by number on its own; with its progress.
equal "the number" "$(train 1)" 1
await_line events '"id":1,.*"state":"running".*"step":[1-9].*"name":"1@n1"' 30
on 2 jobs | grep -Eq '^1@n1 +train +tiny-llama +running' || fail "jobs at n2: $(on 2 jobs)"
on 1 jobs | grep -Eq '^1 +train +tiny-llama +running' || fail "jobs at n1: $(on 1 jobs)"
on 2 status | grep -q 'running 1 (1@n1), waiting 0' || fail "status at n2: $(on 2 status)"
on 2 jobs --all --json | jq -e '.jobs | length == 1 and .[0].name == "1@n1" and .[0].up and .[0].loss > 0' >/dev/null ||
    fail "jobs --all at n2: $(on 2 jobs --all --json)"

# Asked of its head: the record, the log, the steps.
on 2 job 1@n1 --json | jq -e '.id == 1 and .state == "running" and (.plan.nodes | length) == 3' >/dev/null ||
    fail "job at n2: $(on 2 job 1@n1 2>&1)"
on 2 job 1@n1 | grep -q '^job 1@n1, train: running' || fail "job at n2: $(on 2 job 1@n1 2>&1)"
on 3 log 1@n1 | grep -q 'planned: n1 layers' || fail "log at n3: $(on 3 log 1@n1 2>&1)"
on 1 job 1@n1 --json | jq -e '.id == 1' >/dev/null || fail "its own node's name: $(on 1 job 1@n1 2>&1)"
on 3 gantt 1@n1 | grep -q 'n2' || fail "gantt at n3: $(on 3 gantt 1@n1 2>&1)"

# What is not there.
on 2 job 1 2>refused && fail "n2 has a job 1 of its own"
holds "the same number" refused 'no job 1 was submitted to this node: did you mean 1@n1\?'
on 2 job 99@n1 2>refused && fail "n1 has a job 99"
holds "an unknown job" refused 'no job 99 was submitted to this node'
on 2 job 1@nobody 2>refused && fail "there is a node nobody"
holds "an unknown node" refused 'there is no node nobody: `ringctl nodes`'

# Two jobs with the same number; the second waits.
equal "the number at n3" "$(train 3)" 1
await_line events '"id":1,.*"state":"queued".*"name":"1@n3"' 20
on 2 status | grep -q 'running 1 (1@n1), waiting 1 (1@n3)' || fail "status at n2: $(on 2 status)"
on 2 cancel 1@n3 | grep -q 'job 1@n3 is being cancelled' || fail "cancel at n2"
equal "the job of n3" "$(on 3 job 1 --json | jq -r .state)" cancelled
equal "the job of n1" "$(on 1 job 1 --json | jq -r .state)" running

# Followed from n2 to its end, which n3 brings about.
RINGD_SOCKET=$(sock_of 2) limit 60 "$ringctl" attach 1@n1 >attached.out 2>attached.err &
attached=$!
await_line attached.err 'step [0-9]+/100000' 20
on 3 cancel 1@n1 >/dev/null || fail "cancel at n3"
await_end $attached 20
equal "status of attach" $? 1
holds "attach" attached.err 'job 1@n1 was cancelled'
on 2 cancel 1@n1 2>refused && fail "a job was cancelled twice"
holds "cancelling twice" refused 'job 1 has already ended'

# A result that is followed from elsewhere: the text, and the loss at the end.
equal "the short job" "$(train 1 --iters 3)" 2
RINGD_SOCKET=$(sock_of 3) limit 60 "$ringctl" attach 2@n1 >attached.out 2>attached.err || fail "attach: $(cat attached.err)"
holds "attach to the end" attached.out '^job 2@n1 done: loss'

# An answer of several parts: more steps than fit into one message.
equal "the long job" "$(train 1 --iters 1500 --batch-size 1)" 3
limit 120 env RINGD_SOCKET="$(sock_of 2)" "$ringctl" attach 3@n1 >attached.out 2>attached.err || fail "attach: $(cat attached.err)"
for node_number in 1 2; do
    name=3
    [ $node_number = 1 ] || name=3@n1
    curl -s --unix-socket "$(sock_of $node_number)" "http://localhost/v1/jobs/$name/steps" >steps$node_number
done
same "the steps at both" steps1 steps2
[ "$(wc -c <steps2)" -gt 200000 ] || fail "the answer fits into one message: $(wc -c <steps2) bytes"

# A result that n1 keeps, for it sees another folder than its user: fetched at n2, a large file in parts.
mkdir kept
printf '{"type":"train","spec":{"model":"%s","data":"%s","adapter_out":"%s","iters":1,"seq_len":32},"seen":{"path":"%s","dev":1,"ino":1}}' \
    "$model" "$work/data" "$work/kept/out" "$work/kept" >spec.json
folder=$(curl -s --unix-socket "$(sock_of 1)" -H 'Content-Type: application/json' -d @spec.json http://localhost/v1/jobs | jq -r .kept_in)
limit 60 env RINGD_SOCKET="$(sock_of 2)" "$ringctl" attach 4@n1 >attached.out 2>attached.err || fail "attach: $(cat attached.err)"
holds "where the result is" attached.err 'keeps the result of job 4@n1: `ringctl result 4@n1 DIR` fetches it'
[ ! -e kept/out ] || fail "attach at n2 wrote the folder of a user of n1"
head -c 2500000 /dev/urandom >"$folder/large.bin"
: >"$folder/empty.bin"
on 2 result 4@n1 2>refused && fail "a result of another node needs no folder"
holds "a folder of this node" refused 'say where its result goes here, as in `ringctl result 4@n1 DIR`'
on 2 result 4@n1 "$work/fetched" >said || fail "result at n2: $(cat said)"
diff -r "$folder" fetched || fail "what was fetched at n2 differs from what n1 has"
on 2 result 4 "$work/none" 2>refused && fail "n2 has a job 4 of its own"
holds "a result of the same number" refused 'no job 4 was submitted to this node: did you mean 4@n1\?'
mkdir theirs && chown 65534 theirs 2>/dev/null && {
    sed "s,$work/kept,$work/theirs,g" spec.json >theirs.json
    curl -s --unix-socket "$(sock_of 1)" -H 'Content-Type: application/json' -d @theirs.json http://localhost/v1/jobs >/dev/null
    limit 60 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" attach 5 >attached.out 2>attached.err || fail "attach: $(cat attached.err)"
    holds "the folder of another user" attached.err 'theirs/out belongs to another user, so the result of job 5 stays in .*: `ringctl result 5 DIR` fetches it'
    [ ! -e theirs/out ] || fail "attach wrote the folder of another user"
}

# A member that reaches others has nothing to join, and one that searches no cables says so. Both at once, and nothing ends.
from=$(next_line "$(log_of 2)")
on 2 join "$(on 1 invite)" --peer "127.0.0.1:$(cat "$work/n1/port")" 2>refused && fail "n2 joins its own cluster"
holds "joining again" refused 'in cluster .* already and connected to n[13]: there is nothing to join'
tail -n "+$from" "$(log_of 2)" | grep 'connection to .* ended' && fail "a join that was refused ended a connection"
mkdir "$work/n9"
"$build/ringd" --state-dir "$work/n9" --name n9 --http-listen none --discover off --listen 127.0.0.1:0 2>"$work/n9/log" </dev/null &
ninth=$!
await_line "$work/n9/log" 'API on' 20
on 9 join "$(on 1 invite)" 2>refused && fail "n9 finds members without looking"
holds "joining without a search" refused 'runs with --discover off: name one with --peer HOST:PORT'
kill $ninth
wait $ninth 2>/dev/null

# n1 is started again: its jobs are known as before.
stop_node 1
await_line events '"text":"(a|an|no) .*' 20
on 2 jobs --json | jq -e '[.jobs[] | select(.node == "n1") | .up] | unique == [false]' >/dev/null || fail "jobs at n2: $(on 2 jobs --json)"
on 2 job 1@n1 2>refused && fail "n1 answered, being gone"
holds "the head is gone" refused 'node n1, which is the head of this job, is out of reach'
on 2 cancel 1@n1 2>refused && fail "n1 cancelled, being gone"
holds "the head is gone" refused 'node n1, which is the head of this job, is out of reach'
from=$(next_line "$(log_of 2)")
again=$(next_line events)
start_node 1
await_ring 2 "$from"
await_line events '"name":"3@n1"' 20 "$again"
on 1 jobs | grep -Eq '^3 +train +tiny-llama +done' || fail "jobs at n1 after its restart: $(on 1 jobs)"
on 2 jobs | grep -Eq '^3@n1 +train +tiny-llama +done' || fail "jobs at n2 after the restart of n1: $(on 2 jobs)"
on 2 job 2@n1 --json | jq -e '.state == "done" and .result.steps == 3' >/dev/null || fail "job at n2: $(on 2 job 2@n1 2>&1)"
on 3 log 3@n1 | grep -q 'planned: n1 layers' || fail "log at n3: $(on 3 log 3@n1 2>&1)"
limit 30 env RINGD_SOCKET="$(sock_of 2)" "$ringctl" attach 2@n1 >attached.out 2>attached.err || fail "attach: $(cat attached.err)"
holds "attach after the restart" attached.out '^job 2@n1 done'

# Its number goes on, and it goes while it is followed: that ends with a sentence.
last=$(on 1 jobs --json | jq "[.jobs[] | select(.node == null) | .id] | max")
equal "the number goes on" "$(train 1)" $((last + 1))
RINGD_SOCKET=$(sock_of 2) limit 60 "$ringctl" attach $((last + 1))@n1 >attached.out 2>attached.err &
attached=$!
await_line attached.err 'step [0-9]+/100000' 30
stop_node 1 KILL
await_end $attached 40
equal "status of attach" $? 1
holds "attach without a head" attached.err 'node n1, which is the head of this job, is out of reach'
kill $events
wait $events 2>/dev/null
exit 0
