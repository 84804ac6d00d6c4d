# Real daemons in the worlds of lib.sh, which is sourced before this. Node 1 is called a, node 2 b, and so on; each has its
# state in $tmp/NAME, its log in $tmp/NAME.log and its process number in $tmp/NAME.pid (of its ringd-link: link-NAME).
#
#   begin_logs NODE...        empty logs, so that they can be awaited     no_dad NODE...  link-local addresses at once
#   start_link NODE           ringd-link there                            start_ringd NODE [OPTION...]
#   stop NAME SIGNAL          and wait for its end                        alive NAME...   or fail
#   on NAME ARG...            ringctl towards it                          enrol NODE      with a token that a makes
#   mark NAME...              await_all looks at what is logged from here on
#   await_all PATTERN S NAME...   until all of them have logged such a line
#   await_line FILE PATTERN S [FIRST]
#   ring_again N              ends the daemons 1..N, starts them and waits for their ring; how long that took in $took
#   make_cache FOLDER         a cache of Hugging Face at $tmp/home that has these files as test/big, exactly $big; $tmp/nothing: one without
#   check_cable K A B         its subnet: a /127 on both ends, the same, each end reached from the other
#   doctor_says NODE PATTERN  a finding of the doctor, asked there: "warning a mtu cable1: TEXT FIX COMMAND"; needs jq
#   iters_for SECONDS             sets $iters: steps that a job takes at least that long for, on CPUs as they are here
#   train HEAD NAME [OPTION...]   $iters steps in the background into $tmp/NAME, its log lines in $tmp/NAME.steps
#   await_job NAME            until it ended well      steps NAME       how many it has logged
#   loop_ns NAME              processor time of the daemon's loop so far, in ns      rss NAME    memory in KiB
#   milliseconds              lasted WHAT SINCE: says how long it was
#
# Deadlines are stretched by RINGD_TEST_SLOW, for instrumented builds and busy machines.
# SPDX-License-Identifier: MIT
LC_ALL=C
export LC_ALL
slow=${RINGD_TEST_SLOW:-1}
model=$PWD/tests/data/models/llama data=$PWD/tests/data/datasets/tables

name_of() {
    expr substr abcdefghijklmnopqrstuvwxyz "$1" 1
}
names() { # FIRST LAST
    for _n in $(seq "$1" "$2"); do
        name_of "$_n"
    done
}
on() {
    _socket=$tmp/$1/ringd.sock
    shift
    RINGD_SOCKET=$_socket timeout $((90 * slow)) "$build/ringctl" "$@"
}
milliseconds() {
    echo $(($(date +%s%N) / 1000000))
}
# A machine with other work is slow: what must be fast is measured by make bench.
lasted() {
    ok "$1: $(($(milliseconds) - $2)) ms"
}
await_line() {
    timeout $(($3 * slow)) tail -n "+${4:-1}" -F "$1" 2>/dev/null | grep -Eqm1 -- "$2" ||
        fail "no line like \"$2\" in $(basename "$1") within $3 s"
}
mark() {
    for _name in "$@"; do
        echo $(($(wc -l <"$tmp/$_name.log") + 1)) >"$tmp/$_name.mark"
    done
}
await_all() {
    _pattern=$1 _seconds=$2
    shift 2
    for _name in "$@"; do
        await_line "$tmp/$_name.log" "$_pattern" "$_seconds" "$(cat "$tmp/$_name.mark")"
    done
}
begin_logs() {
    for _n in "$@"; do
        : >"$tmp/$(name_of "$_n").log"
        echo 1 >"$tmp/$(name_of "$_n").mark"
    done
}
# Without duplicate address detection a veth's link-local address is there at once, as it is after a second or two with it.
no_dad() {
    for _n in "$@"; do
        ns_exec "$_n" sh -c 'for x in all default; do echo 0 >/proc/sys/net/ipv6/conf/$x/accept_dad; done'
    done
}
start_link() {
    _who=$(name_of "$1")
    ns_spawn "$1" "$build/ringd-link" --socket "$tmp/link-$_who.sock" --uid 0 2>>"$tmp/link-$_who.log" </dev/null
    echo $pid >"$tmp/link-$_who.pid"
}
start_ringd() {
    _who=$(name_of "$1")
    _at=$1
    shift
    ns_spawn "$_at" "$build/ringd" --state-dir "$tmp/$_who" --name "$_who" --http-listen "${HTTP:-none}" --threads 1 \
        --link-socket "$tmp/link-$_who.sock" "$@" 2>>"$tmp/$_who.log" </dev/null
    echo $pid >"$tmp/$_who.pid"
}
# What has ended is no longer ours to kill.
forget() {
    _left=
    for _one in $spawned; do
        [ "$_one" = "$1" ] || _left="$_left $_one"
    done
    spawned=$_left
}
stop() {
    read -r _gone <"$tmp/$1.pid"
    kill "-$2" "$_gone" 2>/dev/null || fail "$1 has ended by itself"
    timeout $((10 * slow)) tail --pid="$_gone" -f /dev/null || fail "$1 did not end within 10 s of SIG$2"
    wait "$_gone" 2>/dev/null
    forget "$_gone"
}
alive() {
    for _one in "$@"; do
        kill -0 "$(cat "$tmp/$_one.pid")" 2>/dev/null || fail "$_one is gone"
    done
}
enrol() {
    if [ "$1" = 1 ]; then
        on a init >/dev/null
    else
        on "$(name_of "$1")" join "$(on a invite)" >/dev/null || fail "$(name_of "$1") cannot join"
    fi
}
commit=0123456789abcdef0123456789abcdef01234567
big=test/big@$commit
make_cache() {
    _cache=$tmp/home/hub/models--test--big
    mkdir -p "$_cache/snapshots/$commit" "$_cache/refs" "$_cache/blobs" "$tmp/nothing"
    printf %s $commit >"$_cache/refs/main"
    for _file in "$1"/*; do
        _blob=$(sha256sum <"$_file" | command cut -d ' ' -f 1)
        cp "$_file" "$_cache/blobs/$_blob"
        ln -s "../../blobs/$_blob" "$_cache/snapshots/$commit/$(basename "$_file")"
    done
}
ring_again() {
    for _n in $(seq 1 "$1"); do
        kill -TERM "$(cat "$tmp/$(name_of "$_n").pid")"
    done
    for _n in $(seq 1 "$1"); do
        read -r _gone <"$tmp/$(name_of "$_n").pid"
        wait "$_gone" 2>/dev/null
        forget "$_gone"
    done
    mark $(names 1 "$1")
    _watchers= # there before what they watch: on a busy machine it takes seconds to start so many
    for _name in $(names 1 "$1"); do
        (timeout $((40 * slow)) tail -n 0 -f "$tmp/$_name.log" | grep -Eqm1 -- "a ring of $1:") &
        _watchers="$_watchers $!"
        spawned="$spawned $!"
    done
    for _n in $(seq 1 "$1"); do
        start_ringd "$_n"
    done
    _start=$(milliseconds)
    for _watcher in $_watchers; do
        wait "$_watcher" || fail "no ring of $1 in the eyes of all within 40 s"
        forget "$_watcher"
    done
    took=$(($(milliseconds) - _start))
}

subnet() { # NODE K: the network of the cable, as that node has it; address: its own address in it
    ns_exec "$1" ip -6 route show dev "cable$2" 2>/dev/null | grep -o '^fd[0-9a-f:]*/127'
}
address() {
    ns_exec "$1" ip -6 -o addr show dev "cable$2" scope global 2>/dev/null | grep -o 'fd[0-9a-f:]*/127'
}
# One address at each end, of the same network, and each reached. What it saw is in at_a and at_b.
joined_subnet() { # K A B
    at_a=$(address "$2" "$1") && at_b=$(address "$3" "$1") && _one=$(subnet "$2" "$1") && _other=$(subnet "$3" "$1") &&
        [ "$_one" = "$_other" ] && [ "$at_a" != "$at_b" ] && [ "$(echo "$at_a" "$at_b" | wc -w)" = 2 ] &&
        reach "$2" "${at_b%/*}" && reach "$3" "${at_a%/*}"
}
check_cable() {
    wait_for $((6 * slow)) joined_subnet "$@" || fail "cable$1: $(name_of "$2") has \"$(address "$2" "$1")\" and the route \"$(subnet "$2" "$1")\", $(name_of "$3") \"$(address "$3" "$1")\" and \"$(subnet "$3" "$1")\", or they do not reach each other"
    ok "cable$1: $at_a at $(name_of "$2"), $at_b at $(name_of "$3"), both reached"
}

_finds() {
    on "$1" --json doctor >"$tmp/said" 2>/dev/null
    jq -r '.findings[] | "\(.severity) \(.node) \(.check) \(.thing): \(.text) FIX \(.fix)"' "$tmp/said" >"$tmp/found"
    grep -Eq -- "$2" "$tmp/found"
}
doctor_says() {
    wait_for $((8 * slow)) _finds "$@" || fail "the doctor at $1 does not say \"$2\": $(cat "$tmp/found")"
    ok "the doctor at $1: $(grep -E -- "$2" "$tmp/found")"
}

iters_for() {
    iters=60
    train a probe
    await_line "$tmp/probe.steps" '"step":20[,}]' 20
    _began=$(milliseconds)
    await_job probe
    iters=$(($1 * 1000 * 40 / ($(milliseconds) - _began)))
    [ $iters -ge 600 ] || iters=600
}
train() {
    : >"$tmp/$2.steps"
    _head=$1 _name=$2
    shift 2
    RINGD_SOCKET=$tmp/$_head/ringd.sock timeout $((120 * slow)) "$build/ringctl" --json train --model "$model" --data "$data" \
        --adapter-out "$tmp/$_name" --iters "$iters" --on-loss stop --seed 5 --dropout 0.05 --log "$tmp/$_name.steps" "$@" \
        >"$tmp/$_name.train.log" 2>&1 </dev/null &
    job=$!
    spawned="$spawned $job"
}
await_job() {
    wait $job
    _status=$?
    forget $job
    [ $_status = 0 ] || fail "job $1 ended with status $_status"
}
steps() {
    grep -c '"step"' "$tmp/$1.steps"
}
loop_ns() {
    read -r _pid <"$tmp/$1.pid"
    command cut -d' ' -f1 "/proc/$_pid/task/$_pid/schedstat"
}
rss() {
    awk '$1 == "VmRSS:" {print $2}' "/proc/$(cat "$tmp/$1.pid")/status"
}
