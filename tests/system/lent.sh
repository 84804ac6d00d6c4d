#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Models and data that only their user can read: a home with mode 0700 and files with mode 0600. ringctl opens them and hands them
# to a daemon of another user, whose group this user is in, as the package sets it up. Needs root. usage: lent.sh BUILD
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
[ "$(id -u)" = 0 ] || skip "other users need root"
daemon_uid=61001 alice_uid=61002
programs=$work/programs home=$work/alice
chmod 711 "$work"
mkdir -m 755 "$programs" "$work/daemon"
cp "$build/ringctl" "$build/ringd" "$build"/ringd-[a-z]* "$programs"
chown $daemon_uid:$daemon_uid "$work/daemon"
become() { # UID COMMAND...
    who=$1
    shift
    limit 60 setpriv --reuid "$who" --regid "$who" --groups $daemon_uid "$@"
}
at_end() {
    for node in 1 2; do
        [ -e "$work/n$node/pid" ] && kill "$(pid_of $node)" 2>/dev/null
    done
    wait
}
# Daemon N of a user that is nobody else's.
start_other() {
    mkdir -p "$work/n$1"
    chown $daemon_uid:$daemon_uid "$work/n$1"
    build=$programs start_node "$1" env HOME="$work/daemon" setpriv --reuid $daemon_uid --regid $daemon_uid --clear-groups
}
# ringctl as alice, who keeps her files to herself
alice() { (umask 077 && cd "$home" && become $alice_uid env HOME="$home" RINGD_SOCKET="$(sock_of 1)" "$programs/ringctl" "$@"); }
well() { alice "$@" >"$work/out" 2>"$work/err" || fail "$*: $(cat "$work/err")"; }

mkdir -m 700 "$home"
cp -r share/tiny-llama "$home/model"
awk 'BEGIN { for (i = 0; i < 40; i++) printf "{\"text\": \"row %d of the rows that are here\"}\n", i }' >"$home/rows.jsonl"
mkdir "$home/set"
head -n 30 "$home/rows.jsonl" >"$home/set/train.jsonl"
tail -n 10 "$home/rows.jsonl" >"$home/set/valid.jsonl"
chown -R $alice_uid:$alice_uid "$home"
chmod -R go= "$home"
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
