#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Damaged models on one node alone, and disks without room. Runs in a mount namespace of its own, so that nothing stays mounted.
. "$(dirname "$0")/lib/own_mounts.sh"
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
at_end() {
    kill_ring
    umount "$work/small" 2>/dev/null
}
model=$work/model
mkdir "$model" "$work/empty"
cp "$llama"/*.json "$llama"/*.safetensors "$model"

# refused NAME PATTERN COMMAND...: through node 1, one sentence, no stage left
refused() {
    name=$1
    pattern=$2
    shift 2
    now=$(milliseconds)
    limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" --json "$@" >/dev/null 2>"$work/$name.err"
    equal "$name: exit status" $? 1
    lasted "$name" "$now"
    holds "$name" "$work/$name.err" "^ringctl: job [0-9]+ failed: $pattern"
    equal "$name: number of sentences" "$(grep -c '^ringctl: ' "$work/$name.err")" 1
    grep '^ringctl: ' "$work/$name.err"
    no_stages 1 2 3
}
# node 3 alone sees other files under the model's path
on_another_disk() {
    stop_node 3
    mark=$(next_line "$(log_of 1)")
    start_node 3 unshare -m sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh "$1" "$model"
    await_ring 1 "$mark"
}

start_ring
works "the ring" 1

# Which shards node 3 needs follows from its place in the ring; of the others it does not ask.
cp -r "$model" "$work/damaged"
for shard in 1 2 3; do
    truncate -s -100 "$work/damaged/model-0000$shard-of-00003.safetensors"
done
on_another_disk "$work/damaged"
refused truncated "node n3: .*model-0000[123]-of-00003.safetensors" generate --model "$model" --ids 1

cp -r "$model" "$work/version"
sed -i 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-06/' "$work/version/config.json"
on_another_disk "$work/version"
refused version "node n3: the model in $model differs from the head.s \(fingerprint" generate --model "$model" --ids 1

on_another_disk "$work/empty"
refused missing "node n3: $model has no config.json" generate --model "$model" --ids 1

stop_node 3
mark=$(next_line "$(log_of 1)")
start_node 3
await_ring 1 "$mark"
limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" --json generate --model "$model" --ids 1 --max-tokens 1 >/dev/null 2>"$work/err" ||
    fail "with the right files again: $(cat "$work/err")"

# A disk too small for the result: the sentence says where it is kept instead, and that copy loads.
mkdir "$work/small"
mount -t tmpfs -o size=64k tmpfs "$work/small"
limit 30 "$ringctl" convert --model "$model" --out "$work/small/new" >"$work/out" 2>&1 && fail "a model was converted onto a full disk"
holds "a full disk" "$work/out" '^ringctl: .*/small/new needs [0-9.]+ [KM]iB, and [0-9.]+ [KM]iB are free on its disk'
equal "what is left on it" "$(ls "$work/small")" ""
refused full 'node n1: .* needs [0-9]+ bytes, but its disk has only [0-9]+ free.*the result of step 3 is kept in ' train --model "$model" --data "$tables" --seq-len 64 \
    --iters 3 --adapter-out "$work/small/adapter"
kept=$(sed -n 's/.*is kept in //p' "$work/full.err")
limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" --json score --model "$model" --ids 1,403,407 --adapter "$kept" >"$work/out" 2>"$work/err" ||
    fail "the kept result does not load: $(cat "$work/err")"
equal "scored tokens" "$(jq '.tokens | length' "$work/out")" 3
find "$work/small" -type f | grep . && fail "pieces of a result are left on the small disk"

# The same for a result in one piece, and for a log that finds no room.
refused full-model 'node n1: .* needs [0-9]+ bytes, but its disk has only [0-9]+ free.*the result of step 2 is kept in ' train --model "$model" --data "$tables" \
    --seq-len 64 --iters 2 --fine-tune-type full --adapter-out "$work/small/model"
kept=$(sed -n 's/.*is kept in //p' "$work/full-model.err")
limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" --json generate --model "$kept" --ids 1 --max-tokens 2 >"$work/out" 2>"$work/err" ||
    fail "the kept model does not load: $(cat "$work/err")"
head -c 70000 /dev/zero >"$work/small/fill" 2>/dev/null
refused log "node n1: --log $work/small/log cannot be (opened|written): No space left on device" train --model "$model" --data "$tables" \
    --seq-len 64 --iters 2 --adapter-out "$work/adapter" --log "$work/small/log"
rm "$work/small/fill"

# A save that finds no room on the way is said once, the job goes on, and saves again once there is room.
RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" --json train --model "$model" --data "$tables" --seq-len 64 --iters 100000 --save-every 5 \
    --adapter-out "$work/small/later" --log "$work/later.log" >"$work/later.json" 2>"$work/later.err" &
job_process=$!
await_line "$work/later.err" 'step 5 is not saved: .* needs [0-9]+ bytes, but its disk has only [0-9]+ free' 30
await_line "$work/later.log" '"step":40,' 30
id=$(on 1 --json jobs | jq 'last(.jobs[] | select(.state == "running")).id')
holds "the job" "$(on 1 job "$id" >"$work/job" && echo "$work/job")" '^not saved: .* needs [0-9]+ bytes'
on 1 top >"$work/top"
holds "top" "$work/top" "^$id .* not saved: .* needs [0-9]+ bytes"
holds "the journal" "$(log_of 1)" "step 5 is not saved"
# To stop it now would lose its steps: it stops when they are saved.
on 1 pause "$id" >/dev/null
await_line "$work/later.err" 'stops after its next step: it was paused' 30
await_line "$work/later.log" '"step":' 30 $(($(next_line "$work/later.log") + 20))
mount -o remount,size=4m "$work/small"
await_line "$work/later.err" 'step [0-9]+ is saved: saving works again' 30
await_line "$work/later.err" 'paused after step' 30
mark=$(next_line "$work/later.log")
on 1 continue "$id" >/dev/null
await_line "$work/later.log" '"step":' 30 "$mark"
on 1 job "$id" | grep -q '^not saved' && fail "the job is saved, and says it is not"
equal "sentences about saving" "$(grep -cE 'is not saved|works again' "$work/later.err")" 2
on 1 cancel "$id" >/dev/null
await_end "$job_process" 30
no_stages 1 2 3
last=$(jq -s 'map(.step // empty)[-1]' "$work/later.log")
limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" --json train --model "$model" --data "$tables" --seq-len 64 --iters $((last + 1)) --resume \
    --adapter-out "$work/small/later" >"$work/out" 2>"$work/err" || fail "what was saved does not go on: $(cat "$work/err")"
works "after the full disks" 2
