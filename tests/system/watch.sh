#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What can be watched of a job while it runs and afterwards: the timeline of its last step, from all ranks.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
start_ring
grafana=$PWD/docs/grafana.json
cd "$work" || exit 1
get() { limit 10 curl -sS --unix-socket "$(sock_of "$1")" "http://localhost$2"; }

long_job 1 watched --batch-size 8 --micro-batch-size 2
get 1 /v1/jobs/1/timeline >timeline.json
jq -e '.id == 1 and .step >= 1 and .microbatches == 4 and .seconds > 0 and .planned_seconds > 0 and .planned_seconds <= .seconds * 1.001 + ([.ranks[].offset_error_us // 0] | max) * 2e-6
       and .bubble >= 0 and .bubble < 1 and ([.ranks[].node] | .[0] == "n1" and sort == ["n1", "n2", "n3"])' timeline.json >/dev/null ||
    fail "timeline: $(head -c 2000 timeline.json)"
# Tasks of a rank follow each other; no forward begins before that of the rank below; and the clocks, which are one, are found to be.
jq -e 'all(.ranks[]; . as $r | ($r.tasks | length) > 8 and ($r.tasks | length) == ($r.planned | length) and $r.offset_us != null and
       all(range(1; $r.tasks | length); $r.tasks[.][2] >= $r.tasks[. - 1][3] - 1e-6))' timeline.json >/dev/null ||
    fail "timeline, order of tasks: $(head -c 2000 timeline.json)"
jq -e '. as $t | all(range(1; 3); . as $r | all(range(0; 4); . as $m | ($t.ranks[$r].tasks[] | select(.[0] == "F" and .[1] == $m) | .[2]) >=
       ($t.ranks[$r - 1].tasks[] | select(.[0] == "F" and .[1] == $m) | .[2]) - ($t.ranks[$r].offset_error_us + $t.ranks[$r - 1].offset_error_us) / 1e6 - 1e-6)) and
       all($t.ranks[]; (.offset_us | fabs) <= .offset_error_us + 1)' \
    timeline.json >/dev/null || fail "timeline, forward passes: $(head -c 2000 timeline.json)"
say "$(jq -c '{step, seconds, bubble, planned_bubble, clocks: [.ranks[] | [.offset_us, .offset_error_us]]}' timeline.json)"

# So do the heartbeats of those links that have had one answered: how far the one clock is ahead of itself lies within what is said.
get 1 /v1/links >links.json
jq -e 'all(.links[] | select(.clock_error_us); (.clock_ahead_us | fabs) <= .clock_error_us)' links.json >/dev/null || fail "clocks of links: $(head -c 2000 links.json)"
say "heartbeats: $(jq -c '[.links[] | [.peer, .rtt_ms, .clock_ahead_us, .clock_error_us]]' links.json)"
# Both ends have timed their ciphers, and take the same one.
get 2 /v1/links >links2.json
for two in n1.n2 n2.n1; do
    case $two in n1.n2) file=links.json ;; *) file=links2.json ;; esac
    jq -r "[.links[] | select(.state == \"up\" and .peer == \"${two#*.}\") | .cipher] | sort | join(\" \")" $file >"ciphers.$two"
    grep -Eq '^(chacha20-poly1305|aes256-gcm)( |$)' "ciphers.$two" || fail "ciphers: $(head -c 2000 $file)"
done
same "the cipher of a link at its other end" ciphers.n1.n2 ciphers.n2.n1
say "cipher: $(cat ciphers.n1.n2)"
on 1 links -v | grep -q 'CLOCK' || fail "ringctl links -v: $(on 1 links -v)"

# What every stage really holds, beside what was planned.
get 1 /v1/jobs/1 >job.json
jq -e '(.plan.bytes | length) == 3 and (.memory | length) == 3 and all(.memory[]; .anon > 0 and .rss > .anon and .peak >= .rss)' job.json >/dev/null ||
    fail "memory: $(jq -c .memory job.json)"
say "memory: $(jq -c '[.plan.bytes, [.memory[] | .rss, .anon]]' job.json)"
on 1 job 1 | grep -q 'PLANNED *OF *MEASURED *PEAK' || fail "ringctl job: $(on 1 job 1)"
on 1 cancel 1 >/dev/null
await_end "$job_process" 20

# Steps from a number on; what is kept survives the daemon.
jq -e '.steps | length > 0 and .[0].step == 2' >/dev/null <<EOT || fail "steps from 2: $(get 1 '/v1/jobs/1/steps?from=2' | head -c 300)"
$(get 1 '/v1/jobs/1/steps?from=2')
EOT
get 1 /v1/jobs/1/timeline >before.json
stop_node 1
mark=$(next_line "$(log_of 1)")
start_node 1
get 1 /v1/jobs/1/timeline >after.json
get 1 /v1/jobs/1 | jq -e '(.memory | length) == 3 and all(.memory[]; .peak > 0)' >/dev/null || fail "memory after a restart"
equal "the timeline after a restart" "$(jq -cS 'del(.id)' after.json)" "$(jq -cS 'del(.id)' before.json)"
get 1 /v1/jobs/99/timeline | jq -e '.error.code == "no-such-job"' >/dev/null || fail "an unknown job"

# Metrics, in the form Prometheus takes; health.
await_ring 1 "$mark"
long_job 1 counted
get 1 /metrics >metrics.txt
if command -v promtool >/dev/null; then
    promtool check metrics <metrics.txt >promtool.out 2>&1 || fail "promtool: $(cat promtool.out)"
else
    say "promtool is missing: the form of /metrics is looked at by hand alone"
fi
for series in 'build_info\{version="[0-9.]+"\} 1' 'ring_nodes 3' 'ring_closed 1' 'jobs\{state="running"\} 1' 'step_seconds_count [1-9]' \
    'trained_tokens_total [1-9]' 'stages_running 1' 'stage_busy_seconds_total 0*[.0-9]*[1-9]' 'stage_memory_bytes [1-9]' 'stage_planned_memory_bytes [1-9]' \
    'link_up\{peer="n2",port="",cable=""\} 1' 'link_retransmits_total\{peer="n2"' 'job_step\{job="2"\} [1-9]' \
    'stage_tx_bytes_total [1-9]' 'stage_rx_bytes_total [1-9]' 'link_data_tx_bytes_total\{peer="n2",port="",cable=""\} [1-9]' \
    'link_data_rx_bytes_total\{peer="n3",port="",cable=""\} [1-9]' 'link_data_retransmits_total\{peer="n2"' 'link_data_rtt_seconds\{peer="n2".*\} [0-9.e-]*[1-9]' \
    'http_requests_total\{route="/v1/jobs/\{id\}/timeline",code="4xx"\} 1'; do
    holds "metrics" metrics.txt "^ringd_$series"
done
# And those of a model that is served.
on 1 serve --model "$llama" --name watched --max-context 128 >serve.out 2>&1 || fail "serve: $(cat serve.out)"
limit 30 curl -sS --unix-socket "$(sock_of 1)" -H 'Content-Type: application/json' http://localhost/v1/completions \
    -d '{"model":"watched","prompt":"In the","max_tokens":9,"logit_bias":{"2":-100}}' >completion.json
get 1 /metrics >served.txt
for series in 'time_to_first_token_seconds_count\{model="watched"\} 1' 'time_between_tokens_seconds_count\{model="watched"\} 8' \
    'time_to_first_token_seconds_bucket\{model="watched",le="\+Inf"\} 1' 'queue_seconds_count\{model="watched"\} 1' \
    'batch_tokens_sum\{model="watched"\} 9' 'requests_total\{model="watched",outcome="length"\} 1' 'kv_blocks\{model="watched"\} 32'; do
    holds "metrics of what is served" served.txt "^ringd_serve_$series"
done
if command -v promtool >/dev/null; then
    promtool check metrics <served.txt >promtool.out 2>&1 || fail "promtool: $(cat promtool.out)"
fi
on 1 serve stop watched
cat served.txt >>metrics.txt
# What the dashboard for Grafana asks for is there.
jq -r '.panels[].targets[].expr' "$grafana" | grep -o 'ringd_[a-z_]*' | sort -u >asked.txt
[ "$(wc -l <asked.txt)" -ge 12 ] || fail "docs/grafana.json asks for $(wc -l <asked.txt) metrics"
while read -r name; do grep -q "^$name[{ ]" metrics.txt || fail "docs/grafana.json asks for $name, which there is not"; done <asked.txt
equal "health" "$(get 1 /healthz)" ok
on 1 cancel 2 >/dev/null
await_end "$job_process" 20

# The configuration, read again: what can count at once does, what cannot is said, a wrong one changes nothing.
printf 'log-level = debug\nmemory-limit = 2G\nhttp-listen = 127.0.0.1:1\n' >n2.conf
cp n2.conf good.conf
mark=$(next_line "$(log_of 1)")
node_options="--config $work/n2.conf" && stop_node 2 && start_node 2 && node_options=
equal "nothing new" "$(on 2 reload)" "the configuration has been read again; nothing in it has changed"
sed -i 's/2G/1G/; s/debug/info/; $a discover = off' n2.conf
on 2 reload >reload.out || fail "reload"
grep -q '^in force now: .*memory-limit' reload.out || fail "reload: $(cat reload.out)"
equal "the new limit" "$(on 2 status --json | jq '.node.memory_total <= 1073741824')" true
echo 'ipv4-pool = 10.98.0.0/16' >>n2.conf
on 2 reload | grep -q '^changed, and in force when ringd is started again: ipv4-pool$' || fail "reload of what cannot change: $(on 2 reload)"
echo 'memory-limit = lots' >>n2.conf
on 2 reload 2>reload.err && fail "a wrong configuration was taken"
holds "a wrong configuration" reload.err 'memory-limit .*lots.*the old configuration stays'
equal "the limit after it" "$(on 2 status --json | jq '.node.memory_total <= 1073741824')" true
from=$(next_line "$(log_of 2)")
cp good.conf n2.conf
kill -HUP "$(pid_of 2)"
await_line "$(log_of 2)" 'the configuration was read again' 10 "$from"
equal "the limit after SIGHUP" "$(on 2 status --json | jq '.node.memory_total > 1073741824')" true
await_ring 1 "$mark"

# A plan without its job: the split, what it needs of what there is, and no trace of it.
plan_of() { limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" "$@" >plan.txt 2>plan.err; }
jobs_before=$(on 1 jobs --json | jq '[.jobs[].id] | max')
plan_of plan train --model "$llama" --data "$tables" --adapter-out "$work/unmade" --iters 9 || fail "plan: $(cat plan.err)"
holds "plan" plan.txt '^ *2 +n[23] +[0-9]+(-[0-9]+)? +[0-9.]+ [KMG]iB +[0-9.]+ [MG]iB '
holds "what it said of the data" plan.err '1000 rows \(rows of text\), 1000 used'
[ ! -e "$work/unmade" ] || fail "a plan leaves a folder"
plan_of --json generate --model "$llama" --ids 1 --dry-run || fail "dry run: $(cat plan.err)"
jq -e '.type == "generate" and (.plan.bytes | length) == 3 and all(.plan.available[]; . > 0)' plan.txt >/dev/null ||
    fail "dry run: $(head -c 2000 plan.txt)"
plan_of plan train --model "$llama" --data nowhere.jsonl --adapter-out "$work/unmade" && fail "a plan without data succeeds"
holds "plan, refused" plan.err 'nowhere.jsonl cannot be opened'
plan_of plan cancel 1 && fail "a plan of what is no job"
holds "a plan of what is no job" plan.err 'one of: train generate score'
equal "jobs after plans" "$(on 1 jobs --json | jq '[.jobs[].id] | max')" "$jobs_before"
works "after plans" 1
