#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A node with few file descriptors: it does not start with too few, and names the limit where it runs out of them. And, where
# mounting is allowed, a node whose state directory lies on a full disk: its history waits for room.
if [ -z "${RINGD_TEST_MOUNTS:-}" ]; then
    RINGD_TEST_MOUNTS=none
    unshare -m true 2>/dev/null && RINGD_TEST_MOUNTS=own exec unshare -m sh "$0" "$@"
fi
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
at_end() {
    kill_ring
    umount "$work/small" 2>/dev/null
}

(
    ulimit -n 24
    limit 10 "$build/ringd" --state-dir "$work/few" --http-listen none --discover off --listen 127.0.0.1:0 2>"$work/few.err"
)
equal "24 file descriptors: exit status" $? 1
holds "24 file descriptors" "$work/few.err" '24 file descriptors are allowed, and ringd needs at least 64: .*ulimit -n.*LimitNOFILE='

# Connections that say nothing use them up.
start_node 1 sh -c 'ulimit -n 64 && exec "$@"' sh
holds "64 file descriptors" "$(log_of 1)" '64 file descriptors are allowed, and a busy node needs up to 1024: '
on 1 init >/dev/null
mkfifo "$work/let-go"
: >"$work/held"
bash -c '
    while [ "${n:-0}" -lt 60 ]; do
        exec {fd}<>"/dev/tcp/127.0.0.1/$1" || exit 1
        n=$((n + 1))
    done
    echo all >"$2"
    read -r _ <"$3"' bash "$(cat "$work/n1/port")" "$work/held" "$work/let-go" 2>"$work/held.err" &
holder=$!
full='cannot be accepted: out of file descriptors: 64 allowed \(ulimit -n / LimitNOFILE=\)'
await_line "$(log_of 1)" "$full" 10
await_line "$work/held" all 10
kill $holder
wait $holder 2>/dev/null
limit 20 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" status >/dev/null || fail "the node does not answer after the flood"
equal "the full table is logged once" "$(grep -cE "$full" "$(log_of 1)")" 1
say "a node out of file descriptors says so, and goes on"

if [ "$RINGD_TEST_MOUNTS" = none ]; then
    say "no full disk: mounting needs root"
    exit 0
fi
mkdir "$work/small"
mount -t tmpfs -o size=1m tmpfs "$work/small"
node_options="--state-dir $work/small/state --socket $work/n2/ringd.sock"
start_node 2
on 2 init >/dev/null
tiny() {
    limit 30 env RINGD_SOCKET="$(sock_of 2)" "$ringctl" --json generate --model "$PWD/share/tiny-llama" --ids 1 --max-tokens 2 >/dev/null 2>"$work/err" ||
        fail "job: $(cat "$work/err")"
}
tiny
head -c 2M /dev/zero >"$work/small/fill" 2>/dev/null
on 2 invite 2>"$work/err" && fail "a token that cannot be kept was given out"
holds "invite on a full disk" "$work/err" 'state/tokens cannot be written: No space left on device'
tiny
tiny
waits='the disk of .*state/ringd.db is full: make room, at most 4 MiB of history wait in memory'
await_line "$(log_of 2)" "job history cannot be written: $waits" 10
on 2 status >"$work/out" 2>&1
holds status "$work/out" "TROUBLE.*$waits"
on 2 doctor >"$work/out" 2>&1
holds doctor "$work/out" "error .*$waits"
find "$work/small" -name '*.tmp' | grep . && fail "a half-written file is left on the full disk"
rm "$work/small/fill"
await_line "$(log_of 2)" 'job history is written again' 30
equal "the full disk is logged once" "$(grep -c 'history cannot be written' "$(log_of 2)")" 1
on 2 invite >/dev/null || fail "no token after there was room"
stop_node 2
start_node 2
for job in 1 2 3; do
    equal "job $job after a restart" "$(on 2 --json job $job | jq -r .state)" done
    on 2 log $job >"$work/out"
    holds "history of job $job" "$work/out" 'planned: n2'
done
say "history waited for the disk, and is whole"
