#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Paths on a share that does not answer: a job that names one is refused after a while, the daemon does not collect threads that wait for
# it, and the doctor says so of a model there that is to be read whole. Needs the rights to mount.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
hang=$build/tests/system/lib/hang
[ -x "$hang" ] || skip "$hang is missing: make test-programs"
at_end() {
    kill "$share" 2>/dev/null
    kill_ring
    umount -l "$work/share" 2>/dev/null
}
mkdir "$work/share"
: >"$work/hang.out"
"$hang" "$work/share" >>"$work/hang.out" 2>&1 &
share=$!
tail -f --pid="$share" "$work/hang.out" | grep -m1 -q hangs || skip "no file system can be mounted here: $(cat "$work/hang.out")"
start_node 1
threads() { find "/proc/$(pid_of 1)/task" -mindepth 1 -maxdepth 1 | wc -l; }
before=$(threads)
curl -sS -m 60 --unix-socket "$(sock_of 1)" http://localhost/v1/doctor -d "{\"model\":\"$work/share/model\"}" >"$work/doctor.out" &
doctor=$!
# submit N: its answer in N.json
submit() {
    curl -sS -m 30 --unix-socket "$(sock_of 1)" -o "$work/$1.json" http://localhost/v1/jobs \
        -d "{\"type\":\"generate\",\"spec\":{\"model\":\"$work/share/model\",\"prompt\":\"a\"}}"
}
jobs=$(seq 16)
submitting=
for job in $jobs; do
    submit "$job" &
    submitting="$submitting $!"
done
for process in $submitting; do
    await_end "$process" 30
done
for job in $jobs; do
    holds "a share that hangs" "$work/$job.json" 'have not answered for 10 s: is one on a network share that hangs'
done
submit more
holds "one more" "$work/more.json" 'the paths of 16 jobs are being looked at: .* see whether a network share hangs'
await_end "$doctor" 60
holds "the doctor" "$work/doctor.out" "$work/share/model could not be read in time"

# The share is back, with an error: threads end, and jobs are taken again.
kill "$share"
await_end "$share" 10
limit 10 sh -c "while [ \$(find /proc/$(pid_of 1)/task -mindepth 1 -maxdepth 1 | wc -l) -gt $before ]; do :; done" ||
    fail "$(threads) threads, $before before"
submit again
holds "afterwards" "$work/again.json" 'bad-path'
say "what hangs is named, and holds nothing up"
