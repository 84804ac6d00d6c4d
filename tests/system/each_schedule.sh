#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every family in every schedule: LoRA and training of all weights on two nodes have the bits of one node. each.sh asks for what else a
# family can do.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/every_model.sh"
cd "$work" || exit 1
every_model

mkdir types
for model in $(ls models); do
    echo lora >"types/$model"
    grep -q '"quantization_config"' "models/$model/config.json" || echo full >>"types/$model" # quantized weights stay as they are
done

cat >in-ring <<'END_OF_SCRIPT'
train() {
    name=$1
    shift
    timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" --json train --model "models/$model" --data rows.jsonl --adapter-out "out/$name" \
        --log "out/$name.log" --iters 1 --seed 5 --lr 3e-3 "$@" >"said.$nodes" 2>"err.$nodes" </dev/null ||
        { echo "$name on $nodes: $(cat "err.$nodes")"; exit 1; }
}
for model in $(ls models); do
    for type in $(cat "types/$model"); do
        options="--fine-tune-type $type"
        [ $type = full ] || options="$options --target-modules all-linear --rank 2"
        if [ "$nodes" = 1 ]; then
            train "$model-$type-alone" $options
        else
            for schedule in $schedules; do
                train "$model-$type-$schedule" $options --schedule "$schedule"
            done
        fi
    done
done
END_OF_SCRIPT
schedules="naive gpipe 1f1b eager-1f1b interleaved-1f1b looped-bfs zb-h1 zb-h2 zbv v-1f1b"
export ringctl nodes schedules
for nodes in 1 2; do
    limit 400 "$ringctl" local $nodes --threads 1 -- exec sh in-ring || fail "on $nodes nodes"
    say "$nodes nodes"
done
for model in $(ls models); do
    for type in $(cat "types/$model"); do
        for schedule in $schedules; do
            for file in "out/$model-$type-alone"/*.safetensors; do
                same "$model, $type, in $schedule" "$file" "out/$model-$type-$schedule/${file##*/}"
            done
        done
    done
done
