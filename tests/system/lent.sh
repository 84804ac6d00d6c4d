#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Models and data that only their user can read: a home with mode 0700 and files with mode 0600. ringctl opens them and hands them
# to a daemon of another user, whose group this user is in, as the package sets it up. Needs root. usage: lent.sh BUILD
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
. tests/system/lib/users.sh
start_other 1
become $alice_uid env RINGD_SOCKET="$(sock_of 1)" "$programs/ringctl" init >/dev/null || fail "init"
become $daemon_uid cat "$home/model/config.json" 2>/dev/null && fail "the daemon's user can read the model: this test shows nothing"
small="--batch-size 2 --seq-len 32"

say "a model and rows that only alice can read"
well generate --model model --max-tokens 4 --ids 1
well score --model model --text "Once upon a time"
well score --model model --data rows.jsonl
# shellcheck disable=SC2086 # options apart
well plan train --model model --data rows.jsonl --adapter-out out --iters 2 $small
holds "the plan" "$work/out" 'LAYERS'
[ ! -e "$home/out" ] || fail "a plan has made a folder"
# shellcheck disable=SC2086
well train --model model --data rows.jsonl --valid set/valid.jsonl --adapter-out out --iters 4 --save-every 2 $small
[ -s "$home/out/adapter_model.safetensors" ] || fail "there is no result: $(ls -la "$home/out")"
equal "whose it is" "$(stat -c %u "$home/out/adapter_model.safetensors")" $alice_uid

say "what came of it, and a folder of rows"
well generate --model model --adapter out --max-tokens 4 --ids 1
# shellcheck disable=SC2086
well train --model model --data set --init-adapter out --adapter-out second --iters 2 $small
# shellcheck disable=SC2086
well train --model model --data rows.jsonl --adapter-out out --iters 6 --resume $small
# shellcheck disable=SC2086
well train --model model --data rows.jsonl --adapter-out searched --iters 2 --schedule auto $small
well merge --model model --adapter out --out merged
well generate --model merged --max-tokens 4 --ids 1
well data check --model model --data rows.jsonl

say "a model that brings a link to a key of alice"
mkdir "$home/.ssh"
echo '{"secret": 1}' >"$home/.ssh/id"
ln -s ../.ssh/id "$home/model/extra.json"
chown -R $alice_uid:$alice_uid "$home/.ssh"
alice generate --model model --max-tokens 1 --ids 1 >"$work/out" 2>"$work/err" && fail "a link of a model is followed to a key"
holds "the link" "$work/err" "^ringctl: $home/model/extra.json was left to the daemon: it is a link that leads into no model"
rm "$home/model/extra.json"
ln -s ../set/train.jsonl "$home/model/usual.jsonl"
well generate --model model --max-tokens 1 --ids 1

say "another node reads its own path"
start_other 2
become $alice_uid env RINGD_SOCKET="$(sock_of 2)" "$programs/ringctl" join "$(alice invite)" --peer "127.0.0.1:$(cat "$work/n1/port")" >/dev/null || fail "join"
await_line "$(log_of 1)" 'a ring of 2' 20
alice generate --model model --max-tokens 1 --ids 1 >"$work/out" 2>"$work/err" && fail "a node read what is closed to it"
holds "which node, what and whose" "$work/err" "node n2: $home/model/.*: Permission denied\. Here ringd's user of id $daemon_uid opens it, because ringctl hands over files only where it runs: use a path that this user can read"
mark=$(next_line "$(log_of 1)")
alice remove n2 >/dev/null || fail "remove"
await_line "$(log_of 1)" 'n1 is alone' 20 "$mark"

say "nobody is served with the rights of others"
chmod 700 "$home"
become 61003 env RINGD_SOCKET="$(sock_of 1)" "$programs/ringctl" generate --model "$home/model" --ids 1 >"$work/out" 2>"$work/err" && fail "bob uses a model of alice"
holds "bob" "$work/err" "^ringctl: --model $home/model cannot be opened by ringd's user of id $daemon_uid: $home is closed to it; .ringctl. on this node hands over what its own user can read"
holds "why" "$work/err" "^ringctl: $home/model was left to the daemon: Permission denied"
equal "without descriptors" "$(limit 20 curl -sS --unix-socket "$(sock_of 1)" -o "$work/body" -w '%{http_code}' \
    -d "{\"type\":\"generate\",\"spec\":{\"model\":\"$home/model\",\"ids\":[1]}}" http://localhost/v1/jobs)" 400
limit 20 curl -sS --unix-socket "$(sock_of 1)" http://localhost/metrics >"$work/metrics"
equal "what is kept of them" "$(sed -n 's/^ringd_queue_bytes{name="loans"} //p' "$work/metrics")" 0
say "done"
