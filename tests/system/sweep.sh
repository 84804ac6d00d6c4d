#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Adapters that are trained together on one frozen model come out as each would alone, losses, gradient norms, measurements and files, on
# any number of nodes, whether their steps follow each other without a pause or all end before the next begin, in an order named or found. A run of several is gone on with.
. "$(dirname "$0")/lib/check.sh"

# train NAME ARGS...: into $work/NAME, what was logged of each step in $work/NAME.log
cat >"$work/train" <<'END'
name=$1
shift
timeout $((120 * ${RINGD_TEST_SLOW:-1})) "$ringctl" --json train --model "$llama" --data "$tables" --valid "$work/valid.jsonl" --eval-every 3 \
    --adapter-out "$work/$name" --log "$work/$name.log" --seq-len 96 --batch-size 6 --target-modules all-linear --warmup 2 --max-grad-norm 0.5 \
    --seed 5 "$@" >"$work/$name.out" 2>"$work/err" || { cat "$work/err"; exit 1; }
END
cat >"$work/run-alone" <<'END'
for seed in 5 6; do
    for rank in 4 2; do
        sh "$work/train" "alone-$seed-$rank" --iters 7 --lr 1e-2 --dropout 0.1 --rank $rank --seed $seed || exit 1
    done
done
END
cat >"$work/run-together" <<'END'
for schedule in $schedules; do
    sh "$work/train" "$nodes-$schedule" --iters 7 --lr 1e-2 --dropout 0.1 --sweep rank=4,2 --sweep seed=5,6 --schedule "$schedule" \
        --micro-batch-size 1 || exit 1
done
END
# Ends after four steps, and is gone on with; one of the two was a step ahead, as after a failure between two results.
cat >"$work/run-resumed" <<'END'
sh "$work/train" resumed --iters 4 --lr 1e-2 --dropout 0.1 --rank 4 --sweep seed=5,6 || exit 1
sh "$work/train" ahead --iters 5 --lr 1e-2 --dropout 0.1 --rank 4 --seed 6 || exit 1
rm -r "$work/resumed/seed-6"
cp -r "$work/ahead" "$work/resumed/seed-6"
sh "$work/train" resumed --iters 7 --lr 1e-2 --dropout 0.1 --sweep seed=5,6 --resume || exit 1
END

# numbers LOG [ADAPTER]: what does not depend on the clock
numbers() { jq -c --arg a "${2-}" 'select((.adapter // "") == $a) | del(.adapter, .step_seconds, .tokens_per_second, .bubble)' "$1"; }

head -n 3 "$tables/valid.jsonl" >"$work/valid.jsonl"
export ringctl work llama tables nodes schedules
limit 240 "$ringctl" local 1 --threads 1 -- exec sh "$work/run-alone" || fail "each alone"
for nodes in 1 2 3 4; do
    case $nodes in 1) schedules=1f1b ;; 2) schedules="1f1b zbv" ;; 3) schedules="1f1b gpipe zb-h1 auto" ;; 4) schedules="1f1b interleaved-1f1b" ;; esac
    limit 360 "$ringctl" local $nodes --threads 1 -- exec sh "$work/run-together" || fail "together on $nodes nodes"
    for schedule in $schedules; do
        for seed in 5 6; do
            for rank in 4 2; do
                one=rank-$rank-seed-$seed
                numbers "$work/alone-$seed-$rank.log" >"$work/a"
                numbers "$work/$nodes-$schedule.log" $one >"$work/b"
                equal "$one, lines" "$(wc -l <"$work/a")" 11
                same "$schedule on $nodes nodes, $one: log" "$work/a" "$work/b"
                for file in adapter_model.safetensors training_state.safetensors adapter_config.json; do
                    same "$schedule on $nodes nodes, $one: result" "$work/alone-$seed-$rank/$file" "$work/$nodes-$schedule/$one/$file"
                done
            done
        done
        say "four adapters, $schedule on $nodes nodes: each as alone"
    done
done
equal "results that are told" "$(jq -c '[.result.adapters[] | .adapter]' "$work/4-1f1b.out")" '["rank-4-seed-5","rank-4-seed-6","rank-2-seed-5","rank-2-seed-6"]'
equal "loss that is told" "$(jq '.result.adapters[0].loss' "$work/4-1f1b.out")" "$(jq .result.loss "$work/alone-5-4.out")"

limit 240 "$ringctl" local 2 --threads 1 -- exec sh "$work/run-resumed" || fail "gone on with"
for seed in 5 6; do
    same "gone on with, seed $seed" "$work/alone-$seed-4/adapter_model.safetensors" "$work/resumed/seed-$seed/adapter_model.safetensors"
done
say "a run of several is gone on with"
