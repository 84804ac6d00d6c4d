#!/bin/sh
# A cable of MTU 65520 between two network namespaces, as Thunderbolt has it, for bench_link. usage: bench_link.sh BUILD
# SPDX-License-Identifier: MIT
set -eu
build=$1
[ "$(id -u)" = 0 ] || { echo "link over a cable: skipped, network namespaces need root"; exit 0; }
command -v ip >/dev/null || { echo "link over a cable: skipped, iproute2 is not installed"; exit 0; }
a=bench$$-a b=bench$$-b
ip netns add $a 2>/dev/null || { echo "link over a cable: skipped, this machine has no network namespaces"; exit 0; }
trap 'ip netns del $a; ip netns del $b 2>/dev/null' EXIT
trap 'exit 130' INT TERM
ip netns add $b
ip -n $a link add cable mtu 65520 type veth peer name cable mtu 65520 netns $b
# No duplicate is possible on a cable of our own, and waiting for one takes a second.
ip -n $a addr add fd00::1/64 dev cable nodad
ip -n $b addr add fd00::2/64 dev cable nodad
ip -n $a link set cable up
ip -n $b link set cable up
"$build/tests/bench/bench_link" $a $b fd00::2
