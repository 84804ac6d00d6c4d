#!/bin/sh
# ringd-link for itself: what it sets, what it refuses, what is left of it when it is killed. usage: helper.sh BUILD
#
#     node 1 ═════ cable1 ═════ node 2
#       ├── bridge br0 ── port0 (enslaved)
#       └── lo
#
# Addresses of the cables: fd12:3456:789a::/48 and 10.98.0.0/16.
# SPDX-License-Identifier: MIT
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${1:-build}")
. tests/netns/lib.sh

# The client is built here: it is no part of what is installed.
cc -std=gnu17 -D_GNU_SOURCE -O1 -iquote . -o "$tmp/client" tests/netns/link_client.c daemon/ringd/peer/cable_client.c \
    daemon/ringd/timer.c daemon/common/link_proto.c daemon/common/xalloc.c net/prefix.c net/buf.c net/clock.c net/base/reason.c -levent_core || fail "the client does not build"

ula=fd12:3456:789a::/48 pool=10.98.0.0/16
six1=fd12:3456:789a:7262::1:10 six2=fd12:3456:789a:7262::1:11 four1=10.98.4.6 four2=10.98.4.7
SCOPE=1 UP=2 MTU=3 ADD=4 DEL=5 LIST=6

# start_link NODE: ringd-link there; its id in $pid and $tmp/linkNODE.pid
start_link() {
    ns_spawn "$1" "$build/ringd-link" --socket "$tmp/link$1.sock" 2>>"$tmp/link$1.log"
    echo $pid >"$tmp/link$1.pid"
    # the socket's file may be left over from one that was killed
    wait_for 5 ns_exec "$1" "$tmp/client" ask "$tmp/link$1.sock" $LIST 0 0 - >/dev/null || fail "ringd-link does not answer"
}
# hold NODE LEASE PREFIX...: a linkctl there
hold() {
    node=$1 lease=$2
    shift 2
    ns_spawn "$node" "$tmp/client" hold "$tmp/link$node.sock" "$lease" $ula $pool "$(ns_index "$node" cable1)" 9000 "$@" \
        >>"$tmp/hold$node.log" 2>&1
    echo $pid >"$tmp/hold$node.pid"
}
ask() { # VERB IFINDEX VALUE PREFIX; what it says is in $said
    said=$(ns_exec 1 "$tmp/client" ask "$tmp/link1.sock" "$@")
}
expect() { # CODE VERB IFINDEX VALUE PREFIX
    want=$1
    shift
    ask "$@"
    case $said in
    "$want "*) ok "$(echo "$said" | head -n 1)" ;;
    *) fail "request $*: wanted $want, got: $said" ;;
    esac
}
has() { # NODE ADDRESS
    ns_exec "$1" ip -o addr show dev cable1 2>/dev/null | grep -qF " $2/"
}
has_not() {
    ! has "$@"
}
kill_one() { # NAME [SIGNAL]
    kill "-${2:-9}" "$(cat "$tmp/$1.pid")"
    [ "${2:-9}" != 9 ] || wait "$(cat "$tmp/$1.pid")" 2>/dev/null
}

ns_up 2
cable 1 2
ns_exec 1 ip link add br0 type bridge
ns_exec 1 ip link add port0 type veth peer name port1
ns_exec 1 ip link set port0 master br0
ns_exec 1 ip link set cable1 down

# --- privileges
start_link 1
status_file=/proc/$(cat "$tmp/link1.pid")/status
for field in CapInh:0000000000000000 CapPrm:0000000000001000 CapEff:0000000000001000 CapBnd:0000000000001000 \
    CapAmb:0000000000000000 NoNewPrivs:1; do
    wait_for 2 grep -q "^${field%%:*}:.${field#*:}$" "$status_file" || fail "$(grep "^${field%%:*}" "$status_file"), not $field"
done
ok "it has CAP_NET_ADMIN and nothing else"
for file in "/proc/$(cat "$tmp/link1.pid")"/fd/*; do
    case $(readlink "$file") in
    socket:*)
        inode=$(readlink "$file" | tr -dc 0-9)
        for table in tcp tcp6 udp udp6 raw raw6 packet; do
            ns_exec 1 grep -qw "$inode" /proc/net/$table && fail "it has a socket of kind $table"
        done
        ;;
    esac
done
ok "it has no inet socket"

# --- refusals
index=$(ns_index 1 cable1)
expect no-scope $ADD "$index" 60 $six1/127
expect bad-request $SCOPE 0 0 2001:db8::/48
expect bad-request $SCOPE 0 0 8.8.8.0/24
expect ok $SCOPE 0 0 $ula
expect ok $SCOPE 0 0 $ula
expect scope-fixed $SCOPE 0 0 fd99:9999:9999::/48
expect ok $SCOPE 0 0 $pool
expect out-of-scope $ADD "$index" 60 fd99:9999:9999::1/127
expect out-of-scope $ADD "$index" 60 10.99.0.0/31
expect out-of-scope $DEL "$index" 0 192.168.1.0/31
expect bad-request $ADD "$index" 60 10.98.0.0/16
expect bad-request $ADD "$index" 99999 $four1/31
expect bad-request $MTU "$index" 100 -
expect bad-request 9 0 0 -
expect no-port $UP 9999 0 -
expect no-port $ADD 9999 60 $six1/127
expect not-cable $UP "$(ns_index 1 lo)" 0 -
expect not-cable $ADD "$(ns_index 1 lo)" 60 $six1/127
expect not-cable $MTU "$(ns_index 1 br0)" 9000 -
expect not-cable $ADD "$(ns_index 1 br0)" 60 $six1/127
expect not-cable $ADD "$(ns_index 1 port0)" 60 $six1/127
ns_exec 1 sh -c 'echo 1 >/proc/sys/net/ipv6/conf/cable1/disable_ipv6'
expect kernel $ADD "$index" 60 $six1/127
ns_exec 1 sh -c 'echo 0 >/proc/sys/net/ipv6/conf/cable1/disable_ipv6'

# an address that somebody else set, within our network and on our port, stays as it is
ns_exec 1 ip addr add $four1/31 dev cable1
ns_exec 1 ip addr add $six1/127 dev cable1
expect not-ours $DEL "$index" 0 $four1/31
expect not-ours $DEL "$index" 0 $six1/127
expect not-ours $ADD "$index" 60 $four1/31
expect not-ours $ADD "$index" 60 $six1/127
ns_exec 1 ip -o addr show dev cable1 | grep -F $six1 | grep -q "valid_lft forever" || fail "a foreign address was changed"
ask $LIST 0 0 -
[ "$said" = "ok " ] || fail "it lists what it did not set: $said"
ns_exec 1 ip addr flush dev cable1
ok "foreign addresses stay"

if command -v setpriv >/dev/null; then
    said=$(ns_exec 1 setpriv --reuid 65534 --clear-groups "$tmp/client" ask "$tmp/link1.sock" $LIST 0 0 -)
    case $said in denied*) ok "$said" ;; *) fail "another user got: $said" ;; esac
fi
said=$(ns_exec 1 "$build/ringd-link" --socket "$tmp/link1.sock" 2>&1) && fail "a second one started on the same socket"
ok "$said"

# --- what it sets
start_link 2
hold 1 4 $six1/127 $four1/31
hold 2 4 $six2/127 $four2/31
wait_for 3 has 1 $six1 && wait_for 3 has 1 $four1 && wait_for 3 has 2 $four2 || fail "addresses do not appear"
[ "$(ns_exec 1 cat /sys/class/net/cable1/mtu)" = 9000 ] || fail "the MTU is not set"
ns_exec 1 ip -o link show dev cable1 | grep -q "[<,]UP[,>]" || fail "the link is not up"
ns_exec 1 ip -o -6 addr show dev cable1 | grep -F $six1 | grep -q "nodad.*valid_lft [1-4]sec" || fail "no lease, or DAD"
ns_exec 1 ip -o -4 addr show dev cable1 | grep -F $four1 | grep -q "valid_lft [1-4]sec" || fail "no lease"
wait_for 5 reach 1 $six2 && reach 2 $four1 || fail "the ends do not reach each other"
ask $LIST 0 0 -
[ "$(echo "$said" | wc -l)" = 3 ] || fail "the list is not of two: $said"
ok "up, MTU, leased addresses; both ends reach each other"

sleep 5
has 1 $six1 && has 1 $four1 || fail "the lease was not renewed"
ok "leases are renewed"

# --- another program takes them away
ns_exec 1 ip addr flush dev cable1 scope global
kill_one hold1 USR1
wait_for 1 has 1 $six1 && wait_for 1 has 1 $four1 || fail "not set again after a flush"
grep -q "removed by another program" "$tmp/hold1.log" || fail "the reason is not told"
ok "set again at once after a flush: $(grep -m 1 -o 'fd12.*removed.*' "$tmp/hold1.log")"
ns_exec 1 ip link set cable1 down
has 1 $six1 && fail "the kernel kept the address of a link that is down"
kill_one hold1 USR1
wait_for 2 has 1 $six1 || fail "not set again after down and up"
wait_for 5 reach 1 $six2 || fail "the ends do not reach each other after down and up"
ok "set again after link down"
start=$(date +%s)
for round in 1 2 3; do
    wait_for 20 has 1 $six1 || fail "given up in round $round"
    ns_exec 1 ip addr flush dev cable1 scope global
    kill_one hold1 USR1
done
wait_for 20 has 1 $six1 || fail "given up"
took=$(($(date +%s) - start))
[ $took -ge 3 ] || fail "no back-off: three fights in $took s"
ok "a fight slows down: three rounds in $took s"

# --- ringd-link dies; ringd lives
kill_one link1
wait_for 3 grep -q "ringd-link is gone" "$tmp/hold1.log" || fail "its end is not noticed"
start_link 1
for round in 1 2 3 4 5 6 7 8 9 10 11 12; do
    has 1 $four1 || fail "the address did not survive a restart of ringd-link"
    sleep 0.25
done
grep -q "problem: none" "$tmp/hold1.log" || fail "not connected again"
ok "addresses survive a restart of ringd-link"

# --- no longer wanted
kill_one hold2 USR2
wait_for 2 has_not 2 $six2 && wait_for 2 has_not 2 $four2 || fail "not removed when no longer wanted"
ok "removed when no longer wanted"

# --- both killed: nothing is left
kill_one hold1
kill_one link1
has 1 $six1 && has 1 $four1 || fail "the addresses went at once: not by their lease"
wait_for 8 has_not 1 $six1 && wait_for 8 has_not 1 $four1 || fail "an address outlives its lease"
# the kernel sweeps expired routes up every 30 s only, but does not use them
ns_exec 1 ip -6 route get $six2 2>&1 | grep cable1 && fail "a route outlives its address"
ok "killed, nothing is left but the time of a lease"

# --- a new ringd-link knows what the one before set; a replugged cable is another interface
start_link 1
hold 1 30 $six1/127
wait_for 3 has 1 $six1 || fail "not set after all was killed"
kill_one hold1
kill_one link1
start_link 1
ask $SCOPE 0 0 $ula
ask $LIST 0 0 -
case $said in "$six1/127 on $index"*) ok "it knows its own again: $(echo "$said" | head -n 1)" ;; *) fail "it lists: $said" ;; esac
expect ok $DEL "$index" 0 $six1/127
has 1 $six1 && fail "not removed"
cut 1
expect no-port $ADD "$index" 60 $six1/127
plug 1
expect ok $ADD "$(ns_index 1 cable1)" 60 $six1/127
kill_one link1 TERM
wait_for 2 test ! -e "$tmp/link1.sock" || fail "the socket is left behind"
ok "ends on SIGTERM and removes its socket"
