#!/bin/sh
# `ringctl doctor` on a ring of real daemons, and without any. usage: doctor.sh BUILD. Faults of cables: tests/netns/doctor.sh.
# SPDX-License-Identifier: MIT
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
unset CACHE_DIRECTORY

say "no daemon"
"$ringctl" --socket "$work/none" doctor >"$work/alone"
equal "without a daemon: exit status" $? 1
holds "without a daemon" "$work/alone" "no ringd answers on $work/none: No such file"
holds "without a daemon" "$work/alone" '^  ok .*memory'

say "a ring of three"
start_ring
on 2 doctor -v --model share/tiny-llama >"$work/fine" || fail "a healthy ring is ill: $(cat "$work/fine")"
equal "nodes in the answer" "$(grep -c '^n[123]$' "$work/fine")" 3
equal "the node that is asked comes first" "$(head -n 1 "$work/fine")" n2
equal "nodes with the model" "$(grep -c 'ok  *model: ' "$work/fine")" 1
equal "nodes whose weights nobody has read yet" "$(grep -c 'note  *model: 0 of the 8 units .* of the model in .*share/tiny-llama could be compared with those on n2' "$work/fine")" 2
on 2 doctor -v --model share/tiny-llama --deep >"$work/fine" 2>"$work/fine.err" || fail "a healthy ring is ill: $(cat "$work/fine")"
equal "nodes with the model, all of it read" "$(grep -c 'ok  *model: ' "$work/fine")" 3
on 1 doctor -v --model share/tiny-llama >"$work/fine"
equal "nodes that know the model now" "$(grep -c 'ok  *model: ' "$work/fine")" 3
on 1 doctor --deep >"$work/deep" 2>&1
equal "--deep of nothing: exit status" $? 2
on 1 --json doctor | jq -e '.node == "n1" and (.findings | all(.severity == "ok" or .severity == "note"))' >/dev/null || fail "as JSON"

say "a model that is nowhere, and one that is damaged"
on 1 doctor --model "$work/no-model" >"$work/model"
equal "no model: exit status" $? 1
equal "no model: on every node" "$(grep -c "error .*model: $work/no-model" "$work/model")" 3
mkdir "$work/broken" && echo '{' >"$work/broken/config.json"
on 1 doctor --model "$work/broken" >"$work/model" && fail "a damaged model pleases the doctor"
holds "a damaged model" "$work/model" "error .*$work/broken"

say "a daemon that hangs"
kill -STOP "$(pid_of 3)"
since=$(milliseconds)
on 1 doctor >"$work/hung" && fail "a daemon that hangs pleases the doctor"
lasted "the answer" "$since"
holds "a daemon that hangs" "$work/hung" 'error .*answer ringd: it can(not be reached|  *be reached, and did not answer)'
kill -CONT "$(pid_of 3)"

say "a daemon that ends leaves nobody waiting"
kill -STOP "$(pid_of 2)"
on 1 doctor >"$work/ended" 2>&1 &
asker=$!
kill -TERM "$(pid_of 1)"
wait $asker && fail "the doctor is content with a daemon that ended"
holds "the end" "$work/ended" '^ringctl: |no ringd answers'
kill -CONT "$(pid_of 2)"
say "done"
