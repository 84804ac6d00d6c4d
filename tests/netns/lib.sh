# Worlds of namespaces and cables for tests that run real daemons. Sourced by tests/netns/*.sh; needs root.
#
#   ns_up N            nodes 1..N, each a network namespace with its own loopback; all is taken down at exit
#   cable A B [RATE]   a veth pair between two nodes, as interface "cableK" on both, up, with carrier; K in $cable.
#                      RATE as in tc: "100mbit", both ways. Stable MACs, so the ports keep their ids when replugged
#   segment A B ...    a switch with these nodes on it, as interface "lanK" on each; K in $cable. RATE=... before it
#   cut K / plug K     pulls it out: the interfaces are gone, as with Thunderbolt; plugs it in again: new ifindexes
#   mute K A / unmute  what A sends there is lost, with carrier and all: a cable that works one way only
#   block K A WHAT     a firewall at A swallows what comes in there: "calls" new TCP connections to port 17464, "tcp" all of TCP,
#                      a number every packet of IPv6 that is larger. unblock K A; needs tc and nothing else
#   ns_exec A CMD...   runs it on a node             ns_spawn A CMD...   the same in the background; its id in $pid
#   ns_index A IF      number of an interface        reach A ADDRESS     can A talk to it?
#   wait_for S CMD...  until CMD succeeds, S seconds at most
#   skip WHY           ends the test as skipped      fail WHY            ends it as failed
#   ok WHAT            one line per thing that was seen to hold
#
# $tmp is a folder of this test's own. Namespaces are named after the shell's process id, so that tests can run beside
# each other.
# SPDX-License-Identifier: MIT

skip() {
    echo "skipped: $*"
    exit 77
}
fail() {
    echo "FAILED: $*" >&2
    for log in "$tmp"/*.log; do
        [ -s "$log" ] && { echo "--- $(basename "$log")" >&2; tail -n ${FAIL_LINES:-12} "$log" >&2; }
    done
    exit 1
}
ok() {
    echo "ok: $*"
}

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "iproute2 is not installed"
ip netns add "probe$$" 2>/dev/null || skip "this machine has no network namespaces"
ip netns del "probe$$"

tmp=$(mktemp -d)
chmod 755 "$tmp"
nodes=0 cable=0 spawned=

ns_name() {
    echo "ring$$-$1"
}
ns_exec() {
    _node=$1
    shift
    ip netns exec "$(ns_name "$_node")" "$@"
}
ns_spawn() {
    _node=$1
    shift
    ip netns exec "$(ns_name "$_node")" "$@" &
    pid=$!
    spawned="$spawned $pid"
}
ns_up() {
    while [ "$nodes" -lt "$1" ]; do
        nodes=$((nodes + 1))
        ip netns add "$(ns_name $nodes)"
        ns_exec $nodes ip link set lo up
    done
}
ns_down() {
    trap - EXIT INT TERM
    for _pid in $spawned; do
        kill -9 "$_pid" 2>/dev/null
        wait "$_pid" 2>/dev/null
    done
    while [ "$nodes" -gt 0 ]; do
        ip netns del "$(ns_name $nodes)"
        nodes=$((nodes - 1))
    done
    ip netns del "ring$$-switch" 2>/dev/null
    rm -rf "$tmp"
}
trap 'ns_down' EXIT
trap 'exit 130' INT TERM

# node, interface, rate
_tune() {
    ns_exec "$1" ip link set "$2" up
    [ -z "$3" ] || ns_exec "$1" tc qdisc replace dev "$2" root tbf rate "$3" burst 256k latency 50ms
}
# mac K SIDE: locally administered, the same each time
_mac() {
    printf '02:72:69:6e:%02x:%02x' "$1" "$2"
}
plug() {
    read -r _kind _a _b _rate <"$tmp/cable$1"
    [ "$_kind" = cable ] || fail "plug $1: only cables can be plugged"
    ip -n "$(ns_name "$_a")" link add "cable$1" address "$(_mac "$1" 1)" type veth \
        peer name "cable$1" address "$(_mac "$1" 2)" netns "$(ns_name "$_b")"
    _tune "$_a" "cable$1" "$_rate"
    _tune "$_b" "cable$1" "$_rate"
}
cut() { # of a file it is still the program of that name
    case ${1:-} in '' | *[!0-9]*) command cut "$@"; return ;; esac
    read -r _kind _a _b _rate <"$tmp/cable$1"
    ip -n "$(ns_name "$_a")" link del "cable$1"
}
cable() {
    cable=$((cable + 1))
    echo "cable $1 $2 ${3:-}" >"$tmp/cable$cable"
    plug $cable
}
segment() {
    cable=$((cable + 1))
    echo "segment" >"$tmp/cable$cable"
    ip netns add "ring$$-switch" 2>/dev/null
    ip -n "ring$$-switch" link add "sw$cable" type bridge mcast_snooping 0
    ip -n "ring$$-switch" link set "sw$cable" up
    for _a in "$@"; do
        ip -n "$(ns_name "$_a")" link add "lan$cable" address "$(_mac "$cable" $((_a + 16)))" type veth \
            peer name "sw$cable-$_a" netns "ring$$-switch"
        ip -n "ring$$-switch" link set "sw$cable-$_a" master "sw$cable" up
        _tune "$_a" "lan$cable" "${RATE:-}"
    done
}
# A token bucket smaller than any packet lets none through.
mute() {
    ns_exec "$2" tc qdisc replace dev "cable$1" root tbf rate 8bit burst 1 limit 1
}
unmute() {
    read -r _kind _a _b _rate <"$tmp/cable$1"
    ns_exec "$2" tc qdisc del dev "cable$1" root
    _tune "$2" "cable$1" "$_rate"
}
# Programs of the classic packet filter: 2 drops a packet, the largest number lets it through. Offsets count from the Ethernet head.
block() {
    case $3 in
    calls) _filter="9,48 0 0 20,21 0 6 6,40 0 0 56,21 0 4 17464,48 0 0 67,84 0 0 18,21 0 1 2,6 0 0 2,6 0 0 4294967295" ;;
    tcp) _filter="4,48 0 0 20,21 0 1 6,6 0 0 2,6 0 0 4294967295" ;;
    *) _filter="4,128 0 0 0,37 0 1 $(($3 + 14)),6 0 0 2,6 0 0 4294967295" ;;
    esac
    ns_exec "$2" tc qdisc replace dev "cable$1" clsact &&
        ns_exec "$2" tc filter replace dev "cable$1" ingress pref 1 handle 1 bpf da bytecode "$_filter" || skip "this kernel has no packet filter for tc"
}
unblock() {
    ns_exec "$2" tc qdisc del dev "cable$1" clsact
}
ns_index() {
    ns_exec "$1" cat "/sys/class/net/$2/ifindex"
}
# A closed port that refuses is an answer too; nothing but bash is needed for that.
reach() {
    _said=$(ns_exec "$1" timeout 2 bash -c "exec 3<>/dev/tcp/$2/9" 2>&1) && return 0
    case $_said in *refused*) return 0 ;; esac
    return 1
}
wait_for() {
    _left=$(($1 * 20))
    shift
    until "$@"; do
        _left=$((_left - 1))
        [ $_left -gt 0 ] || return 1
        sleep 0.05
    done
}
