#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Two jobs on one model need its weights once: beside a model that is served, a second job fits only because of that, plans say so, and
# whoever ends first, the node has promised what the other needs. A job on another model waits.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"

# large FOLDER: the shape of the small Llama with a wide MLP, and no other number in its weights than 0. Nothing is on the disk of it.
large() {
    mkdir "$1"
    jq 'del(.eos_token_id) | .intermediate_size = 24576 | .torch_dtype = "bfloat16"' "$llama/config.json" >"$1/config.json"
    cp "$llama/tokenizer.json" "$1/"
    jq -cj '.num_hidden_layers as $layers | .hidden_size as $dim | .intermediate_size as $wide | ($dim / 2) as $kv |
        [{"model.embed_tokens.weight": [.vocab_size, $dim], "model.norm.weight": [$dim]},
            (range($layers) | "model.layers.\(.)." as $at | {"self_attn.q_proj": [$dim, $dim], "self_attn.k_proj": [$kv, $dim],
                "self_attn.v_proj": [$kv, $dim], "self_attn.o_proj": [$dim, $dim], "mlp.gate_proj": [$wide, $dim],
                "mlp.up_proj": [$wide, $dim], "mlp.down_proj": [$dim, $wide], "input_layernorm": [$dim],
                "post_attention_layernorm": [$dim]} | with_entries(.key = "\($at)\(.key).weight"))] | add | to_entries |
        reduce .[] as $t ({at: 0, tensors: {}}; (.at + 2 * ($t.value | reduce .[] as $n (1; . * $n))) as $next |
            .tensors[$t.key] = {dtype: "BF16", shape: $t.value, data_offsets: [.at, $next]} | .at = $next) | .tensors' \
        "$1/config.json" >"$work/head"
    bytes=$(wc -c <"$work/head")
    data_bytes=$(jq '[.[].data_offsets[1]] | max' "$work/head")
    # shellcheck disable=SC2059 # the format is two octal numbers
    {
        printf "$(printf '\\%03o\\%03o' $((bytes % 256)) $((bytes / 256)))"
        head -c 6 /dev/zero
        cat "$work/head"
    } >"$1/model.safetensors"
    truncate -s $((8 + bytes + data_bytes)) "$1/model.safetensors"
}
serve_options="--max-context 256 --max-num-seqs 2 --prefill-step-size 16"
train_options="--model $work/large --data $tables --seq-len 16 --batch-size 1 --copies off --recompute none --iters 100000 --on-loss stop
    --adapter-out $work/adapter"
serves() {
    # shellcheck disable=SC2086 # options
    on 1 serve --model "$work/large" $serve_options >"$work/said" 2>&1 || fail "serve: $(cat "$work/said")"
    holder=$(sed -n 's/^job \([0-9]*\) serves .*/\1/p' "$work/said")
}
stops() { on 1 serve stop large >"$work/said" 2>&1 || fail "stop: $(cat "$work/said")"; }
plan() { # NAME COMMAND OPTIONS…: in $work/NAME.json, and what it takes on the node in $takes
    name=$1
    shift
    on 1 --json plan "$@" >"$work/$name.json" 2>"$work/$name.err" || fail "plan of $name: $(cat "$work/$name.err")"
    takes=$(jq '.plan.bytes[0]' "$work/$name.json")
}
# generates NAME MODEL TOKENS: what it says in $work/NAME.json
generates() {
    RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" --json generate --model "$work/$2" --ids 1,300,261 --max-tokens "$3" >"$work/$1.json" 2>"$work/$1.err"
}
free() { on 1 --json nodes | jq '.nodes[0].memory_available'; }

large "$work/large"
large "$work/other"
start_node 1
# shellcheck disable=SC2086 # options
plan serving serve --model "$work/large" $serve_options
serving=$takes
plan asking train $train_options
asking=$takes
equal 'what is shared where no other job runs' "$(jq -c .plan.shared "$work/asking.json")" null
generates alone large 24 || fail "alone: $(cat "$work/alone.err")"
stop_node 1

say 'a second job fits beside the first'
limit=$((serving + asking - 30000000))
node_options="--memory-limit $limit"
start_node 1
serves
# shellcheck disable=SC2086 # options
plan beside train $train_options
equal 'what it takes' "$takes" "$asking"
shared=$(jq '.plan.shared[0].bytes' "$work/beside.json")
equal 'with whom it shares' "$(jq -c '.plan.shared[0].jobs' "$work/beside.json")" "[$holder]"
[ "$shared" -gt 40000000 ] && [ $((asking - shared)) -le "$(free)" ] || fail "of $asking bytes $shared are shared"
[ "$asking" -gt "$(free)" ] || fail 'it would fit by itself'
# shellcheck disable=SC2086 # options
on 1 plan train $train_options >"$work/plan" 2>&1 || fail "plan: $(cat "$work/plan")"
holds 'what people read' "$work/plan" "^node n1: [0-9.]+ MiB of [0-9.]+ MiB are shared with job $holder\$"
generates beside large 24 || fail "beside: $(cat "$work/beside.err")"
equal 'tokens beside the first' "$(jq -c .ids "$work/beside.json")" "$(jq -c .ids "$work/alone.json")"

say 'the first ends before the second'
: >"$work/steps"
# shellcheck disable=SC2086 # options
RINGD_SOCKET=$(sock_of 1) limit 120 "$ringctl" --json train $train_options --log "$work/steps" >"$work/second.json" 2>"$work/second.err" &
second=$!
await_line "$work/steps" '"step":2' 30
equal 'what both leave' "$(free)" $((limit - serving - asking + shared))
stops
equal 'what the second leaves alone' "$(free)" $((limit - asking))
on 1 cancel "$(on 1 --json jobs | jq '[.jobs[] | select(.state == "running")][0].id')" >/dev/null
await_end $second 20
equal 'what is left of all' "$(free)" "$limit"

say 'a job on another model waits'
serves
generates waited other 24 &
waiting=$!
await_line "$work/waited.err" "waits: node n1 lacks [0-9.]+ MiB of memory, which job $holder holds" 30
stops
wait $waiting || fail "the job that waited: $(cat "$work/waited.err")"
equal 'tokens of the other model' "$(jq -c .ids "$work/waited.json")" "$(jq -c .ids "$work/alone.json")"
say 'jobs on one model share its memory, and a job on another waits'
