#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Training whose stage process the kernel ends because memory runs out: it goes on once, with every layer recomputed, to the same
# bits; a second time ends it with the way out.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/training.sh"

# The daemon of n2 and its stage process live in a group of their own, with as much memory as the test allows.
if mkdir "/sys/fs/cgroup/memory/ringd-test-$$" 2>/dev/null; then
    group=/sys/fs/cgroup/memory/ringd-test-$$ most=memory.limit_in_bytes
elif mkdir "/sys/fs/cgroup/ringd-test-$$" 2>/dev/null && [ -e "/sys/fs/cgroup/ringd-test-$$/memory.max" ]; then
    group=/sys/fs/cgroup/ringd-test-$$ most=memory.max
else
    rmdir "/sys/fs/cgroup/ringd-test-$$" 2>/dev/null
    echo "no control group for memory can be made here"
    exit 77
fi
at_end() {
    kill_ring
    rmdir "$group"
}
allow() { echo $(($1 << 20)) >"$group/$most"; } # MIB

start_node 1
# shellcheck disable=SC2016 # of that shell
start_node 2 sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group"
start_node 3
join_ring

# Many microbatches at once: n2 has 110 MiB at most, and 45 MiB if every layer is recomputed.
training="--iters 3 --seq-len 512 --micro-batch-size 8 --batch-size 192 --schedule gpipe"
undisturbed

allow 80
train once
done_as_undisturbed once
holds "what ringctl said" "$work/once.err" 'node n2: the stage process was killed.*memory ran out'
holds "what ringctl said" "$work/once.err" 'the job goes on and recomputes every layer, to save memory'

# It does not help twice. The daemon itself has room to spare: with it the kernel would take the whole node.
allow 36
train twice
! await_end "$job_process" 120 || fail "a job goes on after memory ran out twice"
holds "what ringctl said" "$work/twice.err" 'failed: node n2: the stage process was killed.*another split.*though every layer was recomputed'

# A person who has said what is recomputed is asked to say something else.
allow 80
train asked --recompute none
! await_end "$job_process" 120 || fail "a job goes on that may not recompute"
holds "what ringctl said" "$work/asked.err" 'failed: node n2: the stage process was killed.*another split'
