#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A step seen afterwards: ringctl trace and gantt show every task of every node, with two stages on a node and forwards done again.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
need_shared "$stories" "$wikisql"
start_ring
cd "$work" || exit 1
limit 60 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" train --model "$stories" --data "$wikisql" --adapter-out out --iters 2 --batch-size 8 \
    --micro-batch-size 2 --schedule v-1f1b --recompute stage >train.out 2>&1 || fail "training: $(cat train.out)"
limit 10 curl -sS --unix-socket "$(sock_of 1)" http://localhost/v1/jobs/1/timeline >timeline.json

# Every task once as it was done and once as planned, in the process of its node, at its time.
on 1 trace 1 --out trace.json >said || fail "trace"
holds "where it is" said '^step [12] of job 1 is in trace.json: .*perfetto'
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
equal "trace to standard output" "$(on 1 trace 1 --out - | jq '.otherData.job')" 1

# The chart: two lines a node, the planned above; as SVG the same, well-formed.
on 1 gantt 1 >chart || fail "gantt"
holds "gantt" chart '^job 1, step [12], v-1f1b, 4 microbatches: took [0-9.]+ m?s, bubble [0-9.]+ %; planned [0-9.]+ m?s, bubble [0-9.]+ %$'
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

# What cannot be.
on 1 trace 9 --out no.json 2>refused && fail "a trace of no job"
holds "no such job" refused 'there is no such job'
on 1 trace 1 --out /nowhere/trace.json 2>refused && fail "a trace to nowhere"
holds "no such folder" refused '/nowhere/trace.json cannot be written: No such file'
on 1 trace 1 2>refused && fail "a trace without a file"
holds "no file named" refused '\-\-out'
