#!/bin/sh
# SPDX-License-Identifier: MIT
#
# All nodes compute with the same weights, or the job is refused by name. Every node sees a folder of its own under one path, in a mount namespace
# of its own, and keeps its own hashes. usage: weights.sh BUILD
. "$(dirname "$0")/lib/own_mounts.sh"
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
base=$PWD/share/tiny-llama
model=$work/model
cp -r "$base" "$model"
unset XDG_CACHE_HOME

for node in 1 2 3; do
    mkdir -p "$work/n$node/cache"
    cp -r "$base" "$work/n$node/model"
done
start_ring() {
    for node_number in 1 2 3; do
        start_node $node_number env CACHE_DIRECTORY="$work/n$node_number/cache" \
            unshare -m sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh "$work/n$node_number/model" "$model"
    done
    join_ring
}
# generate NAME [OPTION...]: through node 1
# here ARGS...: ringctl where the head's files are, for it hands over what it sees
here() { limit 60 nsenter -m -t "$(pid_of 1)" env RINGD_SOCKET="$(sock_of 1)" "$ringctl" "$@"; }
generate() {
    name=$1
    shift
    here --json generate --model "$model" --ids 5,6,7 --max-tokens 4 "$@" \
        >"$work/$name.json" 2>"$work/$name.err"
}
# works NAME READERS: what the first time was generated, and so many nodes read weights for it
works() {
    generate "$1" || fail "$1: $(cat "$work/$1.err")"
    equal "$1: what was generated" "$(jq -c .ids "$work/$1.json")" "$(jq -c .ids "$work/first.json")"
    equal "$1: nodes that read weights" "$(grep -c 'iB of weights were read once' "$work/$1.err")" "$2"
}
# refused NAME PATTERN [OPTION...]: in one sentence
refused() {
    refusal=$1
    pattern=$2
    shift 2
    generate "$refusal" "$@"
    equal "$refusal: exit status" $? 1
    holds "$refusal" "$work/$refusal.err" "^ringctl: job [0-9]+ failed: $pattern"
    equal "$refusal: number of sentences" "$(grep -c '^ringctl: ' "$work/$refusal.err")" 1
    grep '^ringctl: ' "$work/$refusal.err"
    no_stages 1 2 3
}
# model_of N FOLDER: what that node sees from now on
model_of() {
    rm "$work/n$1/model"/*
    cp "$2"/* "$work/n$1/model"
}
# flip_byte FILE OFFSET
flip_byte() {
    byte=$(dd if="$1" bs=1 skip="$2" count=1 status=none | od -An -tu1)
    # shellcheck disable=SC2059
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# bytes_of FILE: its size, as a safetensors file begins with that of its header
bytes_of() {
    for shift in 0 8 16 24 32 40 48 56; do
        # shellcheck disable=SC2059
        printf "\\$(printf %o $(($(wc -c <"$1") >> shift & 255)))"
    done
}
# shards FOLDER: one file becomes two, the second has layers 3 to 5
shards() {
    (
        cd "$1" || exit 1
        n=$(od -An -tu8 -N8 model.safetensors | tr -d ' ')
        head -c $((n + 8)) model.safetensors | tail -c "$n" >header
        for shard in 1 2; do
            own='(.key | test("layers[.][3-5][.]")) == ($shard == 2)'
            jq -c --argjson shard $shard 'del(.__metadata__) | to_entries | sort_by(.value.data_offsets[0]) | map(select('"$own"')) |
                reduce .[] as $e ({at: 0, all: {}}; .at as $at | ($e.value.data_offsets | .[1] - .[0]) as $bytes | .at = $at + $bytes |
                    .all[$e.key] = ($e.value | .data_offsets = [$at, $at + $bytes])) | .all' header | tr -d '\n' >part
            name=model-0000$shard-of-00002.safetensors
            bytes_of part >$name
            cat part >>$name
            jq -r --argjson shard $shard 'del(.__metadata__) | to_entries | sort_by(.value.data_offsets[0]) | map(select('"$own"')) |
                .[].value.data_offsets | "\(.[0]) \(.[1] - .[0])"' header | while read -r from bytes; do
                tail -c +$((n + 9 + from)) model.safetensors | head -c "$bytes"
            done >>$name
        done
        jq --argjson total $(($(wc -c <model.safetensors) - n - 8)) 'del(.__metadata__) | with_entries(.value = (if .key | test("layers[.][3-5][.]") then "model-00002-of-00002.safetensors"
            else "model-00001-of-00002.safetensors" end)) | {metadata: {total_size: $total}, weight_map: .}' header >model.safetensors.index.json
        rm header part model.safetensors
    )
}

# with_head FOLDER: a copy of the embedding as an output head beside it
with_head() {
    (
        cd "$1" || exit 1
        n=$(od -An -tu8 -N8 model.safetensors | tr -d ' ')
        head -c $((n + 8)) model.safetensors | tail -c "$n" | jq -c '."model.embed_tokens.weight" as $e | ([.[].data_offsets[1]? // 0] | max) as $after |
            ."lm_head.weight" = ($e | .data_offsets = [$after, $after + ($e.data_offsets | .[1] - .[0])])' | tr -d '\n' >part
        embedding=$(head -c $((n + 8)) model.safetensors | tail -c "$n" | jq -r '."model.embed_tokens.weight".data_offsets | "\(.[0] + 1) \(.[1] - .[0])"')
        bytes_of part >new
        cat part >>new
        tail -c +$((n + 9)) model.safetensors >>new
        tail -c +$((n + 8 + ${embedding% *})) model.safetensors | head -c "${embedding#* }" >>new
        mv new model.safetensors
        rm part
    )
}

cp -r "$base" "$work/sharded"
shards "$work/sharded"
start_ring
say "equal files: read by each node once"
generate first || fail "the first job: $(cat "$work/first.err")"
equal "nodes that read weights first" "$(grep -c 'iB of weights were read once' "$work/first.err")" 3
works again 0
touch "$work/n2/model/model.safetensors"
works touched 1
model_of 1 "$base"
works "head-copied" 1

# Which node has the last layers follows from its place in the ring.
last=$(on 1 --json job 1 | jq -r '.plan.nodes[2] | ltrimstr("n")')
say "one byte"
flip_byte "$work/n$last/model/model.safetensors" $(($(wc -c <"$base/model.safetensors") - 1000))
refused flipped "node n$last: tensor model\.layers\.[0-9.]+\.[a-z_.]+ in $model/model.safetensors has other values than on the head: copy the file again"
model_of $last "$base"
works mended 1

say "a merged model"
mkdir "$work/data"
for word in one two three four; do echo "{\"text\": \"Lily and Tom went to the park, $word.\"}"; done >"$work/data/train.jsonl"
here train --model "$model" --data "$work/data" --adapter-out "$work/adapter" --iters 4 --lr 0.05 \
    --target-modules all-linear >"$work/train.log" 2>&1 || fail "training: $(cat "$work/train.log")"
limit 60 "$ringctl" merge --model "$base" --adapter "$work/adapter" --out "$work/merged" >/dev/null || fail "merging"
model_of 3 "$work/merged"
refused merged "node n3: [0-9]+ tensors have other values than on the head, the first is model\.layers\..* in $model/model.safetensors: copy the model again"
generate with-adapter --adapter "$work/adapter" && fail "an adapter made a merged model equal"
model_of 3 "$base"
generate with-adapter --adapter "$work/adapter" || fail "an adapter on the head alone: $(cat "$work/with-adapter.err")"

say "the doctor"
on 1 doctor --model "$model" >"$work/doctor" || fail "equal models are ill: $(cat "$work/doctor")"
flip_byte "$work/n3/model/model.safetensors" $(($(wc -c <"$base/model.safetensors") - 1000))
on 1 doctor --model "$model" --deep >"$work/doctor" 2>/dev/null
equal "a flipped byte: exit status" $? 1
holds "a flipped byte" "$work/doctor" "error  *model: tensor model\.layers\.5\.[a-z_.]+ in $model/model.safetensors has other values than on n1"
holds "a flipped byte" "$work/doctor" "fix: rsync -a --checksum n1:$model/ $model/"
on 2 doctor --model "$model" >"$work/doctor" && fail "what was read once is forgotten"
holds "read once" "$work/doctor" "tensor model\.layers\.5\."
model_of 3 "$work/merged"
on 1 doctor --model "$model" --deep >"$work/doctor" 2>/dev/null && fail "a merged model pleases the doctor"
holds "a merged model" "$work/doctor" "error  *model: [0-9]+ tensors have other values than on n1, the first is model\.layers\."
model_of 3 "$work/sharded"
truncate -s -10 "$work/n3/model/model-00001-of-00002.safetensors"
on 1 doctor --model "$model" >"$work/doctor" && fail "a truncated file pleases the doctor"
holds "a truncated file" "$work/doctor" "error  *model: $model/model-00001-of-00002.safetensors is truncated"
model_of 3 "$work/sharded"
rm "$work/n3/model/model-00001-of-00002.safetensors"
on 1 doctor --model "$model" --deep >"$work/doctor" 2>/dev/null || fail "a file that a node need not have: $(cat "$work/doctor")"
holds "a file that is not there" "$work/doctor" "note  *model: the model in $model lacks model-00001-of-00002.safetensors on this node"
model_of 3 "$base"

say "weights in 4 bits are those of their source"
generate int4 --weights int4 || fail "4 bits: $(cat "$work/int4.err")"
flip_byte "$work/n$last/model/model.safetensors" $(($(wc -c <"$base/model.safetensors") - 1000))
refused int4-flipped "node n$last: tensor .* has other values" --weights int4
model_of $last "$base"
works int4-mended 1

say "other weights of the same shape"
cp -r "$base" "$work/other"
n=$(od -An -tu8 -N8 "$base/model.safetensors" | tr -d ' ')
{ head -c $((n + 8)) "$base/model.safetensors" && tail -c +$((n + 9)) "$base/model.safetensors" | tr '\001' '\002'; } >"$work/other/model.safetensors"
model_of 3 "$work/other"
refused other "node n3: [0-9]+ tensors have other values than on the head, the first is model.* in $model/model.safetensors: copy the model again"
model_of 3 "$base"
works equal-again 1

say "files cut in another way are the same weights"
model_of 2 "$work/sharded"
works sharded 1

say "a truncated file is named, whoever needs it"
model_of 1 "$work/sharded"
truncate -s -10 "$work/n1/model/model-00002-of-00002.safetensors"
refused truncated "node n1: $model/model-00002-of-00002.safetensors"
model_of 1 "$base"

say "a head without all files compares what it has"
model_of 1 "$work/sharded"
model_of 2 "$work/sharded"
model_of 3 "$work/sharded"
generate sharded-all || fail "all in shards: $(cat "$work/sharded-all.err")"
rm "$work/n1/model/model-00002-of-00002.safetensors"
works head-lacks-a-file 0
holds "what the head lacks" "$work/head-lacks-a-file.err" '^rank 0: without model-00002-of-00002.safetensors other nodes cannot be compared'
holds "what is not compared" "$work/head-lacks-a-file.err" "^rank 2: [0-9]+ of its [0-9]+ units could not be compared: the head has not all files"

say "an output head beside a tied embedding: alike, or refused"
cp -r "$base" "$work/tied"
with_head "$work/tied"
cp -r "$work/tied" "$work/apart"
flip_byte "$work/apart/model.safetensors" $(($(wc -c <"$work/apart/model.safetensors") - 1000))
for node in 1 2 3; do
    model_of $node "$work/tied"
done
works tied 3
for node in 1 2 3; do
    model_of $node "$work/apart"
done
apart='config.json says tie_word_embeddings, but lm_head.weight differs from model.embed_tokens.weight: set "tie_word_embeddings": false'
refused apart "node n1: $model/$apart"
for alike in tied apart; do
    limit 60 "$ringctl" local 1 --threads 1 generate --model "$work/$alike" --ids 5,6,7 --max-tokens 4 >"$work/alone-$alike" 2>&1
    equal "alone, $alike: exit status" $? "$([ $alike = tied ] && echo 0 || echo 1)"
done
holds "alone" "$work/alone-apart" "$apart"
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$work/apart/config.json"
limit 60 "$ringctl" local 1 --threads 1 generate --model "$work/apart" --ids 5,6,7 --max-tokens 4 >/dev/null 2>&1 || fail "the way out does not help"

say "a file that becomes shorter under a running job is named"
for node in 1 2 3; do
    model_of $node "$base"
done
: >"$work/long.log"
here train --model "$model" --data "$work/data" --adapter-out "$work/long" --iters 100000 --log "$work/long.log" \
    >"$work/long.out" 2>"$work/long.err" &
long=$!
await_line "$work/long.log" '"step":2' 20
truncate -s 8192 "$work/n$last/model/model.safetensors"
await_end $long 20
equal "a file that becomes shorter: exit status" $? 1
holds "a file that becomes shorter" "$work/long.err" \
    "^ringctl: job [0-9]+ failed: node n$last: the stage process had to end: $model/model.safetensors became shorter while it was in use: copy it again"
grep '^ringctl: ' "$work/long.err"
no_stages 1 2 3
model_of "$last" "$base"
works restored 1

say "done"
