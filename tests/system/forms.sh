#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Adapters that are more than two factors, DoRA and PiSSA, and rates by layer, through real daemons: the same bits on any ring, with any
# schedule, as replicas and after a resume; read back from both forms, and merged.
. "$(dirname "$0")/lib/check.sh"
cd "$work" || exit 1

# train NAME ARGS...
cat >train <<'END'
name=$1
shift
timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" --json train --model "$llama" --data "$tables" --adapter-out "$name" --log "$name.log" --seq-len 64 \
    --batch-size 4 --rank 4 --lr 1e-2 --layer-lr-decay 0.9 --weight-decay 0.05 --target-modules q_proj,down_proj "$@" >out 2>err || { cat err; exit 1; }
jq -c 'del(.step_seconds, .tokens_per_second, .bubble)' "$name.log" >"$name.numbers"
END
cat >in-ring <<'END'
set -e
for form in dora pissa; do
    case $form in dora) how="--dora --lora-plus-ratio 2" ;; pissa) how="--lora-init pissa" ;; esac
    i=0
    for run in $runs; do
        case $run in *+*) parallel=${run#*+} ;; *) parallel=dp=1 ;; esac
        case $run in zb* | v*) recompute=layer ;; *) recompute=none ;; esac
        sh ./train "$form-$nodes-$i" --iters 4 --schedule "${run%+*}" --parallel "$parallel" --recompute $recompute $how
        i=$((i + 1))
    done
done
END
same_as_first() {
    same "$1-$2: log" "$1-1-0.numbers" "$1-$2.numbers"
    same "$1-$2: result" "$1-1-0/adapter_model.safetensors" "$1-$2/adapter_model.safetensors"
}
export ringctl llama tables nodes runs
for nodes in 1 2 3; do
    case $nodes in 1) runs="naive" ;; 2) runs="1f1b zbv 1f1b+dp=2" ;; 3) runs="interleaved-1f1b" ;; esac
    limit 60 "$ringctl" local $nodes --threads 1 -- exec sh ./in-ring || fail "training on $nodes nodes"
done
for form in dora pissa; do
    for run in 2-0 2-1 2-2 3-0; do
        same_as_first $form $run
    done
done

# Two steps, and two more; then what is done with the results.
cat >then <<'END'
set -e
sh ./train pissa-resumed --iters 2 --lora-init pissa
sh ./train pissa-resumed --iters 4 --resume
sh ./train dora-resumed --iters 2 --dora --lora-plus-ratio 2
sh ./train dora-resumed --iters 4 --resume --lora-plus-ratio 2
timeout 60 "$ringctl" --json score --model "$llama" --ids 5,6,7,8,9,10,11,12 >score.bare
for form in dora pissa; do
    mkdir mlx
    cp $form-1-0/adapter_config.json $form-1-0/adapters.safetensors mlx/
    timeout 60 "$ringctl" --json score --model "$llama" --adapter $form-1-0 --ids 5,6,7,8,9,10,11,12 >score.$form
    timeout 60 "$ringctl" --json score --model "$llama" --adapter mlx --ids 5,6,7,8,9,10,11,12 >score.$form-mlx
    timeout 60 "$ringctl" merge --model "$llama" --adapter $form-1-0 --out merged-$form --dtype f32 >said
    timeout 60 "$ringctl" --json score --model merged-$form --ids 5,6,7,8,9,10,11,12 >score.$form-merged
    rm -r mlx
done
END
limit 60 "$ringctl" local 2 --threads 1 -- exec sh ./then >said 2>&1 || { cat said; fail "resume, score and merge"; }
for form in dora pissa; do
    same "$form-resumed: result" $form-1-0/adapter_model.safetensors $form-resumed/adapter_model.safetensors
    same "$form in mlx-lm's form" score.$form score.$form-mlx
done
apart() { jq -n --slurpfile a "$1" --slurpfile b "$2" '($a[0].total - $b[0].total) | fabs'; }
for form in dora pissa; do
    jq -ne "$(apart score.$form score.$form-merged) < 1e-3" >/dev/null || fail "$form merged: $(apart score.$form score.$form-merged) apart"
    jq -ne "$(apart score.$form score.bare) > 1e-2" >/dev/null || fail "$form changes nothing: $(apart score.$form score.bare)"
done
config() { jq -c "$2" "$1-1-0/adapter_config.json"; }
equal "DoRA is said to both" "$(config dora '[.use_dora, .r, .fine_tune_type]')" '[true,4,"dora"]'
equal "PiSSA is a plain LoRA of twice the rank" "$(config pissa '[.use_dora, .r, .lora_alpha == 32, .init_lora_weights]')" '[false,8,true,true]'
