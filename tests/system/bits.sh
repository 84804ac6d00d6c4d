#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Training gives the same bits, losses, gradient norms and result, on any number of nodes, with any schedule, in any
# microbatches of the same order: a real data set through real daemons, with everything on that draws or reduces numbers.
. "$(dirname "$0")/lib/check.sh"
need_shared "$stories" "$wikisql"

# train NAME ARGS...: the log without its timings in $work/NAME.numbers, the result in $work/NAME
cat >"$work/train" <<'END'
name=$1
shift
timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" --json train --model "$stories" --data "$wikisql" --valid "$work/valid.jsonl" --eval-every 3 \
    --adapter-out "$work/$name" --log "$work/$name.log" --seq-len 128 --seed 5 --lr 3e-3 --lr-schedule cosine --warmup 2 \
    --weight-decay 0.05 --max-grad-norm 0.5 "$@" >"$work/out" 2>"$work/err" || { cat "$work/err"; exit 1; }
jq -c 'del(.step_seconds, .tokens_per_second, .bubble)' "$work/$name.log" >"$work/$name.numbers"
END
cat >"$work/lora" <<'END'
train() { sh "$work/train" "lora-$nodes-$1-$2" --schedule "$1" --micro-batch-size "$2" --iters 4 --batch-size 6 --rank 4 \
    --dropout 0.1 --target-modules all-linear; }
for run in $runs; do
    train "${run%-*}" "${run#*-}" || exit 1
done
END
cat >"$work/full" <<'END'
sh "$work/train" "full-$nodes" --fine-tune-type full --schedule "$schedule" --iters 3 --batch-size 4
END

# the_same KIND NAME FILES...: a run against the first of its kind
the_same() {
    kind=$1
    name=$2
    shift 2
    [ -e "$work/$kind.first" ] || echo "$name" >"$work/$kind.first"
    first=$(cat "$work/$kind.first")
    same "$name: log" "$work/$first.numbers" "$work/$name.numbers"
    for file in "$@"; do
        same "$name: result" "$work/$first/$file" "$work/$name/$file"
    done
    say "$name is the same"
}

head -n 5 "$wikisql/valid.jsonl" >"$work/valid.jsonl"
export ringctl work stories wikisql nodes runs schedule
for nodes in 1 2 3 4; do
    case $nodes in
    1) runs="naive-1 gpipe-2 1f1b-1 1f1b-2" ;;
    2) runs="naive-2 1f1b-1" ;;
    3) runs="naive-1 gpipe-1 1f1b-2" ;;
    4) runs="gpipe-2 1f1b-1" ;;
    esac
    limit 60 "$ringctl" local $nodes --threads 1 -- exec sh "$work/lora" || fail "LoRA on $nodes nodes"
    for run in $runs; do
        the_same "lora-${run#*-}" "lora-$nodes-$run" adapter_model.safetensors
    done
done
for nodes in 1 2 3; do
    case $nodes in 1) schedule=naive ;; 2) schedule=1f1b ;; 3) schedule=gpipe ;; esac
    limit 60 "$ringctl" local $nodes --threads 1 -- exec sh "$work/full" || fail "full fine-tuning on $nodes nodes"
    the_same full "full-$nodes" model.safetensors
done

# The comparison would not mean much if nothing had been learnt.
first=$(jq -s 'map(select(.loss))[0].loss' "$work/full-1.numbers")
last=$(jq -s 'map(select(.loss))[-1].loss' "$work/full-1.numbers")
equal "the loss fell from $first to $last" "$(jq -n "$last < $first")" true
