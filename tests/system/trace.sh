#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A step seen afterwards: ringctl trace and gantt show every task of every node, with two stages on a node and forwards done again. All steps
# seen afterwards: their curves as files.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
start_ring
cd "$work" || exit 1
limit 60 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" train --model "$llama" --data "$tables" --adapter-out out --iters 5 --batch-size 8 \
    --micro-batch-size 2 --schedule v-1f1b --recompute stage --valid "$tables" --log steps.log >train.out 2>&1 || fail "training: $(cat train.out)"
limit 10 curl -sS --unix-socket "$(sock_of 1)" http://localhost/v1/jobs/1/timeline >timeline.json

# Every task once as it was done and once as planned, in the process of its node, at its time.
on 1 trace 1 --out trace.json >said || fail "trace"
holds "where it is" said '^step [1-5] of job 1 is in trace.json: .*perfetto'
jq -e '[.traceEvents[] | select(.ph == "X" or .ph == "s" or .ph == "f") | .ts >= -1] | length > 0 and all' trace.json >/dev/null || fail "trace: times"
for thread in 1 2; do
    for rank in 0 1 2; do
        equal "tasks of rank $rank in thread $thread" \
            "$(jq "[.traceEvents[] | select(.ph == \"X\" and .tid == $thread and .pid == $rank and .cat != \"wait\")] | length" trace.json)" \
            "$(jq "[.ranks[] | select(.rank == $rank) | .tasks[]] | length" timeline.json)"
    done
done
jq -e --slurpfile t timeline.json '. as $all | all($t[0].ranks[]; . as $r | all($r.tasks[]; . as $task | any($all.traceEvents[];
       .ph == "X" and .tid == 1 and .pid == $r.rank and .cat == $task[0] and (.ts - $task[2] * 1e6 | fabs) < 1 and (.dur - ($task[3] - $task[2]) * 1e6 | fabs) < 1)))' \
    trace.json >/dev/null || fail "trace: a task is missing: $(head -c 2000 trace.json)"
# Six stages there and back on three nodes: each knows its stage, four of five hand-overs leave the node, there and back, four times.
equal "stages" "$(jq -c '[.traceEvents[] | select(.cat == "F" and .tid == 1) | .args.stage] | unique' trace.json)" '[0,1,2,3,4,5]'
equal "arrows" "$(jq '[.traceEvents[] | select(.ph == "s")] | length' trace.json)" "$(jq '[.traceEvents[] | select(.ph == "f")] | length' trace.json)"
equal "hand-overs" "$(jq '[.traceEvents[] | select(.ph == "s" and .name == "activations")] | length' trace.json)" 16
jq -e '[.traceEvents[] | select(.ph == "X" and .tid == 1 and .cat == "F" and .args.stage == 0) | .args.bytes_sent] | length == 4 and all(. > 0)' \
    trace.json >/dev/null || fail "bytes"
equal "forwards again" "$(jq 'any(.traceEvents[]; .cat == "R")' trace.json)" true
equal "processes" "$(jq -c '[.traceEvents[] | select(.name == "process_name") | .args.name] | .[0]' trace.json)" '"n1 (rank 0)"'
equal "trace to standard output" "$(on 1 trace 1 --out - | jq '.otherData.job == 1')" true

# Curves: what --log has, in three forms.
for form in csv json tensorboard; do
    on 1 export 1 --out curves --format $form >>exported || fail "export as $form"
done
jq -c 'select(.loss) | [.step, .loss, .lr]' steps.log >wanted
jq -c 'select(.loss) | [.step, .loss, .lr]' curves/job-1.jsonl | same "curves as JSON" - wanted
awk -F, 'NR > 1 && $3 { print "[" $1 "," $3 "," $4 "]" }' curves/job-1.csv | jq -c . | same "curves as a table" - wanted
equal "measurements" "$(jq -c 'select(.valid_loss) | [.step, .valid_loss]' curves/job-1.jsonl)" "$(jq -c 'select(.valid_loss) | [.step, .valid_loss]' steps.log)"
equal "an event file" "$(head -c 36 curves/job-1/events.out.tfevents.ringd | tail -c 13)" brain.Event:2
holds "what was written" exported '^curves/job-1.csv: 6 rows$'
on 1 export 99 --out curves >said 2>&1 && fail "a job that is not there is exported"
on 1 export --out curves >said 2>&1 && fail "nothing is exported"
holds "no job" said 'a job is missing'

# The chart: two lines a node, the planned above; as SVG the same, well-formed.
on 1 gantt 1 >chart || fail "gantt"
holds "gantt" chart '^job 1, step [1-5], v-1f1b, 4 microbatches: took [0-9.]+ m?s, bubble [0-9.]+ %; planned [0-9.]+ m?s, bubble [0-9.]+ %$'
equal "lines" "$(grep -cE '^n[123] +planned |^ +done +' chart)" 6
holds "gantt: a wait with its reason" chart '^n[123] stood still for [0-9.]+ m?s, waiting for (activations|gradient|.+) of n[123]$'
awk 'length($0) > 100 && !/^n[123] stood|^job/ { exit 1 }' chart || fail "gantt is too wide: $(cat chart)"
cat chart
on 1 gantt 1 --svg chart.svg >/dev/null || fail "gantt --svg"
holds "SVG" chart.svg '^<svg xmlns='
equal "SVG: its end" "$(tail -n 1 chart.svg)" "</svg>"
equal "SVG: tasks" "$(grep -c '^<rect x=[^>]*><title>[FBRIWnul]' chart.svg)" "$(jq '[.ranks[].tasks | length] | add * 2' timeline.json)"
command -v xmllint >/dev/null && { xmllint --noout chart.svg || fail "SVG is not well-formed"; }
equal "gantt as JSON" "$(on 1 gantt 1 --json | jq -c '[.id, .schedule]')" '[1,"v-1f1b"]'

# Every step of a job, written while it runs: each rank's tasks of each step, one step after the other, arrows with numbers of their own.
limit 60 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" train --model "$llama" --data "$tables" --adapter-out traced --iters 5 --batch-size 8 \
    --micro-batch-size 2 --schedule v-1f1b --recompute stage --trace all.json >traced.out 2>&1 || fail "training with --trace: $(cat traced.out)"
holds "how many" traced.out '^5 steps are in all.json, 0 steps missing: '
jq -e 'type == "array"' all.json >/dev/null || fail "all.json is not JSON: $(tail -c 300 all.json)"
equal "its steps" "$(jq -c '[.[] | select(.cat == "step") | .name]' all.json)" '["step 1","step 2","step 3","step 4","step 5"]'
for rank in 0 1 2; do
    equal "tasks of rank $rank in each step" \
        "$(jq -c "[.[] | select(.ph == \"X\" and .tid == 1 and .pid == $rank and .cat != \"wait\")] | group_by(.args.step) | map([.[0].args.step, length])" all.json)" \
        "$(jq -c "[.ranks[] | select(.rank == $rank) | .tasks[]] | length as \$n | [range(1; 6) | [., \$n]]" timeline.json)"
    equal "the name of rank $rank" "$(jq "[.[] | select(.name == \"process_name\" and .pid == $rank)] | length" all.json)" 1
done
jq -e '[.[] | select(.cat == "step")] | (.[0].ts | fabs) < 1 and ([.[:-1], .[1:]] | transpose | all(.[1].ts > .[0].ts))' all.json >/dev/null || fail "steps do not follow each other"
equal "arrows" "$(jq '[.[] | select(.ph == "s") | .id] | length == 5 * 32 and length == (unique | length)' all.json)" true
equal "what was planned" "$(jq '[.[] | select(.ph == "X" and .tid == 2)] | length > 0' all.json)" true
cmp out/adapter_model.safetensors traced/adapter_model.safetensors || fail "the adapter of a traced job differs"
equal "a reader after the end" "$(limit 10 curl -sS --unix-socket "$(sock_of 1)" http://localhost/v1/jobs/2/timelines | grep '^data')" 'data: {"written":5,"missing":0}'
equal "steps of a job without trace" "$(limit 10 curl -sS --unix-socket "$(sock_of 1)" http://localhost/v1/jobs/1/timelines | jq -r .error.code)" no-timeline

# Who leaves the job alone has the steps so far.
: >part.json
RINGD_SOCKET="$(sock_of 1)" "$ringctl" train --model "$llama" --data "$tables" --adapter-out long --iters 100000 --trace part.json >left.out 2>&1 &
follower=$!
limit 60 sh -c 'tail -n +1 -f part.json | grep -m 1 -q "\"step 2\""' || fail "no second step: $(cat left.out)"
kill -TERM $follower
wait $follower && fail "ringctl that was left says that all is well"
holds "steps so far" left.out '^[0-9]+ steps are in part.json: later ones are not traced'
jq -e '[.[] | select(.cat == "step")] | length >= 2' part.json >/dev/null || fail "part.json: $(tail -c 300 part.json)"
on 1 cancel 3 >/dev/null || fail "cancel"

# What cannot be.
on 1 train --model "$llama" --data "$tables" --adapter-out no --trace /nowhere/all.json 2>refused && fail "--trace to nowhere"
holds "no such folder" refused '/nowhere/all.json cannot be written: No such file'
on 1 train --model "$llama" --data "$tables" --adapter-out no --trace no.json --detach 2>refused && fail "--trace with --detach"
holds "--detach" refused 'leave out --detach'
equal "no job came of it" "$(on 1 jobs --json | jq '.jobs | length')" 3
on 1 trace 9 --out no.json 2>refused && fail "a trace of no job"
holds "no such job" refused 'no job 9 was submitted to this node'
on 1 trace 1 --out /nowhere/trace.json 2>refused && fail "a trace to nowhere"
holds "no such folder" refused '/nowhere/trace.json cannot be written: No such file'
on 1 trace 1 2>refused && fail "a trace without a file"
holds "no file named" refused '\-\-out'
