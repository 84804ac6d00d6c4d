#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The HTTP API of daemons that run: their answers against docs/openapi.json, and who gets none over TCP.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
written=$PWD/docs/openapi.json
jq -e .paths "$written" >/dev/null || fail "docs/openapi.json cannot be read"
node_options="--memory-limit 64M"
start_ring
root=$PWD
cd "$work" || exit 1
limit 20 curl -sS -o openapi.json --unix-socket "$(sock_of 1)" http://localhost/openapi.json
same "GET /openapi.json" openapi.json "$written"

# What is wrong with a value, by a schema: types, fields that are missing, fields nobody described, words that are none of those allowed.
cat >schema.jq <<'JQ'
def kind: if type == "number" and floor == . then "integer" else type end;
def wrong($s; $at):
    . as $v
    | if $s["$ref"] then wrong($api[0].components.schemas[$s["$ref"] | split("/") | last]; $at)
      else
          ($s.type // [] | if type == "array" then . else [.] end) as $types
          | (if ($types | length) > 0 and ([$types[] | select(. == ($v | kind) or . == ($v | type))] | length) == 0
             then "\($at): is \($v | kind), not \($types | join(" or "))" else empty end),
            (if $s.enum and ([$s.enum[] | select(. == $v)] | length) == 0 then "\($at): \($v) is none of \($s.enum)" else empty end),
            (if ($v | type) == "object" and $s.properties
             then (($s.required // [])[] | select(. as $k | $v | has($k) | not) | "\($at): lacks \(.)"),
                  ($v | to_entries[] | . as $e | if $s.properties[$e.key] then ($e.value | wrong($s.properties[$e.key]; "\($at).\($e.key)"))
                   else "\($at).\($e.key): is not described" end)
             else empty end),
            (if ($v | type) == "array" and $s.items then ($v[:50] | to_entries[] | . as $e | $e.value | wrong($s.items; "\($at)[\($e.key)]")) else empty end)
      end;
def schema_of($path; $method; $status): $api[0].paths[$path][$method].responses
    | (.[$status] // .default) | if .["$ref"] then $api[0].components.responses[.["$ref"] | split("/") | last] else . end
    | .content["application/json"].schema;
[wrong(schema_of($path; $method; $status); "")] | .[]
JQ
# ask NODE METHOD PATH [STATUS [DESCRIBED-PATH [BODY]]]: the answer has that status (200) and its form; it stays in answer.json
ask() {
    node=$1 method=$2 path=$3 want=${4:-200} described=${5:-${3%%\?*}} body=${6:-}
    set -- -sS -o answer.json -w '%{http_code}' -X "$method" --unix-socket "$(sock_of "$node")"
    [ -z "$body" ] || set -- "$@" -H 'Content-Type: application/json' -d "$body"
    status=$(limit 20 curl "$@" "http://localhost$path")
    equal "$method $path" "$status" "$want"
    jq -r --slurpfile api openapi.json --arg path "$described" --arg method "$(echo "$method" | tr '[:upper:]' '[:lower:]')" \
        --arg status "$status" -f schema.jq answer.json >wrong.txt || fail "$method $path: $(head -c 500 answer.json)"
    [ ! -s wrong.txt ] || fail "$method $path: $(head -n 5 wrong.txt)"
}

long_job 1 long --valid "$tables/valid.jsonl" --eval-every 2 --sample-prompt Once --sample-every 1 --sample-tokens 2
for path in status ring nodes links ports doctor members jobs models 'jobs?all' history; do
    ask 1 GET "/v1/$path"
done
one='/v1/jobs/{id}'
ask 1 GET /v1/jobs/1 200 "$one"
for part in log steps evaluations samples timeline; do
    ask 1 GET "/v1/jobs/1/$part" 200 "$one/$part"
done
ask 1 GET '/v1/history?node=n2'
ask 1 GET '/v1/history?node=n2&series=node/busy&from=-60'
jq -e '.series == "node/busy"' answer.json >/dev/null || fail "a series of another node: $(cat answer.json)"
ask 1 GET '/v1/history?node=nobody' 503
ask 1 GET /v1/schedules 200 ''
jq -e '.schedules | index("auto") == 0 and (index("zbv") != null) and (index("1f1b") != null)' answer.json >/dev/null || fail "schedules: $(cat answer.json)"
ask 1 POST /v1/plan 200 '' "{\"type\":\"generate\",\"spec\":{\"model\":\"$llama\",\"ids\":[1],\"max_tokens\":2}}"
jq -e '.type == "generate" and (.plan.nodes | length) == 3 and (.plan.bytes | length) == 3' answer.json >/dev/null || fail "a plan while a job runs: $(head -c 500 answer.json)"
ask 1 POST /v1/plan 400 '' "{\"type\":\"generate\",\"spec\":{\"model\":\"$work/nowhere\",\"ids\":[1]}}"
ask 1 POST /v1/plan 400 '' '{"type":"dance","spec":{}}'
ask 1 POST /v1/jobs 400 '' "{\"type\":\"generate\",\"spec\":{\"model\":\"$llama\",\"ids\":[1],\"dry_run\":true}}"
equal "jobs after plans" "$(on 1 jobs --json | jq -c '[.jobs[].id]')" '[1]'
on 2 serve --model "$root/share/tiny-llama" --name tiny --max-context 64 >said 2>&1 || fail "serve: $(cat said)"
ask 2 POST /v1/completions 200 '' '{"model":"tiny","prompt":"In the","max_tokens":4}'
ask 1 GET /v1/jobs/1@n2 200 "$one"
jq -e '.serving.load.generated_tokens == 4' answer.json >/dev/null || fail "what it serves: $(cat answer.json)"
on 1 serve stop tiny >said || fail 'serve stop'
ask 1 POST /v1/jobs 201 '' "{\"type\":\"train\",\"spec\":{\"model\":\"$llama\",\"data\":\"$tables\",\"adapter_out\":\"$work/waits\",\"iters\":2}}"

# Jobs that wait, here for memory, have a cap in bytes, and so has each: what does not fit is refused, and the queue says how full it is.
queued() { limit 20 curl -sS --unix-socket "$(sock_of 1)" http://localhost/metrics | sed -n "s/^ringd_queue_$1{name=\"job_specs\"} //p"; }
heavy() { # IDS: the status of a job of so many
    jq -nc --arg model "$llama" --argjson n "$1" '{type: "generate", spec: {model: $model, max_tokens: 2, ids: [range($n) | 1]}}' >heavy.json
    limit 20 curl -sS -o answer.json -w '%{http_code}' --unix-socket "$(sock_of 1)" -d @heavy.json http://localhost/v1/jobs
}
before=$(queued bytes)
equal "a job of 300,000 ids" "$(heavy 300000)" 201
large=$(jq .id answer.json)
[ "$(queued bytes)" -gt $((before + 8 * 300000)) ] || fail "$(queued bytes) bytes of jobs are in memory after a large one, $before before"
equal "a job of 1,000,000 ids" "$(heavy 1000000)" 413
equal "a second job of 300,000 ids" "$(heavy 300000)" 201
second=$(jq .id answer.json)
equal "a third job of 300,000 ids" "$(heavy 300000)" 503
jq -e '.error.code == "busy" and (.error.message | test("the jobs that wait take all the memory"))' answer.json >/dev/null || fail "the third: $(cat answer.json)"
[ "$(queued bytes)" -le "$(queued cap_bytes)" ] || fail "more than the cap is in memory"
equal "how often there was no room" "$(queued refused_total)" 1
on 1 cancel "$large" >cancelled && on 1 cancel "$second" >cancelled
equal "one more, when two have ended" "$(heavy 300000)" 201
on 1 cancel "$(jq .id answer.json)" >cancelled
ask 1 POST /v1/jobs/1/turn 409 "$one/turn" '{}'
ask 1 POST /v1/jobs/99/turn 404 "$one/turn" '{}'
ask 1 POST /v1/jobs/1/turn 400 "$one/turn" '[]'
ask 1 DELETE /v1/jobs/2 200 "$one"
ask 1 DELETE /v1/jobs/2 409 "$one"
ask 1 DELETE /v1/jobs/1 200 "$one"
await_end "$job_process" 20
ask 1 GET /v1/jobs/1 200 "$one"
ask 1 GET /v1/jobs/99 404 "$one"
ask 1 GET /v1/jobs/99/timeline 404 "$one/timeline"
ask 1 GET /v1/jobs/1/files 404 "$one/files"
ask 1 GET /v1/jobs/99/files 404 "$one/files"
ask 1 GET /v1/jobs/1/files/adapter_config.json 404 "$one/files/{name}"
ask 1 POST /v1/jobs 400 '' '{"type":"dance","spec":{}}'
ask 1 POST /v1/cluster/init 409
ask 1 POST /v1/cluster/invite 201
ask 1 POST /v1/cluster/promote 200 '' '{"node":"n2"}'
ask 1 POST /v1/cluster/remove 404 '' '{"node":"nobody"}'
ask 1 POST /v1/reload
ask 1 POST /v1/token
ask 1 POST /v1/tickets 409 # this node has no TCP port
say "all answers have the form docs/openapi.json tells"

# Over TCP. The token is in a file only its owner reads, and in no process list, environment or log.
free_port=18473
while ss -Htln "sport = :$free_port" 2>/dev/null | grep -q .; do free_port=$((free_port + 1)); done
node_options="--http-listen 127.0.0.1:$free_port" && stop_node 3
"$build/ringd" --help >/dev/null
start_tcp() { # the later --http-listen wins
    node_options="--http-listen $1:$free_port" && start_node 3 && node_options=
}
start_tcp 127.0.0.1
token=$(on 3 token)
equal "length of the token" "${#token}" 64
equal "mode of the token's file" "$(stat -c %a n3/http-token)" 600
status_of() { limit 20 curl -sS -o answer.json -w '%{http_code}' "$@"; }
url=http://127.0.0.1:$free_port
equal "reading over loopback without the token" "$(status_of "$url/v1/status")" 401
equal "metrics over loopback without the token" "$(status_of "$url/metrics")" 401
equal "health over loopback" "$(limit 20 curl -sS "$url/healthz")" ok
equal "reading over loopback" "$(status_of -H "Authorization: Bearer $token" "$url/v1/status")" 200
equal "fetching a result without the token" "$(status_of "$url/v1/jobs/1/files")" 401
equal "changing without the token" "$(status_of -X POST "$url/v1/cluster/invite")" 401
equal "changing with another token" "$(status_of -X POST -H "Authorization: Bearer ${token%?}x" -H 'Content-Type: application/json' "$url/v1/reload")" 401
equal "changing with the token" "$(status_of -X POST -H "Authorization: Bearer $token" -H 'Content-Type: application/json' "$url/v1/reload")" 200
equal "a form" "$(status_of -X POST -H "Authorization: Bearer $token" -H 'Content-Type: text/plain' -d '{}' "$url/v1/reload")" 403
equal "a name that was made to point here" "$(status_of -H 'Host: evil.example' "$url/v1/status")" 421
equal "a page from elsewhere" "$(status_of -H 'Origin: http://evil.example' "$url/v1/status")" 403
equal "the token over TCP" "$(status_of -X POST -H "Authorization: Bearer $token" -H 'Content-Type: application/json' "$url/v1/token")" 403
limit 10 curl -sS -D headers.txt -o answer.json -H "Authorization: Bearer $token" "$url/v1/status"
for header in 'X-Content-Type-Options: nosniff' "Content-Security-Policy: .*default-src 'self'.*frame-ancestors 'none'" 'Cache-Control: no-store'; do
    grep -Eqi "^$header" headers.txt || fail "no header \"$header\": $(cat headers.txt)"
done

# The link of the dashboard, as a browser uses it: the page is for everyone, its ticket lets one in, once.
link=$(on 3 dashboard --no-open 2>dashboard.err)
equal "the link" "${link%=*}" "$url/#ticket"
holds "what is said of the link" dashboard.err "works once, within 5 minutes.*ssh -L $free_port:127.0.0.1:$free_port NODE"
ask 3 POST /v1/tickets 201
equal "the page without a session" "$(status_of "$url/")" 200
equal "a link over TCP" "$(status_of -X POST -H "Authorization: Bearer $token" -H 'Content-Type: application/json' "$url/v1/tickets")" 403
enter() { status_of -X POST -c cookies.txt -H "Authorization: Ticket ${link##*=}" "$url/v1/session"; }
equal "a wrong ticket" "$(status_of -X POST -H 'Authorization: Ticket 0123456789abcdef0123456789abcdef' "$url/v1/session")" 401
equal "the ticket" "$(enter)" 201
key=$(jq -r .key answer.json)
equal "the ticket once more" "$(cp cookies.txt kept.txt && enter)" 401
mv kept.txt cookies.txt
grep -q '^#HttpOnly_127.0.0.1.*ringd-' cookies.txt || fail "the cookie of a session: $(cat cookies.txt)"
equal "the cookie without its key" "$(status_of -b cookies.txt "$url/v1/status")" 401
equal "reading with a session" "$(status_of -b cookies.txt -H "X-Ringd-Session: $key" "$url/v1/status")" 200
equal "changing with a session" "$(status_of -X POST -b cookies.txt -H "X-Ringd-Session: $key" -H 'Content-Type: application/json' "$url/v1/reload")" 200
equal "changing with a session from elsewhere" "$(status_of -X POST -b cookies.txt -H "X-Ringd-Session: $key" -H 'Content-Type: application/json' -H 'Origin: http://127.0.0.1:9' "$url/v1/reload")" 403

renewed=$(on 3 token --new)
equal "a session after a new token" "$(status_of -b cookies.txt -H "X-Ringd-Session: $key" "$url/v1/status")" 401
[ "$renewed" != "$token" ] || fail "the new token is the old one"
equal "the old token" "$(status_of -X POST -H "Authorization: Bearer $token" -H 'Content-Type: application/json' "$url/v1/reload")" 401
equal "the new token" "$(status_of -X POST -H "Authorization: Bearer $renewed" -H 'Content-Type: application/json' "$url/v1/reload")" 200
for secret in "$token" "$renewed"; do
    ! grep -q "$secret" "$(log_of 3)" "/proc/$(pid_of 3)/cmdline" "/proc/$(pid_of 3)/environ" || fail "the token is in a log or a process list"
done
head -c 9000000 /dev/zero | tr '\0' ' ' >large
equal "a body of 9 MB" "$(status_of -X POST -H "Authorization: Bearer $renewed" -H 'Content-Type: application/json' --data-binary @large "$url/v1/jobs")" 413
stop_node 3

# A port that others reach: nothing but its health without the token.
start_tcp 0.0.0.0
equal "health from elsewhere" "$(status_of "$url/healthz")" 200
equal "reading from elsewhere" "$(status_of "$url/v1/status")" 401
equal "metrics from elsewhere" "$(status_of "$url/metrics")" 401
equal "reading from elsewhere with the token" "$(status_of -H "Authorization: Bearer $renewed" "$url/v1/status")" 200
