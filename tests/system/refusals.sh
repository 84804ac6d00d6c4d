#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Jobs that cannot be: each is refused before it starts, with status 1 and one sentence that names the thing; and what the command
# line alone can know is refused there, with status 2. Every node has little memory.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
cd "$work" || exit 1
node_options="--memory-limit 32M"
start_ring

# refused STATUS PATTERN COMMAND...
refused() {
    status=$1
    pattern=$2
    shift 2
    now=$(milliseconds)
    limit 30 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" "$@" >out 2>err
    equal "$*: exit status" $? "$status"
    grep '^ringctl' err >sentence
    holds "$*" sentence "$pattern"
    equal "$*: number of sentences" "$(wc -l <sentence)" 1
    lasted "$(cat sentence)" "$now"
}
train() { # STATUS PATTERN OPTION...: those after the first win
    status=$1
    pattern=$2
    shift 2
    refused "$status" "$pattern" train --model "$llama" --data "$tables" --adapter-out out.adapter --iters 2 "$@"
}

: >empty.jsonl
echo '{"words": 1}' >keys.jsonl
echo '{"input_ids": [1, 403, 407], "labels": [-100, -100, -100]}' >masked.jsonl
echo '{"input_ids": [1, 403, 512]}' >foreign.jsonl
printf '{"text": "good"}\n{"text": "bad}\n' >broken.jsonl
: >a-file

# What a job writes never lies on the daemon's own files, by whatever name. ringctl resolves links itself; another client may not.
own=$(realpath n1) mark=$(sha256sum <n1/identity)
ln -s "$own/identity" to-identity
ln -s "$own" to-state
train 1 "--log $own/identity lies in ringd's own folder" --log "$own/identity"
train 1 "--log $own/identity lies in ringd's own folder" --log to-state/identity
train 1 "--adapter-out $own lies in ringd's own folder" --adapter-out "$own"
train 1 "--data $own/http-token lies in ringd's own folder" --data "$own/http-token"
train 1 "--valid $own/identity lies in ringd's own folder" --valid to-identity
write_to() { # OPTION PATH PATTERN
    jq -n --arg model "$llama" --arg data "$tables" --arg out "$work/out.adapter" --arg key "$1" --arg path "$2" \
        '{type: "train", spec: ({model: $model, data: $data, adapter_out: $out, iters: 1} + {($key): $path})}' >request
    limit 20 curl -sS --unix-socket "$(sock_of 1)" -d @request http://localhost/v1/jobs >answer
    holds "$1 $2" answer "$3"
}
write_to log "$work/to-identity" "log $work/to-identity is a symbolic link"
write_to log "$work/to-state/identity" "lies in ringd's own folder"
write_to adapter_out "$work/to-state" "adapter-out $work/to-state is a symbolic link"
write_to adapter_out "$work/to-state/new" "lies in ringd's own folder"
write_to data "$work/to-identity" "lies in ringd's own folder"
write_to schedule "$own/identity" "--schedule $own/identity lies in ringd's own folder"
equal "the identity afterwards" "$(sha256sum <n1/identity)" "$mark"

# What a terminal would obey reaches none, and neither the log.
escape=$(printf '\033')
refused 1 "nowhere.\[2Jelse cannot be opened" generate --model "$work/nowhere$escape[2Jelse" --max-tokens 1 hello
! grep -q "$escape" err || fail "an escape character reached the terminal: $(cat -v err)"
! grep -q "$escape" "$(log_of 1)" || fail "an escape character reached the log"

train 1 'no linear layer of this model is called "lm_head2"; there are q_proj' --target-modules lm_head2
whole="; in all the job needs [0-9.]+ [KMG]iB, and the 3 nodes have [0-9.]+ [KMG]iB"
train 1 "(has [0-9.]+ [KMG]iB$whole: use a smaller --seq-len|stage 0 cannot hold its share)" --micro-batch-size 16 --batch-size 16
# Where it is the microbatches in flight, forwards are done again unless that is forbidden.
deep="--batch-size 64 --seq-len 256 --schedule gpipe"
# shellcheck disable=SC2086
train 1 "has [0-9.]+ [KMG]iB$whole: use --recompute auto, a smaller --seq-len" $deep --recompute none
# shellcheck disable=SC2086
on 1 --json plan train --model "$llama" --data "$tables" --adapter-out out.adapter $deep >plan.json 2>err ||
    fail "not planned with forwards done again: $(cat err)"
jq -e '.plan.slots == [64, 64, 64] and any(.plan.activations[]; . == 1)' plan.json >/dev/null || fail "plan: $(jq -c .plan plan.json)"
train 1 'empty.jsonl has no rows' --data empty.jsonl
train 1 'keys.jsonl:1: has only the keys "words"' --data keys.jsonl
train 1 'masked.jsonl: none of its 1 rows has a supervised token' --data masked.jsonl
train 1 'foreign.jsonl:1: ' --data foreign.jsonl
train 1 'broken.jsonl:2: ' --data broken.jsonl
train 1 'nowhere.jsonl cannot be opened' --data nowhere.jsonl
train 1 '(adapter-out|a-file).*Not a directory' --adapter-out a-file/adapter
train 1 'lora_B.weight has the wrong shape' --init-adapter "$cases/llama_gqa_rope3/adapter_attn_init"
train 1 'out.adapter.*cannot be (read|opened)' --resume
refused 1 'no-such-model cannot be opened: No such file' generate --model no-such-model hello
refused 1 'model/tokenizer.json: .*must have its tokenizer beside it' generate --model "$cases/llama_gqa_rope3/model" hello
refused 1 'entry 2 is not a token id below 512' generate --model "$llama" --ids 1,512
refused 1 'one token alone has no probability' score --model "$llama" --ids 1

train 2 'schedule must be auto, .* or FILE, and is "zigzag"' --schedule zigzag
train 2 'iters.*epochs' --epochs 3
train 2 'eval-every.*give --valid' --eval-every 3
train 2 'batch-size must be a whole number from 1 to 65535, and is 65536' --batch-size 65536
train 2 '--init random makes sense only with --fine-tune-type full' --init random
train 2 '--objective needs --schedule auto' --objective memory
train 2 '--chunks must be a whole number from 1 to 16, and is "two"' --chunks two
refused 2 'two prompts: give one' generate --model "$llama" --ids 1,2 hello
refused 2 'missing: .*--data' train --model "$llama" --adapter-out out.adapter
refused 2 'unknown option --modle: did you mean --model' generate --modle "$llama" hello
refused 2 '"traim" is not a command: did you mean train' traim
refused 2 '"conduct" is not a command: ringctl help lists them' conduct
works "after all that" 1

# A daemon that is not there is a status of its own.
RINGD_SOCKET=$work/nobody.sock "$ringctl" status >out 2>err
equal "without a daemon" $? 3
holds "without a daemon" err "^ringctl: no ringd answers on $work/nobody.sock"
