#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The process that has a node's secret keys, as an operator sees it: the node is the same after a restart, a keeper that is
# killed or stopped ends ringd with a sentence, and a file that is damaged is named.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
at_end() { kill_ring; }

name_of() { on "$1" status --json | jq -r .node.id; }

start_node 1
start_node 2
on 1 init >/dev/null
on 2 join "$(on 1 invite)" --peer "127.0.0.1:$(cat "$work/n1/port")" >/dev/null
await_line "$(log_of 1)" 'n2' 10
id=$(name_of 1)
equal "the identity's mode" "$(stat -c %a "$work/n1/identity")" 600

say "restart"
keys=$(keys_of 1)
[ -n "$keys" ] || fail "no ringd-keys beside n1"
stop_node 1
[ ! -e "/proc/$keys" ] || fail "ringd-keys is still there after ringd has ended"
mark=$(next_line "$(log_of 1)")
start_node 1
equal "the node's id after a restart" "$(name_of 1)" "$id"
await_line "$(log_of 1)" 'a ring of 2' 20 "$mark"
on 1 invite >/dev/null || fail "no authority after a restart"

say "revoke"
mark=$(next_line "$(log_of 2)")
on 1 remove n2 >/dev/null
await_line "$(log_of 2)" 'was removed from cluster' 10 "$mark"
on 2 join "$(on 1 invite)" --peer "127.0.0.1:$(cat "$work/n1/port")" >/dev/null || fail "n2 cannot come back"

say "killed"
ringd=$(pid_of 1) keys=$(keys_of 1)
kill -KILL "$keys"
await_end "$ringd" 10
equal "ringd without its keys" $? 1
holds "ringd without its keys" "$(log_of 1)" 'error: ringd-keys, which has this node.s keys, was killed by SIGKILL: ringd has to start again'
rm "$work/n1/pid"
start_node 1
equal "the node's id after that" "$(name_of 1)" "$id"

say "stopped"
ringd=$(pid_of 1) keys=$(keys_of 1)
kill -STOP "$keys"
on 1 remove n2 >"$work/said" 2>&1 && fail "a stopped ringd-keys has signed"
await_end "$ringd" 20
equal "ringd with stopped keys" $? 1
holds "ringd with stopped keys" "$(log_of 1)" 'ringd-keys, which has this node.s keys, does not answer'
kill -KILL "$keys"
rm "$work/n1/pid"

say "damaged"
cp "$work/n1/identity" "$work/kept"
printf x >>"$work/n1/identity"
"$build/ringd" --state-dir "$work/n1" --http-listen none --discover off --listen 127.0.0.1:0 2>"$work/said" && fail "ringd has started with a damaged identity"
holds "a damaged identity" "$work/said" "ringd: $work/n1/identity is damaged: remove it and the node gets a new identity"
cp "$work/kept" "$work/n1/identity"

say "missing"
mkdir "$work/alone"
cp "$build/ringd" "$work/alone/"
"$work/alone/ringd" --state-dir "$work/n1" --http-listen none --discover off --listen 127.0.0.1:0 2>"$work/said" && fail "ringd has started without ringd-keys"
holds "without ringd-keys" "$work/said" "ringd-keys cannot be started from $work/alone/ringd-keys: No such file"
stop_node 2
