#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The list of jobs, with what each worked on, how long and how much, on terminals of several widths; and cancelling what has ended.
# Jobs of the demo's small model on one node alone.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
pty=$build/tests/system/lib/pty
[ -x "$pty" ] || skip "$pty is missing: make test-programs"
TERM=xterm
export TERM
model=$PWD/share/tiny-llama
yes '{"text": "Once upon a time there was a cat that sat on a mat."}' | head -n 40 >"$work/rows.jsonl"
start_node 1
cd "$work" || exit 1
RINGD_SOCKET=$(sock_of 1)
export RINGD_SOCKET

# Job 1 is done, 2 trained, 3 failed, 4 was cancelled.
"$ringctl" generate --model "$model" --max-tokens 7 "Once" >/dev/null 2>&1 || fail "a generation"
"$ringctl" train --model "$model" --data rows.jsonl --adapter-out out --iters 3 --batch-size 2 --log log.jsonl >/dev/null 2>&1 || fail "a training job"
"$ringctl" jobs >list
grep -q ERROR list && fail "a column of errors where there are none: $(cat list)"
mkdir none && echo '{' >none/config.json
"$ringctl" generate --model "$work/none" Once >/dev/null 2>&1 && fail "a model whose config.json is cut off"
id=$("$ringctl" train --model "$model" --data rows.jsonl --adapter-out long --iters 100000 --detach) || fail "a long job"
equal "the number of the long job" "$id" 4
"$ringctl" cancel 4 >said || fail "cancel"
holds "cancel" said 'job 4 is being cancelled'
"$ringctl" attach 4 >/dev/null 2>&1
trained=$(jq -s 'map(.tokens // 0) | add' log.jsonl)
"$ringctl" jobs --json >list.json
jq -e --argjson trained "$trained" --arg model "$model" '[.jobs[] | {(.id | tostring): .}] | add
    | .["1"].tokens == 7 and .["2"].tokens == $trained and $trained > 0 and .["1"].model == $model and .["3"].tokens == 0
      and (map(.seconds | type == "number") == [true, true, true, true])' list.json >/dev/null || fail "jobs --json: $(cat list.json), trained $trained"
"$ringctl" jobs >list
holds "the heads" list '^JOB +TYPE +MODEL +STATE +CREATED +TOOK +STEP +TOKENS +LOSS +ERROR$'
holds "a generation" list '^1 +generate +tiny-llama +done .* s +- +7 +-$'
holds "a training job" list "^2 +train +tiny-llama +done .* s +3/3 +$trained +[0-9.]+\$"

for width in 60 80 100 140; do
    limit 100 "$pty" ${width}x30 -- "$ringctl" jobs --color never >screen || fail "jobs in $width columns"
    awk -v most=$width '{ sub(/\r$/, ""); gsub(/…/, "~") } length($0) > most { print; wide = 1 } END { exit wide }' screen ||
        fail "jobs is wider than $width columns"
    tr -d '\r' <screen >plain
    holds "jobs in $width columns" plain '^2 +train +tiny-l.* +done .*3/3 '
done

# What has ended cannot be cancelled, and how it ended is said; also by a daemon that was started since.
ended() { # JOB PATTERN
    "$ringctl" cancel "$1" >said 2>wrong
    equal "status of cancelling job $1" $? 1
    [ ! -s said ] || fail "cancelling job $1 is said to do something: $(cat said)"
    holds "cancelling job $1" wrong "job $1 has already ended: $2"
}
for start in first second; do
    ended 1 'it is done'
    ended 3 'it failed: .*none'
    ended 4 'it was cancelled'
    "$ringctl" cancel 99 2>wrong && fail "an unknown job was cancelled"
    holds "cancelling nothing" wrong 'no job 99 was submitted to this node'
    [ $start = second ] || { stop_node 1; start_node 1; }
done
say "jobs are listed with their work, and ended once"
