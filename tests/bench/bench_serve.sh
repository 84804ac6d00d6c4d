#!/bin/sh
# What clients of a model see that a ring serves, each row in turns with what it is held against: many streams and one, and what `simulate
# --serve` foresees of them; a second turn and the first; a long prompt beside streams; guesses that are right, and none; training beneath.
# With LLAMA_SERVER=PATH, llama-server on the same model and as many threads.
# usage: bench_serve.sh BUILD NAME MODEL
# SPDX-License-Identifier: MIT
set -eu
turns=${TURNS:-5}

# Within the ring, called by itself.
if [ -n "${BENCH_SERVE:-}" ]; then
    work=$BENCH_SERVE
    client="$BUILD/tests/bench/bench_serve"
    served() { "$RINGCTL" serve --model "$work/model" --name "$@" --max-context 6144 --max-kv-size 24576 >>"$work/said" 2>&1; }
    # ask NUMBER-OF-THE-FIGURE NAME KEYS…
    ask() {
        figure=$1 name=$2
        shift 2
        "$client" "$RINGD_SOCKET" "$name" "$@" | cut -d' ' -f"$figure"
    }
    # pairs FILE: in turns, what `one` and `two` print for the number of the turn
    pairs() {
        for turn in $(seq "$turns"); do
            echo "$(one "$turn") $(two "$turn")" >>"$work/$1"
        done
    }
    # foresee TURN STREAMS…: what the planner times of this ring now, and simulate makes of it
    foresee() {
        turn=$1
        shift
        rm -rf "$CACHE_DIRECTORY/costs"
        "$RINGCTL" plan serve --model "$work/model" --max-context 6144 --max-kv-size 24576 --json >"$work/plan" 2>>"$work/said"
        "$RINGCTL" simulate --serve --plan "$work/plan" --prompt-tokens 8 --max-tokens 96 --streams "$(echo "$*" | tr ' ' ,)" --json |
            jq -r '.rows[] | "\(.streams) \(.tokens_per_second)"' >"$work/foreseen$turn"
    }
    # Nothing is timed beside a model that is served, so it is served anew in each turn.
    many=$((2 * NODES))
    [ "$NODES" = 1 ] && counts="1 2 8 16" || counts="1 $many"
    for turn in $(seq "$turns"); do
        # shellcheck disable=SC2086 # words
        foresee "$turn" $counts
        served plain --draft-max 0
        for n in $counts; do
            measured=$(ask 1 plain streams="$n" tokens=96 seed="$turn")
            [ "$n" = 1 ] && alone=$measured
            echo "$measured $alone" >>"$work/streams$n"
            echo "$measured $(awk -v n="$n" '$1 == n {print $2}' "$work/foreseen$turn")" >>"$work/foreseen.$n"
        done
        "$RINGCTL" serve stop plain
        timeout 60 sh -c 'until "$RINGCTL" jobs --json | jq -e "all(.jobs[]; .state | IN(\"done\", \"failed\", \"cancelled\"))" >/dev/null; do sleep 0.1; done'
    done
    [ "$NODES" = 1 ] || exit 0
    served plain --draft-max 0
    # The second turn has the first one's 2,048 tokens, and 52 more.
    two() { ask 2 plain prompt=2048 tokens=8 seed="3$1"; }
    one() { ask 2 plain prompt=2100 tokens=8 seed="3$1"; }
    for turn in $(seq "$turns"); do
        cold=$(two "$turn")
        echo "$(one "$turn") $cold" >>"$work/second"
    done
    # The piece is the usual gap while the prompt is read.
    for turn in $(seq 2); do
        "$client" "$RINGD_SOCKET" plain streams=8 tokens=160 late=4096 seed="$turn" | awk '{print $5, $3}' >>"$work/late"
    done
    served guess
    one() { ask 1 guess bias=77 tokens=192 seed="$1"; }
    two() { ask 1 plain bias=77 tokens=96 seed="$1"; }
    pairs right
    one() { ask 1 guess tokens=96 seed="$1"; }
    two() { ask 1 plain tokens=96 seed="$1"; }
    pairs random
    "$RINGCTL" serve stop guess
    # A draft model that is nearly always right, and one that is not.
    "$RINGCTL" serve --model "$work/model-late" --name late --max-context 1024 >>"$work/said" 2>&1
    "$RINGCTL" serve --model "$work/model-late" --draft-model "$work/model-first" --draft-weights int4 --name drafted --max-context 1024 >>"$work/said" 2>&1
    one() { ask 1 drafted top_k=1 tokens=96 seed="$1"; }
    two() { ask 1 late top_k=1 tokens=96 seed="$1"; }
    pairs drafted
    one() { ask 1 drafted tokens=96 seed="$1"; }
    two() { ask 1 late tokens=96 seed="$1"; }
    pairs undrafted
    "$RINGCTL" serve stop drafted
    "$RINGCTL" serve stop late
    if [ -n "${LLAMA_SERVER:-}" ]; then
        python3 "$(dirname "$0")/gguf.py" "$work/model" "$work/model.gguf"
        "$LLAMA_SERVER" -m "$work/model.gguf" -np 16 -c 16384 -t 1 -tb 1 --port 18099 >"$work/llama.said" 2>&1 &
        llama=$!
        trap 'kill $llama' EXIT
        timeout 60 sh -c 'until grep -q "server is listening" "$1"; do sleep 0.1; done' sh "$work/llama.said"
        one() { ask 1 plain streams=16 tokens=96 seed="$1"; }
        two() { "$client" http://127.0.0.1:18099 model streams=16 tokens=96 seed="$1" | cut -d' ' -f1; }
        pairs llama
    fi
    exit 0
fi
# Training beneath it, all on one core.
if [ -n "${BENCH_BENEATH:-}" ]; then
    work=$BENCH_BENEATH
    client="$BUILD/tests/bench/bench_serve"
    train() {
        "$RINGCTL" train --model "$work/model" --data "$work/rows.jsonl" --adapter-out "$work/out" --rank 8 --batch-size 1 --seq-len 32 \
            --iters "$1" --log "$work/log" >>"$work/said" 2>&1
        jq -r 'select(.step > 2) | .step_seconds' "$work/log" | sort -n | awk '{x[NR] = $1} END {print x[int((NR + 1) / 2)]}'
        rm -rf "$work/out" "$work/log"
    }
    for turn in $(seq 3); do
        alone=$(train 20)
        "$RINGCTL" serve --model "$work/model" --name plain --draft-max 0 --max-context 1024 >>"$work/said" 2>&1
        echo "$(train 20) $alone" >>"$work/idle"
        calm=$("$client" "$RINGD_SOCKET" plain streams=4 tokens=128 seed="$turn" | cut -d' ' -f4)
        train 100000 >"$work/beneath" &
        trainer=$!
        timeout 60 sh -c 'until jq -e "select(.step == 1)" "$1" >/dev/null 2>&1; do sleep 0.1; done' sh "$work/log"
        echo "$("$client" "$RINGD_SOCKET" plain streams=4 tokens=128 seed="$turn" | cut -d' ' -f4) $calm" >>"$work/load"
        "$RINGCTL" jobs --json | jq -r '.jobs[] | select(.type == "train" and .state == "running") | .id' | xargs -r -n 1 "$RINGCTL" cancel >>"$work/said"
        wait $trainer || true
        "$RINGCTL" serve stop plain
    done
    exit 0
fi

build=$1 name=$2 model=$3
work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/model"
for file in "$model"/*; do
    ln -s "$(realpath "$file")" "$work/model/"
done
for shape in late first; do
    "$build/tests/bench/bench_model" "$work/model-$shape" "110m_$shape" f32
done
# Each token has a text, so that each one is an event of the stream.
words() {
    awk '{
        printf "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,"
        printf "\"model\":{\"type\":\"BPE\",\"vocab\":{"
        for (i = 0; i < $1; i++) printf "%s\"t%d\":%d", i ? "," : "", i, i
        print "},\"merges\":[]}}"
    }'
}
jq -r .vocab_size "$model/config.json" | words >"$work/model/tokenizer.json"
jq -r .vocab_size "$work/model-late/config.json" | words >"$work/model-late/tokenizer.json"
cp "$work/model-late/tokenizer.json" "$work/model-first/"
awk 'BEGIN {
    for (r = 0; r < 16; r++) {
        ids = ""
        for (i = 0; i < 32; i++) {
            x = (x * 75 + 74 + r) % 65537
            ids = ids (i ? "," : "") x % 256
        }
        printf "{\"input_ids\":[%s],\"labels\":[%s]}\n", ids, ids
    }
}' >"$work/rows.jsonl"
export BUILD="$build" RINGCTL="$build/ringctl" NODES

# row WHAT UNIT AGAINST FILE RELATION GOAL SCALE: one row of the table; the goal is of the ratio in percent, of the limit times SCALE
row() {
    awk -f tests/bench/pairs.awk -v what="$1" -v unit="$2" -v against="$3" -v how="$5" -v goal="$6" -v scale="$7" -v times=1 "$work/$4"
}
run() { # NODES
    NODES=$1
    env "BENCH_SERVE=$work" "CACHE_DIRECTORY=$work/cache" "$build/ringctl" local "$NODES" --threads 1 exec sh "$0" >"$work/output" 2>&1 || {
        cat "$work/output" "$work/said" >&2
        exit 1
    }
}

# foreseen STREAMS…: what was measured against what simulate --serve foresaw in the same turn
foreseen() {
    for n in "$@"; do
        row "serve $name: $n, $NODES nodes: measured" tokens/s foreseen "foreseen.$n" within 10 1
    done
    rm "$work"/foreseen*
}

if [ "$(nproc)" -ge 2 ]; then
    run 2
    row "serve $name: 4 streams, 2 nodes" tokens/s "2 x one stream" streams4 '>=' 90 2
    foreseen 1 4
    rm "$work"/streams*
fi
run 1
row "serve $name: 8 streams, 1 node" tokens/s "8 x one stream" streams8 - - 8 # their goal is the roofline: bench_rows
row "serve $name: 16 streams, 1 node" tokens/s "16 x one stream" streams16 - - 16
foreseen 1 2 8 16
# Rings that are not here, of nodes like this one: what was timed last.
"$build/ringctl" simulate --serve --plan "$work/plan" --prompt-tokens 8 --max-tokens 96 --nodes 1 --scale-to 8 --streams 1,2,4,8,16 --csv |
    awk -F, -v name="$name" 'NR > 1 && $2 == 2 * $1 {
        printf "%-38s %9.2f %-9s %-22s %8.2f %-8s %6.1f %%           ", "serve " name ": " $2 ", " $1 " nodes foreseen", $3, "tokens/s", $1 " x one stream",
            $3 / $5 * $1, "tokens/s", 100 * $5 / $1
        print $1 < 4 ? "-" : ">= 80 %  " ($5 / $1 >= 0.8 ? "ok" : "MISSED")
    }'
row "first token, second turn of 2k" ms "the first turn" second '<=' 10 1
row "gap beside a 4k prompt, p99" ms "a piece" late '<=' 200 1
row "guesses that are right" tokens/s "without guesses" right '>=' 200 1
row "guesses of a draft model, greedy" tokens/s "without it" drafted '>=' 120 1
row "the same, random text" tokens/s "without it" undrafted '>=' 98 1
row "guesses, random text" tokens/s "without guesses" random '>=' 98 1
if [ -n "${LLAMA_SERVER:-}" ]; then
    row "serve $name: 16 streams, 1 thread" tokens/s "llama-server -np 16" llama '>=' 150 1
else
    printf '%-38s skipped: LLAMA_SERVER names no llama-server\n' "serve beside llama-server"
fi
if command -v taskset >/dev/null; then
    NODES=1
    env "BENCH_BENEATH=$work" taskset -c 0 "$build/ringctl" local 1 --threads 1 exec sh "$0" >"$work/output" 2>&1 || {
        cat "$work/output" "$work/said" >&2
        exit 1
    }
    row "LoRA step above idle serving" s "without it" idle '<=' 101 1
    row "p95 of gaps, training beneath" ms "without it" load '<=' 115 1
fi
