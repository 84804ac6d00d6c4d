#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ringctl models add: a folder of a user's gets a name where it lies. Jobs use it by that name, other nodes take what they need of
# it from here, no hub hears of it, and what is removed is the name alone.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
at_end() { kill_ring; }
HF_ENDPOINT=http://127.0.0.1:1 HF_HOME=$work/home # where nobody answers
export HF_ENDPOINT HF_HOME
mine=$work/mine
store_of() { echo "$work/n$1/models"; }
# quantized BITS: the user's folder holds the tiny model in so many
quantized() {
    rm -rf "$mine"
    limit 60 "$ringctl" convert --model share/tiny-llama --out "$mine" -q --q-bits "$1" >/dev/null || fail "convert to $1 bits"
}
# adds: `$model` is its exact name then
adds() {
    limit 60 "$ringctl" --socket "$(sock_of 1)" models add "$mine" --name my-org/tiny >"$work/said" 2>"$work/err" || fail "add: $(cat "$work/err")"
    holds 'what add says' "$work/said" '^my-org/tiny@[0-9a-f]{40} is here$'
    model=$(cut -d ' ' -f 1 "$work/said")
}
generates() { limit 120 "$ringctl" --socket "$(sock_of "$1")" generate --model "$2" --max-tokens 12 --seed 3 Once 2>"$work/err"; }

start_ring
quantized 8
say 'a folder gets a name, and lies where it lay'
adds
equal 'the link' "$(readlink "$(store_of 1)/$model")" "$mine"
on 1 models list >"$work/list"
holds 'the list' "$work/list" '^my-org/tiny +[0-9a-f]{10} +in place +ready'
on 1 models verify "$model" >/dev/null || fail 'verify'
first=$model
adds
equal 'the name of the same files' "$model" "$first"

say 'a job uses it, and the other nodes take it from here'
generates 1 "$mine" >"$work/plain" || fail "by its path: $(cat "$work/err")"
generates 1 my-org/tiny >"$work/named" || fail "by its name: $(cat "$work/err")"
same 'the answer' "$work/named" "$work/plain"
for node in 2 3; do
    same "config.json of n$node" "$mine/config.json" "$(store_of $node)/$model/config.json"
done
generates 2 "$model" >"$work/other" || fail "from another head: $(cat "$work/err")"
same 'the answer of another head' "$work/other" "$work/plain"
! grep -q 'the hub is asked' "$(log_of 2)" || fail 'a hub was asked'

say 'other files get another name'
quantized 4
adds
[ "$model" != "$first" ] || fail 'other files have the same name'
[ ! -L "$(store_of 1)/$first" ] || fail 'the former name is still there'
generates 1 my-org/tiny >"$work/four" || fail "with 4 bits: $(cat "$work/err")"
generates 1 "$mine" >"$work/plain4" || fail "with 4 bits: $(cat "$work/err")"
same 'the answer with 4 bits' "$work/four" "$work/plain4"

say 'what is removed is the name'
for node in 1 2 3; do
    on $node models remove "$model" >/dev/null || fail "remove on n$node"
done
[ -e "$mine/model.safetensors" ] || fail "the user's files are gone"
on 1 models list >"$work/list"
holds 'the list' "$work/list" '^no model has been pulled'

# refused WHAT STATUS PATTERN ARGUMENT...
refused() {
    what=$1 status=$2 pattern=$3
    shift 3
    limit 30 "$ringctl" --socket "$(sock_of 1)" models "$@" >"$work/out" 2>&1
    equal "$what: status" $? "$status"
    holds "$what" "$work/out" "$pattern"
}
mkdir "$work/adapter" "$work/empty"
echo '{}' >"$work/adapter/adapter_config.json"
refused 'an adapter' 1 "$work/adapter is an adapter, and only models have names" add "$work/adapter" --name my-org/one
refused 'no model' 1 "$work/empty: it has no weights as safetensors files" add "$work/empty" --name my-org/one
refused 'no folder' 1 "^ringctl: .*ringd's user of id [0-9]+ must be able to read the folder.*$work/none" add "$work/none" --name my-org/one
refused 'a GGUF file' 1 'is a GGUF file, and only folders get names' add "$work/a.gguf" --name my-org/one
refused 'a revision' 1 'the revision of my-org/one@main follows from the files' add "$mine" --name my-org/one@main
refused 'no name' 2 'models add needs --name ORG/NAME' add "$mine"
refused 'a bad name' 2 '"one" is no name of a model' add "$mine" --name one
refused 'a name too many' 2 '--name goes with models add' list --name my-org/one
stop_ring
