#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The door of a model that is served: keys of clients and what they open, pages of other origins, clients that leave, and a crowd of
# 5,000 that are slow, vanish, or send nonsense. Memory stays bounded, and answers of others have the same tokens. The journal says
# who asked, and never what.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/../lib/endless.sh"
crowd=$build/tests/system/lib/crowd
[ -x "$crowd" ] || skip "$crowd is missing: make test-programs"

at_end() { kill_ring; }
resident() { awk '/^VmHWM/ {print $2}' "/proc/$(pid_of 1)/status"; }
# ask KEY PATH [CURL...]: over TCP, with that key
ask() {
    key=$1
    path=$2
    shift 2
    limit 60 curl -sS --max-time 60 -H "Authorization: Bearer $key" -H 'Content-Type: application/json' "http://127.0.0.1:$port$path" "$@"
}
status() { ask "$@" -o "$work/answer" -w '%{http_code}'; }
# metric NAME LABELS: of the served model
metric() {
    limit 20 curl -sS --unix-socket "$(sock_of 1)" http://localhost/metrics |
        awk -v name="ringd_serve_$1{model=\"small\"${2:-}}" '$1 == name { print $2 }'
}
body() { printf '{"model":"small","prompt":"secretword %s","max_tokens":%s,"temperature":1.2,"seed":7%s}' "$1" "$2" "${3:-}"; }

endless "$work/small" "$llama"
node_options='--http-listen 127.0.0.1:0 --allow-origin https://chat.example' start_node 1
port=$(on 1 dashboard 2>"$work/said" | sed -n 's|^http://127\.0\.0\.1:\([0-9]*\)/.*|\1|p')
on 1 serve --model "$work/small" --max-context 512 --max-num-seqs 16 >"$work/said" 2>&1 || fail "serve: $(cat "$work/said")"

say 'a key opens what is served, and nothing else'
phone=$(on 1 key add phone)
hasty=$(on 1 key add hasty --rate 60)
on 1 key list >"$work/keys"
holds 'the list of keys' "$work/keys" '^hasty +60 a minute'
holds 'the list of keys' "$work/keys" '^phone +unlimited'
equal 'the key in the state directory' "$(grep -rlF "$phone" "$work/n1" | head -n 1)" ''
equal 'models with a key' "$(status "$phone" /v1/models)" 200
equal 'a completion with a key' "$(status "$phone" /v1/completions -d "$(body one 8)")" 200
equal 'jobs with a key' "$(status "$phone" /v1/jobs)" 401
equal 'the token with a key' "$(status "$phone" /v1/token -d '{}')" 403
equal 'nobody' "$(status nobody /v1/models)" 401
equal 'nobody who asks' "$(status nobody /v1/completions -d "$(body one 8)")" 401

say 'a page of another origin'
equal 'a listed one' "$(ask "$phone" /v1/models -H 'Origin: https://chat.example' -o "$work/answer" -w '%header{access-control-allow-origin}')" \
    https://chat.example
equal 'another' "$(status "$phone" /v1/models -H 'Origin: https://evil.example')" 403

say 'a client that leaves before its answer'
kill -STOP "$(stage_of 1)"
limit 2 curl -sS -o "$work/answer" -H "Authorization: Bearer $phone" -H 'Content-Type: application/json' "http://127.0.0.1:$port/v1/completions" \
    -d "$(body leaves 400 ',"n":32')" && fail "it was answered: $(head -c 300 "$work/answer")"
await_line "$(log_of 1)" 'phone: POST /v1/completions of small: 499, 0 tokens in, 0 out' 20
kill -CONT "$(stage_of 1)"
curl -sSN -D "$work/follows" --unix-socket "$(sock_of 1)" http://localhost/v1/jobs/1/events >"$work/events" &
follower=$!
await_line "$work/follows" '200 OK' 20 # from here on it misses nothing
ask "$phone" /v1/completions -d "$(body two 9)" >"$work/answer"
# 17 are of clients that stayed; of the other's 12,800 a round or two may have begun before its end was read.
await_line "$work/events" '"requests": ?0,.*"generated_tokens": ?([1-9][0-9]|[1-5][0-9][0-9])[,}]' 20
kill $follower

say 'a crowd'
post() { limit 60 curl -sSN --max-time 60 --unix-socket "$(sock_of 1)" -H 'Content-Type: application/json' http://localhost/v1/completions -d "$1"; }
# streamed: what its events say, and its end
streamed() { sed -n 's/^data: \({.*\)$/\1/p' "$1" | jq -j '.choices[]?.text // ""'; }
post "$(body calm 300)" | jq -r .choices[0].text >"$work/calm"
before=$(resident)
"$crowd" "$port" "$hasty" "$phone" small 5000 $((25 * slow)) >"$work/crowd" &
pid=$!
streams=0
while kill -0 $pid 2>/dev/null; do
    post "$(body calm 300 ',"stream":true')" >"$work/stream"
    equal 'a stream in the crowd' "$(streamed "$work/stream")" "$(cat "$work/calm")"
    holds 'its end' "$work/stream" '^data: \[DONE\]'
    streams=$((streams + 1))
done
await_end $pid 30 || fail "clients still stand: $(cat "$work/crowd")"
say "$streams streams; statuses of the crowd: $(tr "\n" , <"$work/crowd") the daemon grew by $(($(resident) - before)) KiB"
for wanted in 200 429 400 401 421; do
    holds "some got $wanted" "$work/crowd" "^$wanted "
done
grown=$(($(resident) - before))
[ $grown -lt $((65536 * slow)) ] || fail "the daemon grew by $grown KiB"
equal 'and then' "$(post "$(body calm 300)" | jq -r .choices[0].text)" "$(cat "$work/calm")"

say 'a key that has asked too often' # the crowd may have left it some requests
asked=0
until [ "$(status "$hasty" /v1/completions -d "$(body one 1)")" = 429 ]; do
    asked=$((asked + 1))
    [ $asked -le $((61 * slow)) ] || fail "$asked requests in a minute were answered"
done

say 'what is counted and said of it'
for one in 'requests_total ,outcome="cancelled"' time_to_first_token_seconds_count time_between_tokens_seconds_count queue_seconds_count \
    batch_tokens_count generated_tokens_total kv_blocks; do
    # shellcheck disable=SC2086 # a name and labels
    case $(metric $one) in
    '' | 0) fail "$one: \"$(metric $one)\"" ;;
    esac
done
await_line "$(log_of 1)" 'hasty: POST /v1/completions of small: 429, 0 tokens in, 0 out, [0-9]+ ms' 20
holds 'an answer' "$(log_of 1)" 'phone: POST /v1/completions of small: 200, [0-9]+ tokens in, 8 out, [0-9]+ ms'
grep -q secretword "$(log_of 1)" && fail "a request is in the log: $(grep -m1 secretword "$(log_of 1)")"

say 'a key that is gone'
on 1 key remove phone >"$work/said"
equal 'its requests' "$(status "$phone" /v1/models)" 401
on 1 serve stop small >"$work/said" || fail 'stop'
no_stages 1
