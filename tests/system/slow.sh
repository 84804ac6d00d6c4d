#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Ten thousand connections to a daemon that say a byte at a time and never get to their question: whoever has one is answered meanwhile, over
# the port and over the socket, memory and descriptors of the daemon stay within bounds, and in the end nothing of them is left.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
slow_clients=$build/tests/system/lib/slow
[ -x "$slow_clients" ] || skip "$slow_clients is missing: make test-programs"
port=18573
while ss -Htln "sport = :$port" 2>/dev/null | grep -q .; do port=$((port + 1)); done
node_options="--http-listen 127.0.0.1:$port" && start_node 1 && node_options=
daemon=$(pid_of 1)
token=$(on 1 token)
descriptors() { find "/proc/$daemon/fd" -mindepth 1 | wc -l; }
kib() { awk '/^VmRSS/ {print $2}' "/proc/$daemon/status"; }
before=$(descriptors) memory=$(kib)

"$slow_clients" $port 10000 $((60 * slow)) >"$work/slow.out" &
clients=$!
most=0 largest=0 answers=0 late=0
# ask CURL-ARGUMENT...: the status, answered at once. Who connects in the middle of the crowd and is a moment late with the question may be
# taken for one of them, as any of thousands may: that is counted as late, not a failure.
ask() {
    answers=$((answers + 1))
    seconds=$(limit 10 curl -sS -o "$work/status.json" -w '%{http_code} %{time_total}' "$@" 2>"$work/curl.err") || {
        holds "no answer while slow clients hold connections" "$work/curl.err" 'Empty reply|reset by peer'
        late=$((late + 1))
        return
    }
    equal "status" "${seconds%% *}" 200
    [ "$(echo "${seconds#* }" | awk -v most="$slow" '{print ($1 > most)}')" = 0 ] || late=$((late + 1))
}
while kill -0 "$clients" 2>/dev/null; do
    ask -H "Authorization: Bearer $token" "http://127.0.0.1:$port/v1/status"
    ask --unix-socket "$(sock_of 1)" http://localhost/v1/status
    now=$(descriptors)
    [ "$now" -le $most ] || most=$now
    now=$(kib)
    [ "$now" -le $largest ] || largest=$now
done
wait "$clients" || fail "some connections outlive every deadline: $(cat "$work/slow.out")"
say "$(tr '\n' ' ' <"$work/slow.out"); $answers answers, $late late; at most $most descriptors and $largest KiB, before $before and $memory"
# The machine may have had something better to do once.
[ $late -le $((answers / 10)) ] || fail "$late of $answers answers took longer than a second or did not come"
[ $((most - before)) -le 600 ] || fail "$((most - before)) descriptors for them"
[ $((largest - memory)) -le 65536 ] || fail "$((largest - memory)) KiB for them"
late=0
ask -H "Authorization: Bearer $token" "http://127.0.0.1:$port/v1/status"
equal "late answers when they are gone" $late 0
after=$(descriptors)
[ "$after" -le $((before + 8)) ] || fail "$((after - before)) descriptors are left of them"
