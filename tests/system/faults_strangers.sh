#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Strangers at the door while a job runs: noise, silence, crowds and wrong secrets. The ring does not notice, memory stays
# bounded, and jobs begun meanwhile find their connections.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"

# visit PORT FILE: sends the file and reads until the other end closes
visit() {
    limit 20 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && { cat "$1" >&3 2>/dev/null; cat <&3 >/dev/null 2>&1; true; }' "$1" "$2"
}
# crowd PORT N NAME: N connections that say nothing until $work/NAME.door is closed
crowd() {
    mkfifo "$work/$3.door"
    bash -c 'for i in $(seq "$1"); do exec {fd}<>"/dev/tcp/127.0.0.1/$0" || exit 1; printf R >&$fd; done
        echo "all in" >"$2.ready"; read -r _ <"$2.door"' "$1" "$2" "$work/$3" 2>/dev/null &
    crowds="${crowds:-} $!"
    touch "$work/$3.ready"
    await_line "$work/$3.ready" 'all in' 20
}
at_end() {
    # shellcheck disable=SC2086
    [ -z "${crowds:-}" ] || kill $crowds 2>/dev/null
    kill_ring
}
resident() { awk '/^VmRSS/ {print $2}' "/proc/$(pid_of "$1")/status"; }

start_ring
port=$(cat "$work/n2/port")
works "the ring" 1
long_job 1 guarded
before=$(resident 2)

head -c 300000 /dev/urandom >"$work/noise"
printf 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n' >"$work/http"
head -c 300000 /dev/zero >"$work/zeros"
for file in noise http zeros; do
    for i in 1 2 3; do
        visit "$port" "$work/$file" || fail "a connection that sent $file was not closed"
    done
done

# Two crowds, more than a node lets wait: the oldest of them go, a neighbour's connection comes through.
crowd "$port" 90 first
crowd "$(cat "$work/n1/port")" 90 second
works "another head, another crowd" 3 & # waits behind the long job
other_job=$!

# A node of another cluster is turned away, says why, and learns nothing.
mkdir "$work/n9"
: >"$work/n9/log"
"$build/ringd" --state-dir "$work/n9" --name stranger --http-listen none --listen 127.0.0.1:0 --discover off --peer "127.0.0.1:$port" 2>"$work/n9/log" &
echo $! >"$work/n9/pid"
await_line "$work/n9/log" 'API on' 20
on 9 init >/dev/null
await_line "$work/n9/log" "no connection to 127.0.0.1 port $port: .*secret" 20
equal "nodes a stranger knows" "$(on 9 nodes --json | jq -c '[.nodes[].name]')" '["stranger"]'
for node_number in 1 2 3; do
    equal "nodes that n$node_number knows" "$(on $node_number nodes --json | jq -c '[.nodes[] | select(.state == "up") | .name] | sort')" \
        '["n1","n2","n3"]'
done

# The job has not noticed, and the next ones run with the crowds still there.
await_line "$work/guarded.log" '"step"' 10 "$(next_line "$work/guarded.log")"
on 1 cancel 2 >/dev/null || fail "the job cannot be cancelled"
await_end "$job_process" 15
holds "the long job" "$work/guarded.err" 'was cancelled'
await_end $other_job 30 || fail "the job of node n3 behind the long one"
for node_number in 1 2 3; do
    works "beside crowds" $node_number
done
grown=$(($(resident 2) - before))
[ $grown -lt $((8192 * slow)) ] || fail "node n2 grew by $grown KiB"
say "node n2 grew by $grown KiB"
for node_number in 1 2 3; do
    if grep -q 'connection to n[123] ended' "$(log_of $node_number)"; then
        fail "node n$node_number lost a neighbour: $(grep 'connection to n[123] ended' "$(log_of $node_number)")"
    fi
done
