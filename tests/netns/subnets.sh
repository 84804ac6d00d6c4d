#!/bin/sh
# The cables' own addresses: the same on both ends, unique, set again when they are taken away, and out of everybody's way.
# usage: subnets.sh BUILD
#
#     a = node 1 ═══ cable1 ═══ b = node 2 ═══ cable3 ═══ c = node 3        d = node 4 ═══ thunderbolt0 ═══ e = node 5
#       ║     ╚═════ cable2 ═════╝   │                      │
#       ╟── home0                    │                      │
#       └──────────── lan4 ──────────┴──────────────────────┘
#
# cable* are cables, lan4 is a switch. Each node runs ringd-link and ringd. Needs root and jq.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
command -v jq >/dev/null || skip "jq is not installed"
pool=10.98.0.0/16

address4() { # NODE K
    ns_exec "$1" ip -4 -o addr show dev "cable$2" 2>/dev/null | sed -n 's/.* inet \([0-9./]*\) .*valid_lft [0-9]*sec.*/\1/p'
}
net4() { # ADDRESS/31: its network
    _last=${1##*.}
    echo "${1%.*}.$((${_last%/*} / 2 * 2))"
}
joined4() { # K A B, as joined_subnet; what it saw is in four_a and four_b
    four_a=$(address4 "$2" "$1") four_b=$(address4 "$3" "$1")
    [ "$(echo "$four_a" "$four_b" | wc -w)" = 2 ] && [ "$four_a" != "$four_b" ] && [ "$(net4 "$four_a")" = "$(net4 "$four_b")" ] &&
        reach "$2" "${four_b%/*}" && reach "$3" "${four_a%/*}"
}
why4() { # NODE K
    on "$(name_of "$1")" --json ports | jq -r ".ports[] | select(.name == \"cable$2\") | .heard[].subnet4_trouble"
}
check4() { # K A B
    wait_for $((8 * slow)) joined4 "$@" ||
        fail "cable$1: $(name_of "$2") has \"$(address4 "$2" "$1")\" ($(why4 "$2" "$1")), $(name_of "$3") \"$(address4 "$3" "$1")\" ($(why4 "$3" "$1")), or they do not reach each other"
    ok "cable$1: $four_a at $(name_of "$2"), $four_b at $(name_of "$3"), both reached"
}
moved() { # K A B WAS: to another /31, together
    joined4 "$1" "$2" "$3" && [ "$four_a" != "$4" ] && [ "$four_b" != "$4" ]
}
none4() { # K NODE...
    _k=$1
    shift
    for _n in "$@"; do
        [ -z "$(address4 "$_n" "$_k")" ] || return 1
    done
}
heard() { # NODE PORT FILTER: of those heard on that port
    on "$1" --json ports | jq -r ".ports[] | select(.name == \"$2\") | .heard[] | $3"
}
is_said() { # NODE PORT FILTER TEXT
    heard "$1" "$2" "$3" | grep -qF -- "$4"
}
start_all() { # OPTION...
    for _node in 1 2 3; do
        start_ringd $_node "$@"
    done
}
stop_all() {
    for _who in a b c; do
        stop $_who TERM
    done
}

# ringd-link keeps to the pool it was told first. What it set of another lasts as long as its lease: here it goes at once.
new_pool() {
    for _node in 1 2 3; do
        stop "link-$(name_of $_node)" TERM
        for _k in 1 2 3; do
            ns_exec $_node ip -4 addr flush dev "cable$_k" 2>/dev/null
        done
        start_link $_node
    done
}

begin_logs 1 2 3 4 5
ns_up 5
no_dad 1 2 3 4 5
cable 1 2
cable 1 2
cable 2 3
segment 1 2 3
for node in 1 2 3; do
    start_link $node
done
start_all --ipv4-pool $pool --ports-allow 'cable2'
for node in a b c; do
    await_line "$tmp/$node.log" 'API on' 20
done
for node in 1 2 3; do
    enrol $node
done

# --- every cable has its own two
for cable_ends in '1 1 2' '2 1 2' '3 2 3'; do
    check_cable $cable_ends
    check4 $cable_ends
done
[ "$(for at in '1 1' '1 2' '2 3'; do set -- $at; subnet "$1" "$2"; net4 "$(address4 "$1" "$2")"; done | sort -u | wc -l)" = 6 ] ||
    fail "two cables have one subnet"
ok "six subnets, no two alike"

# --- a switch is one, and has none
for node in a b c; do
    wait_for $((5 * slow)) is_said $node lan4 '"\(.state) \(.shared)"' 'two-way true' || fail "$node takes lan4 for a cable: $(heard $node lan4 .)"
    [ "$(heard $node lan4 '"\(.shared) \(.subnet)\(.subnet4)"' | sort | uniq -c | tr -s ' ')" = " 2 true " ] ||
        fail "lan4 at $node: $(heard $node lan4 .)"
done
for node in 1 2 3; do
    ns_exec $node ip -o addr show dev lan4 | grep -E 'inet |inet6 fd' && fail "lan4 has an address at node $node"
done
ok "the switch is known for one by all three, and has no subnet"

# --- names
on a links --hosts >"$tmp/hosts"
for line in "$(address 1 1) a-cable1.ring" "$(address 2 1) b-cable1.ring" "$(address4 1 2) a-cable2.ring" "$(address4 2 2) b-cable2.ring"; do
    grep -qxF "$(echo "$line" | sed 's|/[0-9]*||')" "$tmp/hosts" || fail "links --hosts lacks \"$line\": $(cat "$tmp/hosts")"
done
knows_all() { # also cable3, which a has no end of
    on a links --hosts >"$tmp/hosts"
    for line in "$(address 2 3) b-cable3.ring" "$(address4 2 3) b-cable3.ring" "$(address 3 3) c-cable3.ring" "$(address4 3 3) c-cable3.ring"; do
        grep -qxF "$(echo "$line" | sed 's|/[0-9]*||')" "$tmp/hosts" || return 1
    done
}
wait_for $((5 * slow)) knows_all || fail "links --hosts lacks cable3: $(cat "$tmp/hosts")"
[ "$(wc -l <"$tmp/hosts")" = 12 ] || fail "links --hosts: $(cat "$tmp/hosts")"
ok "links --hosts names both ends of all three cables of the cluster, in both families"

# --- the same after replug and restart
six=$(address 1 1) four=$(address4 1 1) four2=$(address4 1 2)
mark a b
cut 1
await_all 'cable on cable1 to [ab] is out' 5 a b
plug 1
check_cable 1 1 2
check4 1 1 2
[ "$six $four" = "$(address 1 1) $(address4 1 1)" ] || fail "replugged: $six and $four became $(address 1 1) and $(address4 1 1)"
for node in 1 2; do
    ns_spawn $node ip monitor address >"$tmp/monitor$node.log" 2>&1
done
mark b
stop a KILL
mark a
start_ringd 1 --ipv4-pool $pool --ports-allow 'cable2'
await_all 'cable on cable1: b' 10 a
await_all 'cable on cable1 to a is out: ' 10 b
await_all 'cable on cable1: a' 10 b
check4 1 1 2
check4 2 1 2
grep -q 'cable' "$tmp/monitor2.log" || await_line "$tmp/monitor2.log" 'cable' 40 # a lease is renewed: it does listen
# Without a, two nodes are left on lan4, which may be taken for a cable until a is back: that one does not count.
grep 'Deleted .*: cable' "$tmp/monitor1.log" "$tmp/monitor2.log" && fail "a was restarted, and an address was taken away"
[ "$four $four2" = "$(address4 1 1) $(address4 1 2)" ] || fail "restarted: $four and $four2 became $(address4 1 1) and $(address4 1 2)"
ok "the same after replug and after a restart, through which both ends kept them"

# --- taken away: set again, and what others set stays
ns_exec 1 ip addr add 192.0.2.1/24 dev cable1
ns_exec 1 ip addr flush dev cable1 scope global
ns_exec 1 ip addr add 192.0.2.1/24 dev cable1
check_cable 1 1 2
check4 1 1 2
[ "$six $four" = "$(address 1 1) $(address4 1 1)" ] || fail "flushed: $six and $four became $(address 1 1) and $(address4 1 1)"
ns_exec 1 ip -o addr show dev cable1 | grep -F 192.0.2.1/24 | grep -q 'valid_lft forever' || fail "a foreign address did not stay"
ok "set again after a flush"

# --- a home network in the middle of the pool
ns_exec 1 ip link add home0 type bridge
ns_exec 1 ip link set home0 up
was=$(address4 1 1)
ns_exec 1 ip addr add "${was%.*}.200/24" dev home0
wait_for $((8 * slow)) moved 1 1 2 "$was" || fail "the home network is on ${was%.*}.0/24, and cable1 on $(address4 1 1) and $(address4 2 1)"
case $four_a in "${was%.*}".*) fail "cable1 is within the home network still: $four_a" ;; esac
ok "a home network came: from $was to $four_a and $four_b"

# --- an address on the cable itself, behind our back
was=$(address4 2 1)
ns_exec 2 ip addr add "${was%/*}/25" dev cable1
wait_for $((8 * slow)) moved 1 1 2 "$was" || fail "somebody set ${was%/*}/25, and cable1 is on $(address4 1 1) and $(address4 2 1)"
ns_exec 2 ip -o addr show dev cable1 | grep -qF "${was%/*}/25" || fail "a foreign address did not stay"
ns_exec 2 ip addr del "${was%/*}/25" dev cable1
ok "an address came: from $was to $four_b and $four_a"

# --- a home network as large as the pool: none, on either end, and why
ns_exec 1 ip addr add 10.98.0.1/16 dev home0
wait_for $((8 * slow)) none4 1 1 2 || fail "the pool is the home network, and cable1 has $(address4 1 1) and $(address4 2 1)"
is_said a cable1 .subnet4_trouble '10.98.0.0/16' || fail "a says: $(heard a cable1 .subnet4_trouble)"
wait_for $((4 * slow)) is_said b cable1 .subnet4_trouble 'a has no /31' || fail "b says: $(heard b cable1 .subnet4_trouble)"
check4 3 2 3
ok "no room: $(heard a cable1 .subnet4_trouble)"
ns_exec 1 ip link del home0
check4 1 1 2

# --- somebody's route over an IPv6 subnet is said, and harms nothing
ns_exec 1 ip -6 route add blackhole fd00::/8
wait_for $((4 * slow)) is_said a cable1 .subnet_trouble 'fd00::/8' || fail "a says: $(heard a cable1 .subnet_trouble)"
check_cable 1 1 2
ns_exec 1 ip -6 route del blackhole fd00::/8

# --- set up, where ports-allow names it
ns_exec 1 ip link set cable2 down
check_cable 2 1 2
ok "cable2 was down and is set up again"

# --- two places for two cables: whatever their hashes are, each gets one. The switch is left out: it might be taken for a third at first.
stop_all
new_pool
cut 3
mark a b
start_all --ipv4-pool 10.99.0.0/30 --ports-deny 'lan*'
await_all 'a ring of 2' 15 a b
check4 1 1 2
one=$(net4 "$four_a")
check4 2 1 2
two=$(net4 "$four_a")
[ "$one" != "$two" ] || fail "cable1 and cable2 are both on $one"
ok "two cables, two places: $one and $two"

# --- one place for two cables: the same one gets it at both ends
stop_all
new_pool
mark a b
start_all --ipv4-pool 10.99.8.0/31 --ports-deny 'lan*'
await_all 'a ring of 2' 15 a b
one_of_two() {
    { joined4 1 1 2 && none4 2 1 2; } || { joined4 2 1 2 && none4 1 1 2; }
}
wait_for $((8 * slow)) one_of_two || fail "one place, and $(for k in 1 2; do address4 1 $k; address4 2 $k; done)"
ok "two cables, one place: $four_a and $four_b"

# --- Thunderbolt: what is not up is set up before there is a cluster, and both ends take the largest MTU. Started without the
# namespace's own /sys, the daemons go by the names of the interfaces.
ip -n "$(ns_name 4)" link add thunderbolt0 type veth peer name thunderbolt0 netns "$(ns_name 5)"
ip -n "$(ns_name 5)" link set thunderbolt0 mtu 4000
if [ -e /sys/class/net/thunderbolt0 ]; then
    echo "Thunderbolt is not tested: this machine has a thunderbolt0 of its own"
else
    for node in 4 5; do
        who=$(name_of $node)
        start_link $node
        nsenter --net="/run/netns/$(ns_name $node)" "$build/ringd" --state-dir "$tmp/$who" --name "$who" --http-listen none --threads 1 \
            --link-socket "$tmp/link-$who.sock" 2>>"$tmp/$who.log" </dev/null &
        pid=$!
        spawned="$spawned $pid"
        echo $pid >"$tmp/$who.pid"
    done
    for who in d e; do
        await_line "$tmp/$who.log" 'API on' 20
    done
    on d init >/dev/null
    on e join "$(on d invite)" >/dev/null || fail "e cannot join over thunderbolt0"
    mtu_is() {
        [ "$(ns_exec 4 cat /sys/class/net/thunderbolt0/mtu) $(ns_exec 5 cat /sys/class/net/thunderbolt0/mtu)" = "$1 $1" ]
    }
    wait_for $((8 * slow)) mtu_is 65535 || fail "the MTU of thunderbolt0: $(on d ports)"
    [ "$(heard d thunderbolt0 '"\(.mtu) \(.mtu_trouble)"')" = "65535 " ] || wait_for 3 is_said d thunderbolt0 .mtu 65535 || fail "$(on d ports)"
    ok "thunderbolt0: set up, both ends with MTU 65535"
fi

# --- who stays away: the lease runs out, is not renewed, and nothing is left
stop b KILL
await_all 'cable on cable1 to b is out: ' 10 a
left=$(ns_exec 1 ip -6 -o addr show dev cable1 scope global | sed -n 's/.* valid_lft \([0-9]*\)sec.*/\1/p')
[ "${left:-999}" -le 120 ] || fail "a lease of \"$left\" s: $(ns_exec 1 ip -6 addr show dev cable1)"
ns_spawn 1 ip monitor address >"$tmp/monitor3.log" 2>&1
[ -z "$(address 1 1)" ] || await_line "$tmp/monitor3.log" 'Deleted .*cable1 .*inet6 fd' $((left + 5))
[ -z "$(address 1 1)" ] || fail "b is gone for good, and cable1 has $(address 1 1)"
ok "a node that stays away: its cable's address is gone within the $left s that were left of the lease"
