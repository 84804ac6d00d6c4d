#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The power goes off everywhere, and what the head has saved is lost, with the disk of another node: the job goes on behind a
# step that the disks of the others have, to the same bits.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/training.sh"

node_options="--log-level debug"
start_ring
training="--iters 140 --seq-len 64"
copies_of() { find "$work/n$1/held" -path '*-*/*' -type f; } # NODE: files that have copies of a step
# all_end: every daemon and stage process at once
all_end() {
    processes=
    for node_number in 1 2 3; do
        processes="$processes $(pid_of $node_number) $(stage_of $node_number)"
    done
    # shellcheck disable=SC2086 # of each its own
    kill -KILL $processes
    for node_number in 1 2 3; do
        await_end "$(pid_of $node_number)" 10 2>/dev/null
    done
}

undisturbed --save-every 3
for node in 1 2 3; do
    equal "copies on the disk of n$node after the end of a job" "$(copies_of $node)" ""
done

# As it is when several nodes went off at different moments: before a save, and behind some.
for lost in 2; do
    name=dark$lost
    from=$(next_line "$(log_of 1)")
    train "$name" --save-every 3
    await_line "$(log_of 1)" 'copies of step [0-9]+ are on the disks of all its nodes' 60 "$from"
    step_of "$name" 30
    all_end
    rm -r "${work:?}/$name"
    [ -z "$lost" ] || rm -r "$work/n$lost/held"
    for node in 3 1 2; do
        start_node $node
    done
    done_as_undisturbed "$name"
    holds "what ringctl said" "$work/$name.err" 'the state of step [0-9]+, which was saved, is not in .* any more'
    holds "what ringctl said" "$work/$name.err" 'goes on behind step [0-9]+: its nodes have copies of it$'
    for node in 1 2 3; do
        equal "copies on the disk of n$node after the end of $name" "$(copies_of $node)" ""
    done
done

# Without copies nothing is on the disk but the saved state.
train without --save-every 3 --copies off
step_of without 20
for node in 1 2 3; do
    equal "copies on the disk of n$node of a job without" "$(copies_of $node)" ""
done
done_as_undisturbed without
