#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Training that watches itself: a step whose loss is not finite is left out or ends the job, evaluations that get no better end it,
# and all of it with the same bits on every ring and across an interruption.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"

# broken NAME TENSOR ELEMENT: a copy of the model in which that element is not a number, $work/NAME
broken() {
    cp -r "$cases/llama_gqa_rope3/model" "$work/$1"
    for shard in "$work/$1"/*.safetensors; do
        length=$(od -An -tu8 -N8 "$shard" | tr -d ' ')
        begin=$(tail -c +9 "$shard" | head -c "$length" | jq --arg name "$2" '.[$name].data_offsets[0] // empty')
        [ -z "$begin" ] || break
    done
    [ -n "$begin" ] || fail "the model has no $2"
    printf '\000\000\300\177' | dd of="$shard" bs=1 seek=$((8 + length + begin + 4 * $3)) conv=notrunc 2>/dev/null
}
dim=$(jq .hidden_size "$cases/llama_gqa_rope3/model/config.json")
broken bad_token model.embed_tokens.weight $((330 * dim))
broken bad_layer model.layers.2.mlp.down_proj.weight 5
# The seventh row has the token that the model cannot compute with.
for row in 1 2 3 4 5 6 7 8 9 10 11 12; do
    seq $((row * 7)) $((row * 7 + 20)) | jq -sc --argjson row $row '{input_ids: ([1] + . + (if $row == 7 then [330, 9] else [] end))}'
done >"$work/rows.jsonl"
seq 20 60 | jq -sc '{input_ids: .}' >"$work/valid.jsonl"

cat >"$work/script" <<'END'
"$ringctl" --json train --model "$work/bad_token" --data "$work/rows.jsonl" --no-shuffle --batch-size 2 --micro-batch-size 1 --iters 6 \
    --lr-schedule constant --on-nan skip --adapter-out "$work/skip$nodes" --log "$work/skip$nodes.log" >"$work/skip$nodes.json" 2>"$work/skip$nodes.err"
END
export ringctl work nodes
for nodes in 1 2; do
    limit 60 "$ringctl" local $nodes --threads 1 -- exec sh "$work/script" || fail "skip on $nodes: $(cat "$work/skip$nodes.err")"
done

start_ring
# train NAME MODEL ROWS OPTION...: on three nodes; its end in $status
train() {
    name=$1
    model=$2
    rows=$3
    shift 3
    limit 60 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" --json train --model "$model" --data "$rows" --no-shuffle --batch-size 2 --micro-batch-size 1 \
        --lr-schedule constant --adapter-out "$work/$name" --log "$work/$name.log" "$@" >"$work/$name.json" 2>"$work/$name.err"
    status=$?
}
done_well() { [ $status = 0 ] || fail "$1: $(cat "$work/$1.err")"; }

# --- a step that is left out ---
train skip3 "$work/bad_token" "$work/rows.jsonl" --iters 6 --on-nan skip
done_well skip3
for nodes in 1 2 3; do
    holds "what is said on $nodes" "$work/skip$nodes.err" \
        "^the loss of step 4 is not finite, first in the output of the embedding, on rank 0, with line 7 of $work/rows.jsonl: the step is left out"
    equal "the line of step 4 on $nodes" "$(jq -c 'select(.step == 4)' "$work/skip$nodes.log")" '{"step":4,"skipped":1,"lines":[7]}'
    equal "steps on $nodes" "$(jq -c '[.result.steps, .result.skipped]' "$work/skip$nodes.json")" '[6,1]'
    same "the adapter of $nodes" "$work/skip1/adapter_model.safetensors" "$work/skip$nodes/adapter_model.safetensors"
done

# --- a step that ends the job: the state before it is kept, and goes on ---
train stop "$work/bad_token" "$work/rows.jsonl" --iters 6
equal "the end of a step that is not finite" $status 1
holds "why" "$work/stop.err" "^ringctl: job [0-9]+ failed: node n1: the loss of step 4 is not finite, first in the output of the embedding, .* the state of step 3 is saved"
train stop "$work/bad_token" "$work/rows.jsonl" --iters 6 --on-nan skip --resume
done_well stop
same "the adapter that went on" "$work/skip1/adapter_model.safetensors" "$work/stop/adapter_model.safetensors"

train layer "$work/bad_layer" "$work/rows.jsonl" --iters 2
equal "the end of a model that is not finite" $status 1
holds "which layer" "$work/layer.err" 'the loss of step 1 is not finite, first in the output of layer 2, on rank [0-2], with line 1 of .* it is the first step'

# Of several adapters, each for itself.
train several "$work/bad_token" "$work/rows.jsonl" --iters 6 --on-nan skip --sweep lr=5e-4,1e-3
done_well several
equal "steps left out of several" "$(jq -c '[.result.adapters[].skipped]' "$work/several.json")" '[1,1]'
same "one of several" "$work/skip1/adapter_model.safetensors" "$work/several/lr-5e-4/adapter_model.safetensors"

# --- evaluations that get no better ---
good=$cases/llama_gqa_rope3/model
head -n 6 "$work/rows.jsonl" >"$work/few.jsonl"
early="--lr 3e-2 --valid $work/valid.jsonl --eval-every 1 --early-stop 3"
# shellcheck disable=SC2086 # options
train early "$good" "$work/few.jsonl" --iters 200 $early
done_well early
holds "what is said" "$work/early.err" "^training stops after step [0-9]+: 3 evaluations had no better loss than [0-9.]+ of step [0-9]+, which is kept in $work/early/best"
best=$(jq .result.best_step "$work/early.json")
equal "steps after the best" "$(jq '.result.steps - .result.best_step' "$work/early.json")" 3
equal "the best" "$(jq -s 'map(select(.valid_loss and .step > 0)) | min_by(.valid_loss).step' "$work/early.log")" "$best"
equal "the loss of the best" "$(jq .result.best_valid_loss "$work/early.json")" "$(jq -s 'map(.valid_loss // empty)[1:] | min' "$work/early.log")"
train until_best "$good" "$work/few.jsonl" --iters "$best" --lr 3e-2
done_well until_best
same "the best adapter" "$work/until_best/adapter_model.safetensors" "$work/early/best/adapter_model.safetensors"

# Resumed by hand, it decides the same; and does not go on once it has decided.
for steps in $((best + 1)) 200 300; do
    resume=--resume
    [ $steps != $((best + 1)) ] || resume=
    # shellcheck disable=SC2086
    train halves "$good" "$work/few.jsonl" --iters $steps $early $resume
    done_well halves
done
equal "steps after it was resumed" "$(jq .result.steps "$work/halves.json")" "$(jq .result.steps "$work/early.json")"
for file in adapter_model.safetensors best/adapter_model.safetensors; do
    same "$file of the resumed run" "$work/early/$file" "$work/halves/$file"
done

# Interrupted between the best evaluation and the end, with copies in memory and with states on the disk: likewise. Few steps are
# over before anybody can kill: so there are more evaluations.
patient="--lr 3e-2 --valid $work/valid.jsonl --eval-every 1 --early-stop 40"
# shellcheck disable=SC2086
train calm "$good" "$work/few.jsonl" --iters 1000 $patient
done_well calm
later=$(($(jq .result.best_step "$work/calm.json") + 5))
for copies in "auto" "off --save-every 1"; do
    : >"$work/killed.log"
    # shellcheck disable=SC2086
    train killed "$good" "$work/few.jsonl" --iters 1000 $patient --copies $copies &
    job_process=$!
    await_line "$work/killed.log" "\"step\":$later," 60
    kill -KILL "$(stage_of 1)"
    await_end "$job_process" 60
    holds "the run that was killed" "$work/killed.err" 'interrupted after step'
    for file in adapter_model.safetensors best/adapter_model.safetensors; do
        same "$file of the run that was killed, copies $copies" "$work/calm/$file" "$work/killed/$file"
    done
    equal "the result of the run that was killed" "$(jq -c '.result | del(.adapter_out)' "$work/killed.json")" \
        "$(jq -c '.result | del(.adapter_out)' "$work/calm.json")"
    numbers "$work/calm.log" >"$work/calm.numbers"
    numbers "$work/killed.log" >"$work/killed.numbers"
    same "losses of the run that was killed" "$work/calm.numbers" "$work/killed.numbers"
    rm -r "$work/killed"
done

# Of several adapters each ends by itself, with the best of its own.
# shellcheck disable=SC2086
train ends "$good" "$work/few.jsonl" --iters 60 --sweep lr=1e-4,3e-2 --valid "$work/valid.jsonl" --eval-every 1 --early-stop 3
done_well ends
same "the best of several" "$work/early/best/adapter_model.safetensors" "$work/ends/lr-3e-2/best/adapter_model.safetensors"
same "the last of several" "$work/early/adapter_model.safetensors" "$work/ends/lr-3e-2/adapter_model.safetensors"
no_stages 1 2 3
