#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Training that outlives its processes and nodes: it goes on by itself, and its result and its log are those of a run in which
# nothing happened, to the bit.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/training.sh"

start_ring


undisturbed --save-every 3

# goes_on_from_memory NAME: at most one step that was made is made again
goes_on_from_memory() {
    made=$(sed -n 's/^interrupted after step \([0-9]*\): .*/\1/p' "$work/$1.err" | head -n 1)
    from=$(sed -n 's/.*goes on behind step \([0-9]*\): its nodes have copies of it.*/\1/p' "$work/$1.err" | head -n 1)
    [ -n "$made" ] && [ -n "$from" ] && [ $((made - from)) -le 1 ] && [ "$from" -le "$made" ] ||
        fail "$1: after step $made it went on behind step $from: $(cat "$work/$1.err")"
}

# note_survivors NODES: of the others the process, and where their logs end
note_survivors() {
    survivors=
    for one in 1 2 3; do
        case " $1 " in *" $one "*) continue ;; esac
        survivors="$survivors $one"
        stage_of "$one" >"$work/n$one/stage"
        next_line "$(log_of "$one")" >"$work/n$one/line"
    done
}
# are_kept NAME: the job goes on with the processes of the survivors. One that is gone by now was through with the job.
are_kept() {
    await_line "$work/$1.err" 'goes on behind step' 30
    for one in $survivors; do
        await_line "$(log_of "$one")" 'the stage that waited on this node goes on' 10 "$(cat "$work/n$one/line")"
        now=$(stage_of "$one")
        [ -z "$now" ] || equal "$1: the stage process of n$one" "$now" "$(cat "$work/n$one/stage")"
    done
}

# A stage process is killed, on another node and on the head, and one on each of two nodes.
for node in 2 1 "1 3"; do
    name=stage$(echo "$node" | tr -d ' ')
    train "$name"
    step_of "$name" 5
    processes=
    for one in $node; do
        processes="$processes $(stage_of "$one")"
    done
    note_survivors "$node"
    # shellcheck disable=SC2086 # of each its own
    kill -KILL $processes
    are_kept "$name"
    done_as_undisturbed "$name"
    holds "what ringctl said" "$work/$name.err" "interrupted after step [0-9]+: node n[${node}]: the stage process was killed by SIGKILL"
    goes_on_from_memory "$name"
done

# Without copies, from what was saved; before anything was, from the start, and nothing is said twice.
curl -sN --unix-socket "$(sock_of 1)" "http://localhost/v1/events?after=now" >"$work/events" 2>/dev/null &
listener=$!
train saved --save-every 3 --copies off
step_of saved 5
stage=$(stage_of 2)
kill -STOP "$stage" # a disk may be slower than the steps that are left
await_line "$work/events" '^event: saved' 60
kill -KILL "$stage"
kill $listener
done_as_undisturbed saved
holds "what ringctl said" "$work/saved.err" 'goes on behind step [0-9]+, the last that was saved'
# Saves that are still on their way to the disk are made again.
for node in 1 3; do
    train "often$node" --save-every 1 --copies off
    step_of "often$node" 5
    kill -KILL "$(stage_of $node)"
    done_as_undisturbed "often$node"
done
train early --copies off
step_of early 2
kill -KILL "$(stage_of 3)"
done_as_undisturbed early
holds "what ringctl said" "$work/early.err" 'begins again: no step was saved, and no copy is whole'

# A node is started again: the job waits for it, though it would wait for ever. What it had in memory, its neighbour has.
train again --on-loss wait
step_of again 5
stop_node 2 KILL
await_line "$work/again.err" 'node n2 is gone' 60
start_node 2
done_as_undisturbed again
goes_on_from_memory again

# A node stays away: the job goes on without it.
train fewer --wait-for 1
step_of fewer 5
stop_node 2 KILL
done_as_undisturbed fewer
holds "what ringctl said" "$work/fewer.err" 'was interrupted at .* after step [0-9]+: node n2 is gone: .*; it waits for n2 until .*, then goes on without'
holds "what ringctl said" "$work/fewer.err" 'is planned again on 2 nodes'
goes_on_from_memory fewer
rejoin 2

# Of replicas a stage process is killed; then a node stays away, and the job goes on with one replica less.
train replicas --parallel dp=3
step_of replicas 5
kill -KILL "$(stage_of 3)"
done_as_undisturbed replicas
goes_on_from_memory replicas
train replica --wait-for 1 --parallel dp=3
step_of replica 5
stop_node 2 KILL
done_as_undisturbed replica
holds "what ringctl said" "$work/replica.err" 'is planned again on 2 nodes'
goes_on_from_memory replica
rejoin 2

# Of nodes that share a stage likewise: who gathers from the lost one fails, and those that are left go on by themselves.
train shared --parallel tp=3
step_of shared 5
kill -KILL "$(stage_of 2)"
done_as_undisturbed shared
goes_on_from_memory shared
train alone --wait-for 1 --parallel tp=3
step_of alone 5
stop_node 2 KILL
done_as_undisturbed alone
holds "what ringctl said" "$work/alone.err" 'is planned again on 2 nodes'
goes_on_from_memory alone
rejoin 2

# Of replicas with unlike numbers of nodes likewise: those that are left go on as one pipeline.
train unlike --parallel pp=1+2
step_of unlike 5
kill -KILL "$(stage_of 3)"
done_as_undisturbed unlike
goes_on_from_memory unlike
train left --wait-for 1 --parallel pp=1+2
step_of left 5
stop_node 2 KILL
done_as_undisturbed left
holds "what ringctl said" "$work/left.err" 'is planned again on 2 nodes'
goes_on_from_memory left
rejoin 2

# Several adapters at once.
train undisturbed2 --save-every 3 --iters 120 --sweep lr=1e-4,3e-4
await_end "$job_process" 120 || fail "undisturbed2: $(cat "$work/undisturbed2.err")"
# Copies are made once a round, which has up to 24 steps of each: the kill comes long after one, and before the next.
train several --iters 120 --sweep lr=1e-4,3e-4
step_of several 60
kill -KILL "$(stage_of 2)"
await_end "$job_process" 120 || fail "several: $(cat "$work/several.err")"
holds "what ringctl said" "$work/several.err" 'goes on behind step [0-9]+: its nodes have copies'
for adapter in lr-1e-4 lr-3e-4; do
    same "the adapter $adapter" "$work/undisturbed2/$adapter/adapter_model.safetensors" "$work/several/$adapter/adapter_model.safetensors"
done

# All weights are trained.
train whole1 --save-every 3 --fine-tune-type full
await_end "$job_process" 120 || fail "whole1: $(cat "$work/whole1.err")"
train whole2 --fine-tune-type full
step_of whole2 5
kill -KILL "$(stage_of 1)"
await_end "$job_process" 120 || fail "whole2: $(cat "$work/whole2.err")"
holds "what ringctl said" "$work/whole2.err" 'goes on behind step [0-9]+: its nodes have copies'
same "the model" "$work/whole1/model.safetensors" "$work/whole2/model.safetensors"
