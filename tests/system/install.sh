#!/bin/sh
# SPDX-License-Identifier: MIT
#
# `make install` into a folder that no object was compiled for: everything finds its other half there. And the daemon's log as a file
# has it, a ringd-stage that is missing, and ringd.conf of the prefix. usage: install.sh BUILD
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
prefix=$work/some/prefix
rows=$work/rows.jsonl
awk 'BEGIN { for (i = 0; i < 30; i++) printf "{\"text\": \"row %d of the rows that are here\"}\n", i }' >"$rows"

say "make install"
limit 240 env -u MAKEFLAGS -u MAKELEVEL -u MAKEOVERRIDES make -s "B=${build#"$PWD"/}" PREFIX="$prefix" install >"$work/make" 2>&1 ||
    fail "make install: $(tail -n 5 "$work/make")"
build=$prefix/sbin
ringctl=$prefix/bin/ringctl
model=$prefix/share/ringd/tiny-llama
PATH=/usr/sbin:/usr/bin:/sbin:/bin
limit 60 "$ringctl" data check --model "$model" --data "$rows" >"$work/data" 2>&1 || fail "data check: $(cat "$work/data")"
limit 60 "$ringctl" local 2 train --model "$model" --data "$rows" --adapter-out "$work/out" --iters 2 --batch-size 2 --seq-len 32 >"$work/said" 2>&1 ||
    fail "training on two nodes: $(cat "$work/said")"
[ -s "$work/out/adapter_model.safetensors" ] || fail "no adapter: $(cat "$work/said")"

say "the prefix's own ringd.conf, and the log as a file has it"
printf 'name = from-the-file\n' >>"$prefix/etc/ringd/ringd.conf"
mkdir "$work/n1"
"$prefix/sbin/ringd" --state-dir "$work/n1" --listen 127.0.0.1:0 --discover off --http-listen none 2>"$work/n1/log" &
echo $! >"$work/n1/pid"
await_line "$work/n1/log" 'API on' 20
equal "the name" "$(on 1 status --json | jq -r .node.name)" from-the-file
holds "date and time" "$work/n1/log" '^20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{8} from-the-file: peers on port'
grep -E '^<[0-7]>' "$work/n1/log" && fail "priorities for the journal are in a file"
on 1 init >/dev/null
on 1 doctor >"$work/doctor" || fail "a healthy node is ill: $(cat "$work/doctor")"
holds "the doctor looks for ringd-stage" "$work/doctor" 'ok .*programs'

say "no ringd-stage"
rm "$prefix/libexec/ringd/ringd-stage"
on 1 doctor >"$work/doctor" && fail "the doctor does not miss ringd-stage"
holds "without ringd-stage" "$work/doctor" "error .*programs ringd-stage: ringd-stage cannot be started from $prefix/libexec/ringd/ringd-stage: No such file"
stop_node 1
"$ringctl" --socket "$work/none" doctor >"$work/doctor"
holds "without a daemon" "$work/doctor" "error .*programs ringd-stage: ringd-stage cannot be started from"
start_node 1
holds "said at the start" "$work/n1/log" '^20.* error: ringd-stage cannot be started from .*prefix/libexec/ringd/ringd-stage: No such file'
say "done"
