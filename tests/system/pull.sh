#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A model by its name, from a hub that breaks off, is busy, lets links expire and sends wrong bytes: each byte comes once, whatever
# is killed, no token leaves for another host, and nothing has its name before its hash is right.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
. "$(dirname "$0")/lib/hub.sh"

start_hub
pulls() { limit 60 "$ringctl" --socket "$(sock_of 1)" pull "$@"; }

start_node 1
store=$work/n1/models

say 'a model comes, with what it needs and nothing else'
pulls test/tiny >"$work/said" || fail 'pull'
equal 'what pull says' "$(cat "$work/said")" "$model is here"
for file in config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors; do
    same "$file" "$hub/files/$file" "$store/$model/$file"
done
equal 'files' "$(ls "$store/$model" | wc -l)" 5
! grep -q '\.bin' "$work/requests" || fail 'a pickle was asked for'
! grep -q '^cdn .* token$' "$work/requests" || fail 'the token left for another host'
! grep -q '^hub .* open$' "$work/requests" || fail 'the hub did not get the token'
equal 'bytes of weights' "$(weights_sent)" "$weights"
mark=$(next_line "$work/requests")
pulls "$model" >/dev/null || fail 'pull again'
equal 'requests for what is here' "$(tail -n "+$mark" "$work/requests" | wc -l)" 0

say 'listed, pinned, read again, removed'
on 1 models list >"$work/list"
holds 'the list' "$work/list" '^test/tiny +0123456789 .* ready'
on 1 models pin test/tiny >/dev/null || fail 'pin'
on 1 models list >"$work/list"
holds 'the list' "$work/list" 'pinned'
on 1 models show test/tiny >"$work/show"
holds 'the source' "$work/show" "^source +$HF_ENDPOINT"
on 1 models verify test/tiny >"$work/verify" || fail 'verify'
holds 'what verify says' "$work/verify" 'is as it was downloaded'
printf x | dd of="$store/$model/model.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
on 1 models verify test/tiny >"$work/verify" 2>&1 && fail 'a changed file was not seen'
holds 'what verify says' "$work/verify" 'model.safetensors is not what was downloaded'
on 1 models remove test/tiny >/dev/null || fail 'remove'
[ ! -e "$store/$model" ] || fail 'it is still there'

say 'an answer that breaks off, a busy hub, a link that has expired: each byte comes once'
mark=$(next_line "$work/requests")
echo 100000 >"$hub/reset"
touch "$hub/busy" "$hub/expired"
pulls test/tiny >/dev/null || fail 'pull'
same 'weights' "$hub/files/model.safetensors" "$store/$model/model.safetensors"
sent_once "$mark" 100000
holds 'a second try' "$work/requests" '^cdn GET /signed/model.safetensors [1-9][0-9]+ '
on 1 models remove test/tiny >/dev/null

for victim in ringd-fetch ringd; do
    say "$victim is killed in the middle: each byte comes once"
    mark=$(next_line "$work/requests")
    echo 200000 >"$hub/stall"
    pulls test/tiny >/dev/null 2>&1 &
    pull=$!
    await_line "$work/requests" '^cdn GET .* 0 200000 ' 30 "$mark"
    if [ $victim = ringd ]; then
        stop_node 1 KILL
    else
        kill -9 "$(pgrep -P "$(pid_of 1)" -x ringd-fetch)"
    fi
    await_end $pull 30
    [ ! -e "$store/$model" ] || fail 'it has its name before it is whole'
    [ $victim = ringd-fetch ] || start_node 1
    pulls test/tiny >/dev/null || fail 'pull'
    same 'weights' "$hub/files/model.safetensors" "$store/$model/model.safetensors"
    sent_once "$mark" 200000
    on 1 models remove test/tiny >/dev/null
done

say 'what is wrong has a reason'
touch "$hub/wrong"
pulls test/tiny >"$work/said" 2>&1 && fail 'wrong bytes were taken'
holds 'wrong bytes' "$work/said" 'not those that the hub announced'
[ ! -e "$store/$model" ] || fail 'wrong bytes have a name'
rm "$hub/wrong"
touch "$hub/gated"
pulls test/tiny >"$work/said" 2>&1 && fail 'a gated model was taken'
holds 'a gated model' "$work/said" 'Access to model test/tiny is restricted'
rm "$hub/gated"
pulls test/none >"$work/said" 2>&1 && fail 'a missing model was taken'
holds 'a missing model' "$work/said" 'Repository not found'
pulls ../tiny >"$work/said" 2>&1 && fail 'a path was taken for a name'
holds 'a path' "$work/said" 'no name of a model'

say '^C keeps what has come'
mark=$(next_line "$work/requests")
echo 300000 >"$hub/stall"
RINGD_SOCKET=$(sock_of 1) "$ringctl" pull test/tiny >"$work/said" 2>&1 &
pull=$!
await_line "$work/requests" '^cdn GET .* 0 300000 ' 30 "$mark"
kill -INT $pull
await_end $pull 10
equal 'its status' $? 130
holds 'what it says' "$work/said" 'the same command goes on from there'
pulls test/tiny >/dev/null || fail 'pull'
sent_once "$mark" 300000

say 'within the quota the longest unused goes, and a pinned one stays'
stop_node 1
node_options='--models-quota 3M'
start_node 1
other=1$(echo $commit | cut -c 2-)
sed -i "s/\"sha\":\"$commit/\"sha\":\"$other/" "$hub/listing"
pulls test/tiny >/dev/null || fail 'pull'
[ -e "$store/test/tiny@$other" ] && [ ! -e "$store/$model" ] || fail 'no room was made'
on 1 models pin test/tiny >/dev/null
sed -i "s/\"sha\":\"$other/\"sha\":\"$commit/" "$hub/listing"
pulls test/tiny >"$work/said" 2>&1 && fail 'the quota was exceeded'
holds 'a full store' "$work/said" 'are left of --models-quota'
stop_node 1
node_options=
rm -r "$work/n1"

say "Hugging Face's cache is read in place, also without a hub"
cache=$HF_HOME/hub/models--test--tiny
mkdir -p "$cache/refs" "$cache/blobs" "$cache/snapshots/$commit"
printf %s $commit >"$cache/refs/main"
for file in config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors; do
    cp "$hub/files/$file" "$cache/blobs/of-$file"
    ln -s "../../blobs/of-$file" "$cache/snapshots/$commit/$file"
done
part=$work/n1/models/.part/test/tiny@$commit # as a pull that was ended half way leaves it
mkdir -p "$part" && echo half >"$part/model.safetensors.part"
mark=$(next_line "$work/requests")
HF_HUB_OFFLINE=1
export HF_HUB_OFFLINE
start_node 1
limit 60 "$ringctl" --socket "$(sock_of 1)" generate --model test/tiny --max-tokens 12 --seed 3 Once >"$work/cached" 2>/dev/null ||
    fail 'generate from the cache'
pulls test/other >"$work/said" 2>&1 && fail 'a hub was asked'
holds 'offline' "$work/said" 'HF_HUB_OFFLINE forbids to ask a hub'
equal 'requests' "$(tail -n "+$mark" "$work/requests" | wc -l)" 0
on 1 models remove test/tiny >/dev/null || fail 'remove'
same 'the cache' "$hub/files/model.safetensors" "$cache/blobs/of-model.safetensors"
stop_node 1
rm -r "$work/n1" "$cache"
unset HF_HUB_OFFLINE
start_node 1

mark=$(next_line "$work/requests")
say 'a job by its name: one node of the ring pulls it, the others take it from there, and the answer is that of the folder'
start_node 2
start_node 3
join_ring
limit 60 "$ringctl" --socket "$(sock_of 1)" generate --model test/tiny --max-tokens 12 --seed 3 Once >"$work/named" 2>"$work/named.err" ||
    fail "generate: $(cat "$work/named.err")"
limit 60 "$ringctl" --socket "$(sock_of 1)" generate --model "$hub/files" --max-tokens 12 --seed 3 Once >"$work/plain" 2>/dev/null ||
    fail 'generate'
same 'the answer' "$work/named" "$work/plain"
same 'the answer from a cache' "$work/cached" "$work/plain"
for node in 1 2 3; do
    same "node $node" "$hub/files/model.safetensors" "$work/n$node/models/$model/model.safetensors"
done
sent_once "$mark" 1
stop_ring
