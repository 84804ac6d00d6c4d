#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What can be watched of a job while it runs and afterwards: the timeline of its last step, from all ranks.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
need_shared "$stories" "$wikisql"
start_ring
cd "$work" || exit 1
get() { limit 10 curl -sS --unix-socket "$(sock_of "$1")" "http://localhost$2"; }

long_job 1 watched --batch-size 8 --micro-batch-size 2
get 1 /v1/jobs/1/timeline >timeline.json
jq -e '.id == 1 and .step >= 1 and .microbatches == 4 and .seconds > 0 and .planned_seconds > 0 and .planned_seconds <= .seconds * 1.001
       and .bubble >= 0 and .bubble < 1 and ([.ranks[].node] == ["n1", "n2", "n3"])' timeline.json >/dev/null ||
    fail "timeline: $(head -c 2000 timeline.json)"
# Tasks of a rank follow each other, and no forward begins before the one of the rank below has ended, give or take the clocks.
jq -e 'all(.ranks[]; . as $r | ($r.tasks | length) > 8 and ($r.tasks | length) == ($r.planned | length) and $r.offset_us != null and
       all(range(1; $r.tasks | length); $r.tasks[.][2] >= $r.tasks[. - 1][3] - 1e-6))' timeline.json >/dev/null ||
    fail "timeline, order of tasks: $(head -c 2000 timeline.json)"
jq -e '. as $t | all(range(1; 3); . as $r | all(range(0; 4); . as $m | ($t.ranks[$r].tasks[] | select(.[0] == "F" and .[1] == $m) | .[2]) >=
       ($t.ranks[$r - 1].tasks[] | select(.[0] == "F" and .[1] == $m) | .[3]) - ($t.ranks[$r].offset_error_us + $t.ranks[$r - 1].offset_error_us) / 1e6 - 1e-6))' \
    timeline.json >/dev/null || fail "timeline, forward passes: $(head -c 2000 timeline.json)"
say "$(jq -c '{step, seconds, bubble, planned_bubble, clocks: [.ranks[] | [.offset_us, .offset_error_us]]}' timeline.json)"

# What every stage really holds, beside what was planned.
get 1 /v1/jobs/1 >job.json
jq -e '(.plan.bytes | length) == 3 and (.memory | length) == 3 and all(.memory[]; .anon > 0 and .rss > .anon and .peak >= .rss)' job.json >/dev/null ||
    fail "memory: $(jq -c .memory job.json)"
say "memory: $(jq -c '[.plan.bytes, [.memory[] | .rss, .anon]]' job.json)"
on 1 job 1 | grep -q 'PLANNED *MEASURED *PEAK' || fail "ringctl job: $(on 1 job 1)"
on 1 cancel 1 >/dev/null
await_end "$job_process" 20

# Steps from a number on; what is kept survives the daemon.
jq -e '.steps | length > 0 and .[0].step == 2' >/dev/null <<EOT || fail "steps from 2: $(get 1 '/v1/jobs/1/steps?from=2' | head -c 300)"
$(get 1 '/v1/jobs/1/steps?from=2')
EOT
get 1 /v1/jobs/1/timeline >before.json
stop_node 1
start_node 1
get 1 /v1/jobs/1/timeline >after.json
get 1 /v1/jobs/1 | jq -e '(.memory | length) == 3 and all(.memory[]; .peak > 0)' >/dev/null || fail "memory after a restart"
equal "the timeline after a restart" "$(jq -cS 'del(.id)' after.json)" "$(jq -cS 'del(.id)' before.json)"
get 1 /v1/jobs/99/timeline | jq -e '.error.code == "no-such-job"' >/dev/null || fail "an unknown job"
