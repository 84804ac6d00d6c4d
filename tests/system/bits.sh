#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Training gives the same bits, losses, gradient norms, result and state, on any number of nodes, with any schedule, as
# any number of replicas, which share out the optimizer's state or do not, in any microbatches of the same order: a real
# data set through real daemons, with everything on that draws or reduces numbers.
. "$(dirname "$0")/lib/check.sh"

# train NAME ARGS...: the log without its timings in $work/NAME.numbers, the result in $work/NAME
cat >"$work/train" <<'END'
name=$1
shift
timeout $((60 * ${RINGD_TEST_SLOW:-1})) "$ringctl" --json train --model "$llama" --data "$tables" --valid "$work/valid.jsonl" --eval-every 3 \
    --adapter-out "$work/$name" --log "$work/$name.log" --seq-len 128 --seed 5 --lr 3e-3 --lr-schedule cosine --warmup 2 \
    --weight-decay 0.05 --max-grad-norm 0.5 "$@" >"$work/out" 2>"$work/err" || { cat "$work/err"; exit 1; }
jq -c 'del(.step_seconds, .tokens_per_second, .bubble)' "$work/$name.log" >"$work/$name.numbers"
END
cat >"$work/lora" <<'END'
train() { sh "$work/train" "lora-$nodes-$run" --schedule "$1" --recompute $recompute --micro-batch-size "$2" --iters 4 --batch-size 6 --rank 4 \
    --dropout 0.1 --target-modules all-linear --parallel "$parallel"; }
for run in $runs; do # SCHEDULE-ROWS, of several replicas SCHEDULE-ROWS+dp=…
    case $run in *+*) parallel=${run#*+} ;; *) parallel=dp=1 ;; esac
    case $run in v-* | 1f1b-2 | zb-h1* | interleaved-1f1b-1) recompute=stage ;; gpipe-* | zbv-1) recompute=layer ;; *) recompute=none ;; esac
    of=${run%%+*}
    train "${of%-*}" "${of##*-}" || exit 1
done
END
# A schedule of one's own, which no built-in one equals.
cat >"$work/own" <<'END'
common="--iters 4 --batch-size 6 --rank 4 --dropout 0.1 --target-modules all-linear"
"$ringctl" schedule convert v-1f1b --ranks 2 --microbatches 6 --format compute_comms | sed 's/\([0-9][0-9]*\)B1\>/\1R1,\1I1,\1W1/g' >"$work/own.csv"
sh "$work/train" lora-2-own-1 --schedule "$work/own.csv" $common --micro-batch-size 1 || exit 1
END
cat >"$work/full" <<'END'
for schedule in $schedules; do
    case $schedule in zb* | v-*) recompute=stage ;; gpipe | 1f1b) recompute=layer ;; *) recompute=none ;; esac
    case $schedule in *+zero) zero=1 ;; *) zero=0 ;; esac
    name=${schedule%+zero}
    case $name in *+*) parallel=${name#*+} ;; *) parallel=dp=1 ;; esac
    sh "$work/train" "full-$nodes-$schedule" --fine-tune-type full --recompute $recompute --schedule "${name%%+*}" --iters 3 --batch-size 4 --save-every 2 \
        --parallel "$parallel" --zero $zero || exit 1
done
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

head -n 5 "$tables/valid.jsonl" >"$work/valid.jsonl"
export ringctl work llama tables nodes runs schedules
for nodes in 1 2 3 4; do
    case $nodes in
    1) runs="naive-1 gpipe-2 1f1b-1 1f1b-2 interleaved-1f1b-1 zbv-2" ;;
    2) runs="naive-2 1f1b-1 zbv-1 interleaved-1f1b-2 gpipe-1+dp=2" ;;
    3) runs="naive-1 gpipe-1 zb-h1-2 v-1f1b-1 interleaved-1f1b-1 1f1b-2+dp=3 1f1b-1+pp=1+2 zb-h1-2+pp=2+1" ;;
    4) runs="gpipe-2 1f1b-1 zb-h2-2 interleaved-1f1b-2 1f1b-1+dp=4 zbv-1+dp=2 eager-1f1b-1+dp=2,pp=2 looped-bfs-1+dp=2 gpipe-1+pp=1+3 eager-1f1b-1+pp=1+2+1" ;;
    esac
    limit 60 "$ringctl" local $nodes --threads 1 -- exec sh "$work/lora" || fail "LoRA on $nodes nodes"
    for run in $runs; do
        of=${run%%+*}
        the_same "lora-${of##*-}" "lora-$nodes-$run" adapter_model.safetensors
    done
done
limit 60 "$ringctl" local 2 --threads 1 -- exec sh "$work/own" || fail "schedules of one's own"
grep -q 1R1,1I1,1W1 "$work/own.csv" || fail "the schedule of one's own has no halves: $(cat "$work/own.csv")"
the_same lora-1 lora-2-own-1 adapter_model.safetensors
for nodes in 1 2 3 4; do
    case $nodes in 4) schedules="zb-h1+dp=2 zbv+dp=2+zero" ;; 1) schedules="naive v-1f1b" ;; 2) schedules="1f1b zbv looped-bfs+dp=2 1f1b+dp=2 1f1b+dp=2+zero" ;; 3) schedules="gpipe zb-h1 interleaved-1f1b looped-bfs zb-h1+pp=1+2 1f1b+pp=2+1+zero" ;; esac
    limit 60 "$ringctl" local $nodes --threads 1 -- exec sh "$work/full" || fail "full fine-tuning on $nodes nodes"
    for schedule in $schedules; do
        the_same full "full-$nodes-$schedule" model.safetensors training_state.safetensors
    done
done

# The comparison would not mean much if nothing had been learnt.
first=$(jq -s 'map(select(.loss))[0].loss' "$work/full-1-naive.numbers")
last=$(jq -s 'map(select(.loss))[-1].loss' "$work/full-1-naive.numbers")
equal "the loss fell from $first to $last" "$(jq -n "$last < $first")" true
