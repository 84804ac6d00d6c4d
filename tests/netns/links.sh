#!/bin/sh
# What `ringctl links -v` says of ports, cables and links that are there, out, silent, and refused. usage: links.sh BUILD
#
#       a = node 1 ═══ cable1 ═══ b = node 2
#                  ═══ cable2 ═══
#
# Needs root.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh

seen() { # NODE PATTERN...: its links -v has a line like each
    _who=$1
    shift
    on "$_who" links -v >"$tmp/links.txt" 2>&1 || return 1
    for _pattern in "$@"; do
        grep -Eq -- "$_pattern" "$tmp/links.txt" || return 1
    done
}
expect() { # NODE SECONDS PATTERN...
    _node=$1 _within=$2
    shift 2
    wait_for $((_within * slow)) seen "$_node" "$@" || fail "$_node has no lines like \"$*\": $(cat "$tmp/links.txt")"
}

both_up() { # NODE
    [ "$(on "$1" --json links | jq '[.links[] | select(.state == "up")] | length')" = 2 ]
}

begin_logs 1 2
ns_up 2
no_dad 1 2
cable 1 2
cable 1 2
for node in 1 2; do
    start_link $node
    start_ringd $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
done
expect a 5 '^cable1 +nobody is heard' '^cable2: no node is heard'
ok "without a cluster nobody is heard"
enrol 1
enrol 2
for node in a b; do
    expect $node 10 '^cable1 +[ab] cable1, two-way +up .*silence' '^cable2 +[ab] cable2, two-way +up .*silence'
done
ok "two cables, two links"

# --- calls over cables of which no beacon was heard: the second does not take the place of the first
stop b TERM
start_ringd 2 --discover off --peer "[fe80::72:69ff:fe6e:101%$(ns_index 2 cable1)]:17464" --peer "[fe80::72:69ff:fe6e:201%$(ns_index 2 cable2)]:17464"
for node in a b; do
    wait_for $((8 * slow)) both_up $node || fail "$node says: $(on $node links -v)"
done
ok "a connection over each of two cables that nobody knows"
stop b TERM
start_ringd 2
for node in a b; do
    expect $node 10 '^cable1 +[ab] cable1, two-way +up ' '^cable2 +[ab] cable2, two-way +up '
done

# --- a cable is out, and keeps its name though the port is gone
cut 2
for node in a b; do
    expect $node 5 '^cable2 +[ab] +out .*forget' '^[ab] on cable2: the cable on cable2 is out: ' '^cable1 .* up '
    on $node --json links -v >"$tmp/links.json" || fail "$node has no links as JSON"
    jq -e '[.links[] | select(.port == "cable2" and .state == "out" and .timer == "forget" and (.peer | length) == 1)] | length == 1' \
        "$tmp/links.json" >/dev/null || fail "$node says: $(cat "$tmp/links.json")"
done
ok "the cable that is out is shown with its port, its peer and the reason"
plug 2
expect a 10 '^cable2 +b cable2, two-way +up ' 'b on cable2: the connection before this one: '
ok "it is back"

# --- plugged in and out too often
for _round in 1 2; do
    cut 2
    expect a 5 '^cable2 +b +out'
    plug 2
    wait_for $((10 * slow)) seen a '^cable2 +b cable2, two-way +(up|flapping) ' || fail "a: $(cat "$tmp/links.txt")"
done
expect a 5 '^cable2 +b cable2, two-way +flapping .*hold' 'b on cable2: the connection broke three times'
ok "it is left alone after the third time"

# --- refused
on a remove b >/dev/null || fail "b cannot be removed"
expect a 10 '^cable1 '
on a links >"$tmp/links.txt"
grep -q '^? ' "$tmp/links.txt" && fail "a link lost the name of its peer: $(cat "$tmp/links.txt")"
expect b 10 '^cable1 .* idle ' '^a on cable1: this node is in no cluster'
ok "a link that is refused keeps the name of its peer"
alive a b link-a link-b
