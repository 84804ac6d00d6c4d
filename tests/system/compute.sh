#!/bin/sh
# SPDX-License-Identifier: MIT
#
# --compute bf16 through real daemons: scoring and generation of weights as they are stored and in 4 bits, with the same bits on one node
# and on three; and what is refused.
. "$(dirname "$0")/lib/check.sh"
XDG_CACHE_HOME=$work/cache
long="Once upon a time there was a little girl who had a red ball. She played with it in the garden all day, and the dog ran after it."
export XDG_CACHE_HOME llama work ringctl long
unset CACHE_DIRECTORY
echo "{\"text\": \"$long\"}" >"$work/rows.jsonl"

cat >"$work/run" <<'END'
for bits in stored int4; do
    for compute in f32 bf16; do
        "$ringctl" --json score --model "$llama" --data "$work/rows.jsonl" --weights $bits --compute $compute 2>"$work/err" |
            jq -c .total >"$work/score-$nodes-$bits-$compute" || { cat "$work/err"; exit 1; }
    done
done
"$ringctl" generate --model "$llama" --max-tokens 8 --compute bf16 "$long" >"$work/text-$nodes" 2>"$work/err" || { cat "$work/err"; exit 1; }
END
for nodes in 1 3; do
    export nodes
    limit 120 "$ringctl" local "$nodes" --threads 1 exec sh "$work/run" || fail "on $nodes nodes"
done
for bits in stored int4; do
    same "score, $bits" "$work/score-1-$bits-bf16" "$work/score-3-$bits-bf16"
    ! cmp -s "$work/score-1-$bits-bf16" "$work/score-1-$bits-f32" || fail "--compute bf16 changed nothing"
    near "score, $bits" "$(cat "$work/score-1-$bits-bf16")" "$(cat "$work/score-1-$bits-f32")" 0.5
done
same "text" "$work/text-1" "$work/text-3"
say "one node and three agree"

# What ringctl does not offer, a program may ask for.
cat >"$work/ask" <<'END'
curl -sS --unix-socket "$RINGD_SOCKET" -H 'Content-Type: application/json' http://localhost/v1/jobs \
    -d "{\"type\":\"train\",\"spec\":{\"model\":\"$llama\",\"data\":\"$tables\",\"adapter_out\":\"$work/lora\",\"compute\":\"bf16\"}}"
"$ringctl" attach 1
END
export tables
limit 60 "$ringctl" local 1 exec sh "$work/ask" >"$work/out" 2>&1 && fail "training in bf16"
holds "the refusal" "$work/out" 'training is computed in f32'
limit 60 "$ringctl" local 1 score --model "$llama" --text "$long" --compute bf16 >"$work/out" 2>&1 && fail "a text in bf16"
holds "the refusal" "$work/out" 'compute bf16 is for a data set'
limit 60 "$ringctl" local 1 score --model "$llama" --text "$long" --compute bf32 >"$work/out" 2>&1 && fail "a form that there is not"
holds "the refusal" "$work/out" 'must be f32, bf16 or int8, and is'
