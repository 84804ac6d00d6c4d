#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ringctl convert through real daemons: a model quantized into files scores and answers as one that a job quantizes; a GGUF file
# becomes a folder with the same score; what was quantized becomes plain again; and what is refused leaves nothing.
. "$(dirname "$0")/lib/check.sh"
cd "$work" || exit 1
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
unset CACHE_DIRECTORY
text="In the beginning God created"

# convert ARGUMENT...: one JSON object in `said`
convert() { limit 60 "$ringctl" --json convert "$@" >said 2>err || fail "convert $*: $(cat err)"; }
# ask NODES NAME --model MODEL [OPTION...]: its score and its text, in NAME.score and NAME.text
ask() {
    nodes=$1 name=$2
    shift 2
    limit 60 "$ringctl" --json local "$nodes" --threads 1 score --text "$text" "$@" >out 2>err || fail "$name: no score: $(cat err)"
    jq -c .total out >"$name.score"
    limit 60 "$ringctl" --json local "$nodes" --threads 1 generate --temperature 0 --max-tokens 12 "$text" "$@" >out 2>err ||
        fail "$name: no text: $(cat err)"
    jq -c .ids out >"$name.text"
}
# alike WHAT A B
alike() {
    same "$1: score" "$2.score" "$3.score"
    same "$1: text" "$2.text" "$3.text"
}

ask 1 stored --model "$llama"
for bits in 8 4; do
    convert --model "$llama" --out "q$bits" -q --q-bits $bits
    equal "what was written" "$(jq -c '[.out, .files, .quantized > 20]' said)" "[\"q$bits\",1,true]"
    equal "config.json" "$(jq -c '[.quantization.bits, .quantization.group_size]' q$bits/config.json)" "[$bits,64]"
    ask 1 job$bits --model "$llama" --weights int$bits
    ask 2 q$bits --model "q$bits"
    alike "$bits bits" job$bits q$bits
done
! cmp -s stored.score q8.score || fail "8 bits changed nothing"
! cmp -s q8.score q4.score || fail "4 bits are as good as 8"
convert --model q8 --out back --dtype f32
ask 1 back --model back
near "f32 of 8 bits" "$(cat back.score)" "$(cat q8.score)" 1e-2
convert --model "$llama" --out six --quantize --q-bits 6 --q-group-size 32
ask 2 six --model six
near "6 bits" "$(cat six.score)" "$(cat stored.score)" 1
say "quantized files are what a job makes"

"$ringctl" convert --model "$llama" --out shards --dtype f32 --max-shard-size 300K >said 2>&1 || fail "$(cat said)"
holds "several files" said '^shards: [2-9] files of weights, '
[ -e shards/model.safetensors.index.json ] || fail "there is no index"
ask 2 shards --model shards
alike "several files" stored shards

if command -v python3 >/dev/null; then
    python3 "$OLDPWD/tests/system/lib/to_gguf.py" "$llama" "$work/whole" || fail "no GGUF file was made"
    convert --model whole.gguf --out folder
    for file in config.json tokenizer.json model.safetensors; do
        [ -e folder/$file ] || fail "there is no folder/$file"
    done
    ask 2 folder --model folder
    alike "out of a GGUF file" stored folder
fi

# refused WHAT STATUS PATTERN ARGUMENT...
refused() {
    what=$1 status=$2 pattern=$3
    shift 3
    limit 60 "$ringctl" convert "$@" >said 2>&1
    equal "$what: status" $? "$status"
    holds "$what" said "$pattern"
}
before=$(ls)
refused "a folder that is there" 1 '^ringctl: --out q8 is there already and not empty' --model "$llama" --out q8
refused "two choices" 2 '^ringctl convert: --dtype does not go with --quantize' --model "$llama" --out new --dtype f16 -q
refused "bits alone" 2 '^ringctl convert: --q-bits goes with --quantize' --model "$llama" --out new --q-bits 8
refused "seven bits" 2 '--q-bits must be 2, 3, 4, 5, 6 or 8, and is 7' --model "$llama" --out new -q --q-bits 7
refused "quantized twice" 1 'is quantized to 8 bits already' --model q8 --out new -q
refused "a name" 2 '^ringctl convert: some/model is not here as a path' --model some/model --out new
refused "a size" 2 'a size is needed' --model "$llama" --out new --max-shard-size much
equal "what is left" "$(ls)" "$before"
