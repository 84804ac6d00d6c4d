#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Results that the daemon cannot write where its user wants them, as a service under ProtectHome=: kept with the daemon, fetched by ringctl,
# gone on with. And paths that are wrong: refused before there is a job. Folders that are read-only for the daemon alone are made in mount
# namespaces, which needs root. usage: results.sh BUILD
. "$(dirname "$0")/lib/own_mounts.sh"
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
model=$PWD/share/tiny-llama
home=$work/home
mkdir "$home" "$home/full" "$work/small" "$work/tmp" "$work/models"
mount -t tmpfs -o size=40k tmpfs "$home/full"
mount -t tmpfs -o size=40k tmpfs "$work/small"
at_end() {
    kill_ring
    umount "$home/full" "$work/small"
}
awk 'BEGIN { for (i = 0; i < 40; i++) printf "{\"text\": \"row %d of the rows that are here\"}\n", i }' >"$work/rows.jsonl"
ringd_sees() { # the home read-only, another tmp
    start_node 1 unshare -m sh -c 'mount --rbind "$1" "$1" && mount -o remount,ro,bind "$1" && mount -o remount,ro,bind "$1/full" && mount -t tmpfs tmpfs "$2" && shift 2 && exec "$@"' sh "$home" "$work/tmp"
}
train() { # OUT OPTION...
    out=$1
    shift
    limit 60 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" train --model "$model" --data "$work/rows.jsonl" --adapter-out "$out" --batch-size 2 --seq-len 32 \
        --lr 1e-2 "$@" >"$work/out" 2>"$work/err"
}
jobs() { on 1 jobs --all --json | jq '.jobs | length'; }
ringd_sees
on 1 init >/dev/null
cd "$home" || exit 1

say "a result that is fetched at the end"
train "$work/straight" --iters 6 || fail "straight: $(cat "$work/err")"
[ ! -e "$work/n1/results/"straight* ] || fail "a result that could be written was kept"
train out --iters 4 --save-every 2 || fail "kept: $(cat "$work/err")"
holds "said at the start" "$work/err" "^ringd cannot write $home: Read-only file system\. The result of job 2 is kept in $work/n1/results/out-[0-9a-f]{16} and fetched"
holds "said at the end" "$work/out" "^job 2 done.*result in $home/out"
for file in adapter_model.safetensors adapter_config.json; do
    [ -s "out/$file" ] || fail "$file was not fetched: $(ls -a out)"
done
[ "$(find out -name '.*.part' | wc -l)" = 0 ] || fail "pieces are left: $(ls -a out)"
train out --iters 6 --resume || fail "resumed: $(cat "$work/err")"
same "four steps and two more" "$work/straight/adapter_model.safetensors" out/adapter_model.safetensors
equal "folders with the daemon" "$(find "$work/n1/results" -mindepth 1 -maxdepth 1 | wc -l)" 1

say "a result that is fetched later"
train ./later/ --iters 2 --detach || fail "detached: $(cat "$work/err")"
id=$(cat "$work/out")
limit 60 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" attach "$id" >"$work/out" 2>"$work/err" || fail "attach: $(cat "$work/err")"
[ -s later/adapter_model.safetensors ] || fail "attach did not fetch it: $(cat "$work/out")"
rm -r later
on 1 result "$id" >"$work/out" || fail "result"
holds "result" "$work/out" "^job $id: [0-9]+ files, .* now in $home/later"
[ -s later/adapter_model.safetensors ] || fail "it was not fetched into the folder it was asked for"
on 1 result "$id" "$work/elsewhere" >"$work/out" || fail "result into another folder"
same "two copies" later/adapter_model.safetensors "$work/elsewhere/adapter_model.safetensors"
limit 60 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" generate --model "$model" --adapter later --max-tokens 2 --ids 1 >"$work/out" 2>"$work/err" ||
    fail "the fetched adapter does not load: $(cat "$work/err")"
on 1 result 1 2>"$work/err" && fail "a result is fetched that lies where it was asked for"
holds "nothing to fetch" "$work/err" "^ringctl: job 1 writes its result into $work/straight itself"
on 1 result 99 2>"$work/err" && fail "a result of no job"
holds "no job" "$work/err" '^ringctl: no job 99 was submitted to this node'

say "a sweep, and a folder that the service sees otherwise"
mkdir -p "$work/tmp/mine"
train "$work/tmp/mine/many" --iters 1 --sweep lr=1e-3,1e-2 || fail "sweep: $(cat "$work/err")"
holds "another folder" "$work/err" "^(ringd cannot write|the service ringd sees another) $work/tmp/mine"
equal "adapters of the sweep" "$(find "$work/tmp/mine/many" -name adapter_model.safetensors | wc -l)" 2

say "a disk of the user's that is full"
train full/out --iters 1 && fail "a full disk holds a result"
holds "a full disk" "$work/err" "^ringctl: $home/full/out: .*(needs [0-9.]+ MiB, and the disk has|No space left).*ringctl result [0-9]+ DIR"
equal "files on the full disk" "$(find full -type f | wc -l)" 0
train "$work/small/out" --iters 1 && fail "another full disk holds a result"
holds "a full disk of the daemon's" "$work/err" "^ringctl: job [0-9]+ failed: .*the result of step 1 is kept in $work/n1/results/job-"
on 1 result "$(sed -n 's/^ringctl: job \([0-9]*\) failed.*/\1/p' "$work/err")" "$work/rescued" >"$work/out" || fail "what was kept cannot be fetched"
[ -s "$work/rescued/adapter_model.safetensors" ] || fail "nothing was rescued: $(cat "$work/out")"

say "no file but those of the result"
code() { limit 20 curl -sS --path-as-is --unix-socket "$(sock_of 1)" -o "$work/body" -w '%{http_code}' "http://localhost/v1/jobs/2/files$1"; }
equal "the list" "$(code '')" 200
kept=$(jq -r .folder "$work/body")
ln -s "$work/n1/identity" "$kept/link"
echo secret >"$kept/half.tmp"
mkdir -p "$kept/deep/deeper/deepest" # a sweep has a folder of an adapter, and its best one in that
echo secret >"$kept/deep/deeper/deepest/file"
equal "a file of the result" "$(code /adapter_config.json)" 200
same "and its bytes" "$work/body" "$kept/adapter_config.json"
for name in ../../identity %2e%2e/%2e%2e/identity ..%2f..%2fidentity "$work/n1/identity" /identity link half.tmp deep deep/ deep/deeper/deepest/file . '' nothing; do
    case $(code "/$name") in 200) fail "a file is sent as $name: $(head -c 100 "$work/body")" ;; esac
done
on 1 result 2 --json | jq -e '[.files[].name] | index("link") == null and index("half.tmp") == null and index("adapter_model.safetensors") != null' >/dev/null ||
    fail "the list of files"

say "wrong paths are no jobs"
before=$(jobs)
# refused PATTERN COMMAND...
refused() {
    pattern=$1
    shift
    limit 20 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" "$@" >/dev/null 2>"$work/err"
    equal "$*: exit status" $? 1
    holds "$*" "$work/err" "^ringctl: $pattern"
    equal "$*: number of sentences" "$(wc -l <"$work/err")" 1
}
refused '--model /no/such cannot be opened: No such file' generate --model /no/such --ids 1
refused "--model $work/models has no config.json: it is not the folder of a model" generate --model "$work/models" --ids 1
refused "--model $work/rows.jsonl is not a folder" generate --model "$work/rows.jsonl" --ids 1
refused "--adapter $work/models/none cannot be opened: No such" generate --model "$model" --adapter "$work/models/none" --ids 1
refused "--data $home/no.jsonl cannot be opened: No such" train --model "$model" --data no.jsonl --adapter-out out
refused "--valid $home/no.jsonl cannot be opened: No such" train --model "$model" --data "$work/rows.jsonl" --valid no.jsonl --adapter-out out
refused "--adapter-out $home/no/out cannot be created or written by the daemon: $home/no: No such" train --model "$model" --data "$work/rows.jsonl" --adapter-out no/out
refused "--log $home/log cannot be created or written by the daemon: $home: Read-only" train --model "$model" --data "$work/rows.jsonl" --adapter-out out --log log
refused "--model /no/such cannot be opened" plan generate --model /no/such --ids 1
equal "jobs after them" "$(jobs)" "$before"
ask() { # WHAT SPEC-MEMBERS PATTERN: 400 and such a sentence
    equal "$1" "$(limit 20 curl -sS --unix-socket "$(sock_of 1)" -o "$work/body" -w '%{http_code}' -H 'Content-Type: application/json' \
        -d "{\"type\":\"train\",\"spec\":{\"model\":\"$model\",\"data\":\"$work/rows.jsonl\",$2}}" http://localhost/v1/jobs)" 400
    holds "$1" "$work/body" "$3"
}
ask "for who fetches nothing" "\"adapter_out\":\"$home/out\"" 'bad-path.*Read-only file system'
ask "where it is kept is the daemon's to say" "\"adapter_out\":\"$home/out\",\"kept_in\":\"/etc\"" 'a job of type train has no .*kept_in'
ask "a key with a slip" "\"adapter_out\":\"$home/out\",\"iter\":3" 'did you mean .*iters'
equal "jobs after that" "$(jobs)" "$before"
on 1 plan train --model "$model" --data "$work/rows.jsonl" --adapter-out unmade --iters 1 >"$work/out" 2>"$work/err" || fail "plan: $(cat "$work/err")"
[ ! -e "$work/n1/results/"unmade* ] || fail "a plan has left a folder"
say "done"
