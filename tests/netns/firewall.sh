#!/bin/sh
# Firewalls that let beacons through and drop TCP port 17464. usage: firewall.sh BUILD
#
#     a = node 1 ══ cable1 ══ b = node 2
#
# New connections dropped at one end: the ring closes, no call is left behind, and jobs of both heads run. Then at the other end, where the control connection stands:
# data connections are dialled the other way round. At both ends: the job fails with a sentence that names node, port and firewall.
# All of TCP dropped: each end says where, and what to open.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
command -v jq >/dev/null || skip "jq is not installed"
command -v tc >/dev/null || skip "tc is not installed (iproute2)"
small=$PWD/share/tiny-llama

id_of() { # NAME
    on "$1" --json status | jq -r .node.id
}
begin_behind() { # NODE: both daemons begin again, with a firewall there
    for name in a b; do
        stop $name TERM
    done
    block 1 "$1" calls
    mark a b
    start=$(milliseconds)
    for node in 1 2; do
        start_ringd $node
    done
    await_all 'a ring of 2' 20 a b
    lasted "a firewall at $(name_of "$1"): from the start to the ring" "$start"
}
no_call_waits() { # NODE
    ns_exec "$1" awk '$4 == "02" {found = 1} END {exit found}' /proc/net/tcp6
}
job_of() { # HEAD
    on "$1" --json generate --model "$small" --max-tokens 3 --ids 1 >"$tmp/$1.job" 2>&1
}
job_runs() { # HEAD WHAT
    start=$(milliseconds)
    job_of "$1" || fail "$2: a job of $1 fails: $(tail -n 3 "$tmp/$1.job")"
    ok "$2: a job of $1 runs, $(($(milliseconds) - start)) ms"
}
says() { # NODE PATTERN: in `links`
    on "$1" links --wide >"$tmp/links" 2>&1 || on "$1" links >"$tmp/links" 2>&1
    tr -s ' \n' '  ' <"$tmp/links" | grep -Eq -- "$2"
}
links_say() {
    wait_for $((25 * slow)) says "$@" || fail "links at $1 do not say \"$2\": $(cat "$tmp/links")"
    ok "links at $1: $(tr -s ' \n' '  ' <"$tmp/links" | grep -Eo -- "$2")"
}

ns_up 2
begin_logs 1 2
no_dad 1 2
cable 1 2
for node in 1 2; do
    start_ringd $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
    enrol $node
done
await_all 'a ring of 2' 20 a b

# --- a firewall that knows connections, at the end that is called first: the ring closes with the call of the other end, which takes the
# place of the first
case $(id_of a) in
"$(printf '%s\n' "$(id_of a)" "$(id_of b)" | sort | head -n 1)") caller=1 called=2 ;;
*) caller=2 called=1 ;;
esac
begin_behind $called
no_call_waits $caller || fail "the first call still waits for an answer, and would end the connection of the other end"
ok "the call that was not answered has ended"
unblock 1 $called

# --- at b: calls that b makes pass
begin_behind 2
job_runs a "a firewall at b"
job_runs b "a firewall at b"
doctor_says a '^error b tcp cable1: a firewall here drops calls of a: .* TCP port 17464 .*FIX .*17464'
doctor_says b '^error b tcp cable1: a firewall here drops calls of a'

# --- the same at a instead, while b's control connection stands: its direction has ceased to work
unblock 1 2
block 1 1 calls
job_runs a "a firewall at a"
grep -q 'its node dials instead' "$tmp/b.log" || fail "the direction was not turned"
start=$(milliseconds)
job_runs a "the direction is remembered"
lasted "the next job" "$start"
turned=$(grep -c 'its node dials instead' "$tmp/b.log")
[ "$turned" = 1 ] || fail "the direction was turned $turned times: it was not remembered"

# --- at both
block 1 2 calls
start=$(milliseconds)
job_of a && fail "a job runs through two firewalls"
lasted "two firewalls: until the job fails" "$start"
grep -Eo '[ab] does not answer on TCP port 17464 over cable1, and [ab] does not answer it either: a firewall[^"]*' "$tmp/a.job" >"$tmp/why" ||
    fail "two firewalls: the job says: $(cat "$tmp/a.job")"
ok "two firewalls: $(head -n 1 "$tmp/why")"
unblock 1 1
unblock 1 2
job_runs a "no firewall"
doctor_says a '^ok a tcp '

# --- all of TCP dropped at b, where a connection stands
mark a b
block 1 2 tcp
wait_for $((20 * slow)) grep -Eqs 'connection to [ab] ended: .*beacons still pass there' "$tmp/a.log" "$tmp/b.log" || # who notices first
    fail "no log says that beacons pass"
ok "after $(($(milliseconds) - start)) ms the log says that beacons pass"
links_say a 'beacons of b pass on cable1 and TCP port 17464 does not.* a firewall on b drops it; let TCP port 17464 in on b'
links_say b 'beacons of a pass on cable1 and TCP port 17464 does not.* a firewall on this node drops it'
doctor_says a '^error a tcp cable1: a firewall on b drops TCP'
doctor_says b '^error b tcp cable1: a firewall drops TCP between this node and a.*FIX .*17464'
mark a b
unblock 1 2
await_all 'a ring of 2' 20 a b
job_runs b "TCP is let in again"
alive a b
