#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The loop waits for no disk, no process and no reader of its log. The disk of the state directory is frozen while jobs come and end, a
# token is made, a stage is in the kernel's hands, where no signal ends it, and then nobody reads what the daemon logs. It answers, and
# ringd_loop_lateness_seconds stays small; when the disk is back, history is too. Runs in a mount namespace of its own. Needs root, a loop device and fsfreeze (util-linux).
if [ -z "${RINGD_TEST_MOUNTS:-}" ]; then
    if unshare -m true 2>/dev/null; then
        RINGD_TEST_MOUNTS=own exec unshare -m sh "$0" "$@"
    fi
    echo "mounting needs root"
    exit 77
fi
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
at_end() {
    fsfreeze -u "$work/disk" 2>/dev/null
    [ -z "${reader:-}" ] || kill "$reader"
    kill_ring
    umount "$work/disk" 2>/dev/null
}
command -v fsfreeze >/dev/null || skip "fsfreeze is missing: apt-get install util-linux"
truncate -s 64M "$work/image"
mkdir "$work/disk"
mkfs.ext4 -q "$work/image"
mount -o loop "$work/image" "$work/disk" 2>"$work/mount.err" || skip "no loop device here: $(cat "$work/mount.err")"

mkdir "$work/disk/state"
ln -s "$work/disk/state" "$work/n1"
ln -s "$work/log" "$work/n1/log" # a file of the one who started the daemon
start_node 1
on 1 init >/dev/null
works "before the disk is frozen" 1

get() { curl -sS -m 5 --unix-socket "$(sock_of 1)" "http://localhost$1"; }
late() { get /metrics | sed -n 's/^ringd_loop_lateness_seconds //p'; }
# on_time WHAT: the longest the loop was late within the last minute. What waits for the disk would wait until it is back; a busy machine
# alone makes a tenth of a second.
on_time() {
    is=$(late)
    [ -n "$is" ] || fail "$1: /metrics does not say how late the loop was"
    echo "$1: the loop was late by at most $is s"
    awk "BEGIN { exit !($is < 1) }" || fail "$1: the loop was late by $is s"
}
fsfreeze -f "$work/disk" || skip "the disk cannot be frozen"
submit() { # NAME JSON: its number in $id
    curl -sS -m 20 --unix-socket "$(sock_of 1)" http://localhost/v1/jobs -d "$2" >"$work/$1.json" || fail "$1: the daemon does not answer"
    id=$(jq -r '.id // empty' "$work/$1.json")
    [ -n "$id" ] || fail "$1: $(cat "$work/$1.json")"
}
# ended WHAT ID: the daemon itself knows
ended() {
    until get /metrics | grep -q "^ringd_jobs_ended_total{state=\"$1\"} $2\$"; do
        [ "$(milliseconds)" -lt "$deadline" ] || fail "no $1 job after 30 s: $(get /metrics | grep jobs_ended)"
    done
}
deadline=$(($(milliseconds) + 30000))
submit generate "{\"type\":\"generate\",\"spec\":{\"model\":\"$llama\",\"ids\":[1],\"max_tokens\":4}}"
ended done 2
on_time "a job came and ended, and its disk is frozen"

# A token waits for the disk, and its maker hears so; the daemon does not wait.
post() { curl -sS -m 20 --unix-socket "$(sock_of 1)" -H 'Content-Type: application/json' "http://localhost$1" -d "$2"; }
post /v1/cluster/invite '{}' >"$work/invite.json" 2>"$work/invite.err" &
inviting=$!
get /v1/status >"$work/status.json" || fail "a token waits for the disk: the daemon does not answer"
await_end $inviting 20
holds "a token on a frozen disk" "$work/invite.json" 'n1/tokens was not written within 8 s: its disk does not answer'
on_time "a token waits for the disk"

# Its result is to go to this disk: it waits there, and SIGKILL does not reach it.
submit train "{\"type\":\"train\",\"spec\":{\"model\":\"$llama\",\"data\":\"$tables\",\"adapter_out\":\"$work/disk/out\",\"iters\":1}}"
in_the_kernel() { [ -n "$(stage_of 1)" ] && grep -q '^State:.D' "/proc/$(stage_of 1)/status" 2>/dev/null; }
until in_the_kernel; do
    [ "$(milliseconds)" -lt $((deadline + 30000)) ] || fail "the stage does not wait for the disk"
done
curl -sS -m 20 --unix-socket "$(sock_of 1)" -X DELETE "http://localhost/v1/jobs/$id" >/dev/null || fail "cancelling: the daemon does not answer"
deadline=$(($(milliseconds) + 30000))
ended cancelled 1
in_the_kernel || fail "the stage has ended: nothing was tried"
on_time "a stage cannot be killed"

fsfreeze -u "$work/disk"
works "the disk is back" 1
on 1 invite >"$work/token" || fail "no token, and the disk is back"
for job in 1 2 3; do
    on 1 job $job --json | jq -r .state
done >"$work/states"
equal "what the history says of the jobs" "$(tr '\n' ' ' <"$work/states")" "done done cancelled "
stop_node 1

# Nobody reads what is logged, and the pipe is full.
mkfifo "$work/pipe"
sleep 600 <>"$work/pipe" &
reader=$!
dd if=/dev/zero of="$work/pipe" bs=4096 count=64 oflag=nonblock 2>/dev/null
node_options=
"$build/ringd" --state-dir "$work/n1" --name n1 --http-listen none --threads 1 --discover off --listen 127.0.0.1:0 2>"$work/pipe" </dev/null &
echo $! >"$work/n1/pid"
until get /v1/status >/dev/null 2>&1; do
    kill -0 "$(pid_of 1)" || fail "the daemon has ended without a reader of its log"
    [ "$(milliseconds)" -lt $((deadline + 30000)) ] || fail "the daemon does not start without a reader of its log"
done
works "nobody reads the log" 1
on_time "nobody reads the log"
