#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Files that only their user can read, over the end of the head's daemon: the job waits for them, and leaves the node to others. ringctl
# opens them again, the one that has followed the job or `ringctl attach`, and the job goes on to the same bits. A service manager that keeps
# descriptors spares all that. usage: lent_again.sh BUILD
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
. tests/system/lib/users.sh
logs=$work/daemon
get() { limit 20 curl -sS --unix-socket "$(sock_of 1)" "http://localhost$1" || fail "GET $1"; }
job_of_alice() { # NAME [OPTION...]
    name=$1
    shift
    : >"$logs/$name.log"
    chmod 666 "$logs/$name.log"
    alice train --model model --data rows.jsonl --adapter-out "$name" --log "$logs/$name.log" --iters 100 --batch-size 2 --seq-len 64 \
        --save-every 3 "$@"
}
step_of() { await_line "$logs/$1.log" "\"step\":$2," 60; } # NAME STEP
# As if the machine had lost its power: the next daemon has none of the descriptors.
again() {
    stop_node 1 KILL
    mark=$(next_line "$(log_of 1)")
    start_other 1
    await_line "$(log_of 1)" "waits: ringd's user of id $daemon_uid cannot open $home/.*: Permission denied; .ringctl attach [0-9]+. as the user who may read its files hands them in again" 20 "$mark"
}
as_undisturbed() { # NAME
    same "the adapter of $1" "$home/undisturbed/adapter_model.safetensors" "$home/$1/adapter_model.safetensors"
    numbers "$logs/undisturbed.log" >"$work/undisturbed.numbers"
    numbers "$logs/$1.log" | cmp -s "$work/undisturbed.numbers" - || fail "the log of $1 has other numbers"
}

start_other 1
become $alice_uid env RINGD_SOCKET="$(sock_of 1)" "$programs/ringctl" init >/dev/null || fail "init"
job_of_alice undisturbed >"$work/out" 2>"$work/err" || fail "undisturbed: $(cat "$work/err")"

say "ringctl that has followed the job opens its files again"
job_of_alice followed >"$work/followed.out" 2>"$work/followed.err" &
job_process=$!
step_of followed 20
again
await_end $job_process 60 || fail "followed: $(cat "$work/followed.err")"
holds "what ringctl says" "$work/followed.err" "/alice/.* and [0-9]+ more files were opened again for job [0-9]+"
as_undisturbed followed

say "nobody follows the job: it waits, and others are served meanwhile"
job=$(job_of_alice left --detach 2>"$work/err") || fail "left: $(cat "$work/err")"
step_of left 20
again
equal "its state" "$(get "/v1/jobs/$job" | jq -r .state)" queued
cp -r share/tiny-llama "$work/daemon/model"
chmod -R a+rX "$work/daemon/model"
limit 60 env RINGD_SOCKET="$(sock_of 1)" "$programs/ringctl" generate --model "$work/daemon/model" --max-tokens 2 --ids 1 >/dev/null 2>"$work/err" ||
    fail "a job behind it: $(cat "$work/err")"
equal "it still waits" "$(get "/v1/jobs/$job" | jq -r .state)" queued

say "who cannot read the files either"
become 61003 env RINGD_SOCKET="$(sock_of 1)" "$programs/ringctl" attach "$job" >/dev/null 2>"$work/bob.err" &
bob=$!
await_line "$work/bob.err" "job $job waits for $home/.*, which cannot be opened here either: Permission denied" 20

say "ringctl attach opens them again"
well attach "$job"
await_end $bob 20
holds "what ringctl says" "$work/err" "/alice/.* and [0-9]+ more files were opened again for job $job"
await_line "$logs/left.log" '"step":100,' 20
as_undisturbed left
say "a service manager keeps them: nobody has to come"
kill "$(pid_of 1)"
await_end "$(pid_of 1)" 20
cp "$build/tests/system/lib/supervisor" "$programs"
kept=$work/daemon/kept
install -m 666 /dev/null "$kept"
mark=$(next_line "$(log_of 1)")
start_kept() { # its standard output is what is kept
    build=$programs start_node 1 env HOME="$work/daemon" setpriv --reuid $daemon_uid --regid $daemon_uid --clear-groups \
        sh -c 'exec "$0" "$@" >'"$kept" "$programs/supervisor" "$work/daemon/notify"
}
start_kept
job=$(job_of_alice kept --detach 2>"$work/err") || fail "kept: $(cat "$work/err")"
step_of kept 20
files=$(grep -c . "$kept")
[ "$files" -ge 5 ] || fail "only $files descriptors are kept"
daemon=$(cat "/proc/$(pid_of 1)/task/$(pid_of 1)/children")
lines=$(next_line "$logs/kept.log")
kill -KILL $daemon
await_line "$logs/kept.log" '"step":100,' 60 "$lines"
await_line "$kept" '^0 kept' 20
well attach "$job"
as_undisturbed kept
say "done"
