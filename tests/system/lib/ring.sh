# SPDX-License-Identifier: MIT
#
# Rings whose daemons can be hit one by one: sourced after check.sh by the tests of faults. Node N lives in $work/nN: its state,
# its log, its process number in pid and its port in port, which it keeps when it is started again. Every node calls those
# before it, so three nodes make a closed ring.
dead_after=4

pid_of() { cat "$work/n$1/pid"; }
sock_of() { echo "$work/n$1/ringd.sock"; }
log_of() { echo "$work/n$1/log"; }
# on NODE ARGS...: ringctl towards that node
on() {
    socket=$(sock_of "$1")
    shift
    RINGD_SOCKET=$socket "$ringctl" "$@"
}

# start_node N [WRAPPER...]: node_options may hold more options, words apart
start_node() {
    node=$1
    dir=$work/n$node
    shift
    mkdir -p "$dir"
    touch "$dir/log"
    from=$(next_line "$dir/log")
    set -- "$@" "$build/ringd" --state-dir "$dir" --name "n$node" --http-listen none --threads 1 --dead-after $dead_after \
        --discover off --listen "127.0.0.1:$(cat "$dir/port" 2>/dev/null || echo 0)"
    for before in 1 2 3; do
        [ $before -lt "$node" ] && [ -e "$work/n$before/port" ] && set -- "$@" --peer "127.0.0.1:$(cat "$work/n$before/port")"
    done
    # shellcheck disable=SC2086
    "$@" ${node_options:-} 2>>"$dir/log" </dev/null &
    echo $! >"$dir/pid"
    await_line "$dir/log" 'API on' 20 "$from"
    on "$node" nodes --json | jq -r '.nodes[] | select(.self) | .address | ltrimstr("port ")' >"$dir/port"
}

# The ring is closed in the eyes of node N, said at or after that line of its log.
await_ring() { await_line "$(log_of "$1")" 'a ring of 3' 20 "${2:-1}"; }
# rejoin NODE: it is started again, and the ring is closed once more
rejoin() {
    since=$(next_line "$(log_of 1)")
    start_node "$1"
    await_ring 1 "$since"
}

start_ring() {
    for node_number in 1 2 3; do
        start_node $node_number
    done
    join_ring
}
# The three that were started become one cluster, and their ring is closed.
join_ring() {
    on 1 init >/dev/null
    for node_number in 2 3; do
        on $node_number join "$(on 1 invite)" --peer "127.0.0.1:$(cat "$work/n1/port")" >/dev/null
    done
    for node_number in 1 2 3; do
        await_ring $node_number
    done
}

# stop_node N [SIGNAL]: and wait for its end
stop_node() {
    pid=$(pid_of "$1")
    kill -CONT "$pid" 2>/dev/null
    kill "-${2:-TERM}" "$pid" 2>/dev/null
    await_end "$pid" 10 2>/dev/null
    rm "$work/n$1/pid"
}
stop_ring() {
    for node_number in 1 2 3; do
        [ -e "$work/n$node_number/pid" ] && stop_node $node_number
    done
    rm -rf "$work/n1" "$work/n2" "$work/n3"
}
# Daemons end in order, so that a sanitizer has its say; one that does not is killed.
kill_ring() {
    for pid_file in "$work"/n?/pid; do
        [ -e "$pid_file" ] || continue
        kill -CONT "$(cat "$pid_file")" 2>/dev/null
        kill -TERM "$(cat "$pid_file")" 2>/dev/null
    done
    for pid_file in "$work"/n?/pid; do
        [ -e "$pid_file" ] || continue
        limit 10 tail --pid="$(cat "$pid_file")" -f /dev/null || kill -KILL "$(cat "$pid_file")"
    done
    wait
}
at_end() { kill_ring; }

# The stage process of node N, or nothing.
child_of() { # NODE PROGRAM
    for child in $(cat "/proc/$(pid_of "$1")/task/$(pid_of "$1")/children"); do
        [ "$(cat "/proc/$child/comm" 2>/dev/null)" != "$2" ] || printf %s "$child"
    done
}
stage_of() { child_of "$1" ringd-stage; }
keys_of() { child_of "$1" ringd-keys; }
# One that is told to end at once may take a moment for it; one that rests would stay for two minutes.
no_stages() {
    for node_number in "$@"; do
        left=$(stage_of "$node_number")
        [ -z "$left" ] || limit 10 tail --pid="$left" -f /dev/null ||
            fail "node n$node_number still has a ringd-stage after the job's end; its log ends with: $(tail -n 30 "$(log_of "$node_number")")"
    done
}

# long_job NODE NAME [OPTION...]: a training job without a near end that nothing outlives, in the background; returns when it has
# made a step.
# Its process is in $job_process, what it says in $work/NAME.err, its steps in $work/NAME.log.
long_job() {
    from_node=$1
    name=$2
    shift 2
    : >"$work/$name.log"
    RINGD_SOCKET=$(sock_of "$from_node") limit 120 "$ringctl" --json train --model "$llama" --data "$tables" --adapter-out "$work/$name" \
        --iters 100000 --on-loss stop --log "$work/$name.log" "$@" >"$work/$name.json" 2>"$work/$name.err" &
    job_process=$!
    await_line "$work/$name.log" '"step":2' 20
}
# failed_job NAME SINCE PATTERN: the long job ends, with one sentence like PATTERN.
failed_job() {
    await_end "$job_process" 60
    equal "$1: exit status" $? 1
    lasted "$1: the job ended" "$2"
    holds "$1" "$work/$1.err" "^ringctl: job [0-9]+ failed: $3"
    equal "$1: number of sentences" "$(grep -c '^ringctl: ' "$work/$1.err")" 1
    grep '^ringctl: ' "$work/$1.err"
}
# works WHAT NODE: a short job through that node succeeds
works() {
    limit 30 env RINGD_SOCKET="$(sock_of "$2")" "$ringctl" --json generate --model "$llama" --max-tokens 4 --ids 1 \
        >"$work/works.json" 2>"$work/works.err" || fail "$1: the next job fails: $(cat "$work/works.err")"
    equal "$1: the next job" "$(jq -c .ids "$work/works.json")" "[300,261,347,395]"
}
