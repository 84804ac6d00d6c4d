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
descriptors() { find "/proc/$daemon/fd" -mindepth 1 | wc -l; }
kib() { awk '/^VmRSS/ {print $2}' "/proc/$daemon/status"; }
before=$(descriptors) memory=$(kib)

"$slow_clients" $port 10000 $((60 * slow)) >"$work/slow.out" &
clients=$!
most=0 largest=0 answers=0 late=0
# ask CURL-ARGUMENT...: the status, answered at once
ask() {
    seconds=$(limit 10 curl -sS -o "$work/status.json" -w '%{http_code} %{time_total}' "$@") || fail "no answer while slow clients hold connections: $seconds"
    equal "status" "${seconds%% *}" 200
    answers=$((answers + 1))
    [ "$(echo "${seconds#* }" | awk -v most="$slow" '{print ($1 > most)}')" = 0 ] || late=$((late + 1))
}
while kill -0 "$clients" 2>/dev/null; do
    ask "http://127.0.0.1:$port/v1/status"
    ask --unix-socket "$(sock_of 1)" http://localhost/v1/status
    now=$(descriptors)
    [ "$now" -le $most ] || most=$now
    now=$(kib)
    [ "$now" -le $largest ] || largest=$now
done
wait "$clients" || fail "some connections outlive every deadline: $(cat "$work/slow.out")"
say "$(tr '\n' ' ' <"$work/slow.out"); $answers answers, $late later than a second; at most $most descriptors and $largest KiB, before $before and $memory"
# The machine may have had something better to do once.
[ $late -le $((answers / 10)) ] || fail "$late of $answers answers took longer than a second"
[ $((most - before)) -le 600 ] || fail "$((most - before)) descriptors for them"
[ $((largest - memory)) -le 65536 ] || fail "$((largest - memory)) KiB for them"
ask "http://127.0.0.1:$port/v1/status"
after=$(descriptors)
[ "$after" -le $((before + 8)) ] || fail "$((after - before)) descriptors are left of them"
