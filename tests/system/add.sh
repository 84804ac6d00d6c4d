#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ringctl models add: a folder of a user's gets a name where it lies. Jobs use it by that name, other nodes take what they need of
# it from here, no hub hears of it, and what is removed is the name alone. ringctl models push: an adapter is copied to other nodes,
# which then know it by that name too.
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
holds 'the list' "$work/list" '^my-org/tiny +[0-9a-f]{10} +in place +model +ready'
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
refused 'an adapter without weights' 1 "$work/adapter: it has no weights as safetensors files" add "$work/adapter" --name my-org/one
refused 'no model' 1 "$work/empty: it has no weights as safetensors files" add "$work/empty" --name my-org/one
refused 'no folder' 1 "^ringctl: .*ringd's user of id [0-9]+ must be able to read the folder.*$work/none" add "$work/none" --name my-org/one
refused 'a GGUF file' 1 'is a GGUF file, and only folders get names' add "$work/a.gguf" --name my-org/one
refused 'a revision' 1 'the revision of my-org/one@main follows from the files' add "$mine" --name my-org/one@main
refused 'no name' 2 'models add needs --name ORG/NAME' add "$mine"
refused 'a bad name' 2 '"one" is no name of a model' add "$mine" --name one
refused 'a bad name' 2 '"one" is no name of a model' push "$mine" n2 --name one
refused 'a name too many' 2 '--name goes with models add and models push' list --name my-org/one

say 'an adapter is copied to the others, which know it by its name'
owl=$work/owl
printf '{"text":"The owl says who."}\n{"text":"An owl flies at night."}\n' >"$work/owl.jsonl"
on 1 --json train --model share/tiny-llama --data "$work/owl.jsonl" --adapter-out "$owl" --iters 3 --lr 2e-2 >"$work/trained" 2>&1 ||
    fail "train: $(cat "$work/trained")"
# pushes STATUS NODE...: what it says in $work/said
pushes() {
    status=$1
    shift
    limit 60 "$ringctl" --socket "$(sock_of 1)" models push "$@" >"$work/said" 2>&1
    equal "push $*: status" $? "$status"
}
# answers NODE ADAPTER
answers() {
    limit 120 "$ringctl" --socket "$(sock_of "$1")" generate --model share/tiny-llama --adapter "$2" --max-tokens 12 --seed 3 Once 2>"$work/err" ||
        fail "generate with $2 on n$1: $(cat "$work/err")"
}
pushes 0 "$owl" all
adapter=$(grep -Eo -m 1 '^local/owl@[0-9a-f]{40}$' "$work/said") || fail "no name: $(cat "$work/said")"
for node in 2 3; do
    holds "n$node" "$work/said" "^node n$node: $(store_of $node)/$adapter, [0-9.]+ KiB in "
    same "the weights on n$node" "$owl/adapter_model.safetensors" "$(store_of $node)/$adapter/adapter_model.safetensors"
    equal "files on n$node" "$(ls "$(store_of $node)/$adapter" | wc -l)" 2
done
on 2 models list >"$work/list"
holds 'the list of n2' "$work/list" '^local/owl +[0-9a-f]{10} +[0-9.]+ KiB +adapter +ready +n1, n3$'
answers 1 "$owl" >"$work/plain"
answers 2 local/owl >"$work/named"
same 'the answer of n2' "$work/named" "$work/plain"
limit 120 "$ringctl" --socket "$(sock_of 2)" generate --model share/tiny-llama --max-tokens 12 --seed 3 Once >"$work/without" 2>/dev/null
! cmp -s "$work/without" "$work/plain" || fail 'the adapter changes nothing'
limit 60 "$ringctl" --socket "$(sock_of 2)" plan serve --model share/tiny-llama --adapter night=local/owl --adapter local/owl --max-context 64 \
    >"$work/plan" 2>&1 || fail "plan: $(cat "$work/plan")"
for from in "$owl" local/owl; do
    rm -rf "$work/merged"
    on 1 merge --model share/tiny-llama --adapter "$from" --out "$work/merged" >/dev/null 2>"$work/err" || fail "merge: $(cat "$work/err")"
    sha256sum <"$work/merged/model.safetensors"
done | uniq | wc -l >"$work/merges"
equal 'different merged models' "$(cat "$work/merges")" 1

say 'one that lacks it brings it, and one that has it takes nothing'
on 3 models remove local/owl >/dev/null || fail 'remove'
answers 3 "$adapter" >"$work/named"
same 'the answer of n3' "$work/named" "$work/plain"
pushes 0 local/owl n3
holds 'what is there' "$work/said" "^node n3: .*, had it already$"

say 'a node that is full or out of reach is named, and the others go on'
for node in 2 3; do
    on $node models remove local/owl >/dev/null || fail 'remove'
done
stop_node 3
mark=$(next_line "$(log_of 1)")
node_options='--models-quota 10K'
start_node 3
node_options=
await_ring 1 "$mark"
pushes 1 local/owl n3 n2
holds 'n3' "$work/said" '^ringctl: node n3: .* are left of --models-quota'
holds 'n2' "$work/said" "^node n2: $(store_of 2)/$adapter, "
stop_node 3
pushes 0 local/owl all
holds 'all that can be reached' "$work/said" '^node n3 was left out: it is out of reach$'
pushes 1 local/owl n3
holds 'n3 alone' "$work/said" '^ringctl: node n3: it is out of reach$'
pushes 1 local/owl nobody
holds 'no node' "$work/said" 'no node is called "nobody"'
pushes 1 local/other n2
holds 'no such model' "$work/said" 'local/other is not on this node'

say 'a newer one of that name is what the name means'
cp -r "$owl" "$work/newer"
printf x | dd of="$work/newer/adapter_model.safetensors" bs=1 seek=50000 conv=notrunc 2>/dev/null
pushes 0 "$work/newer" n2 --name local/owl
newer=$(grep -Eo -m 1 '^local/owl@[0-9a-f]{40}$' "$work/said") || fail "no name: $(cat "$work/said")"
[ "$newer" != "$adapter" ] || fail 'other files have the same name'
for node in 1 2; do
    on $node models show local/owl >"$work/show" 2>&1 || fail "show on n$node: $(cat "$work/show")"
    holds "what the name means on n$node" "$work/show" "^commit +${newer#*@}$"
done
stop_ring
