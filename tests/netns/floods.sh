#!/bin/sh
# All that others can pour out over a node, one after the other, against a ring of three that trains. usage: floods.sh BUILD [SECONDS [QUIET]]
#
#     a   b   c           d                     h
#     ║   ║   ║           ║                     ║
#     ╚═══╩═══╩══ switch ═╩═════════════════════╩
#      a ring with a job   a hostile member      a stranger (flood.c)
#      of its own          (member.c)
#
# Each flood lasts SECONDS (3), after QUIET (3) seconds without one. For each it tells how much came, what the loop of a spent on it, how large the
# daemons ever were, and what a step costs the stages in processor time, against the quiet before: on one machine the flood takes processors from the
# steps, which on machines of their own it cannot. Nothing is sent from the hardware address of another: that would cut his cable at the switch. No
# member may be lost, no daemon may have more than 64 MiB, the job must go on. FLOOD_STEPS=1 wants steps within 5 % as well, for a quiet machine and
# windows of a minute.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
seconds=${2:-3} quiet=${3:-3}
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
flood=$build/tests/netns/flood member=$build/tests/netns/member
for program in "$flood" "$member"; do
    [ -x "$program" ] || fail "$program is missing: make test-programs"
done
most_kib=65536 iters=16777216

stages() { # the processes of the job's stages
    pgrep -f "^$build/ringd-stage" | while read -r _stage; do
        _ns=$(ip netns identify "$_stage" 2>/dev/null)
        case $_ns in "ring$$-"[123]) echo "$_stage" ;; esac
    done
}
cpu_ms() { # of all stages so far
    for _stage in $(stages); do
        awk '{print $14 + $15}' "/proc/$_stage/stat"
    done | awk '{s += $1} END {printf "%d\n", s * 10}'
}
largest() { # that a daemon of the ring ever was, KiB
    for _name in a b c; do
        awk '$1 == "VmHWM:" {print $2}' "/proc/$(cat "$tmp/$_name.pid")/status"
    done | sort -n | tail -1
}
# µs of processor time a step, over that long: $per_step, $steps_made
window() {
    _steps=$(steps long) _cpu=$(cpu_ms)
    sleep "$1"
    per_step=$((($(cpu_ms) - _cpu) * 1000)) steps_made=$(($(steps long) - _steps))
    [ $steps_made -gt 0 ] || fail "$what: the job stands still"
    per_step=$((per_step / steps_made))
}
lost() {
    for name in a b c; do
        tail -n "+$(cat "$tmp/$name.mark")" "$tmp/$name.log" | grep -vE ' (to|of) d( |$|:)|[> ]job [0-9]|d: ' | grep -E 'is out|ended|gone|is alone'
    done
}
against() { # WHAT NODE PROGRAM ARGUMENT...
    what=$1
    _at=$2
    shift 2
    window "$quiet"
    before=$per_step spent=$(loop_ns a) from=$(milliseconds)
    ns_exec "$_at" timeout $((seconds + 60)) "$@" >"$tmp/number" 2>"$tmp/flood.log" &
    flooding=$!
    spawned="$spawned $flooding"
    window "$seconds"
    on a nodes --json >/dev/null || fail "$what: a does not answer"
    wait $flooding || fail "$what: $(tail -3 "$tmp/flood.log")"
    forget $flooding
    took=$(($(milliseconds) - from)) number=$(cat "$tmp/number")
    spent=$((($(loop_ns a) - spent) / 1000 / took))
    ratio=$((per_step * 1000 / before)) kib=$(largest)
    ok "$(printf '%-34s %8d a second, loop %3d ms/s, daemons %5d KiB, a step %6d us of CPU, quiet %6d (%d.%03d), %d steps' "$what" \
        $((number * 1000 / took)) $spent "$kib" "$per_step" "$before" $((ratio / 1000)) $((ratio % 1000)) $steps_made)"
    [ "$number" -gt 0 ] || fail "$what: nothing was sent"
    [ "$kib" -lt $most_kib ] || fail "$what: a daemon has $kib KiB, $most_kib are allowed"
    [ -z "$(lost)" ] || fail "$what: a member was lost: $(lost | head -3)"
    [ -z "${FLOOD_STEPS:-}" ] || [ $ratio -le 1050 ] || fail "$what: a step takes $ratio thousandths of one before"
}
specs() { # of 8 MB each, as a user may send them, until the time is over
    head -c 8000000 /dev/zero | tr '\0' x >"$tmp/prompt"
    printf '{"type":"generate","spec":{"model":"/none","prompt":"%s"}}' "$(cat "$tmp/prompt")" >"$tmp/spec" 2>/dev/null ||
        { printf '{"type":"generate","spec":{"model":"/none","prompt":"' && cat "$tmp/prompt" && printf '"}}'; } >"$tmp/spec"
    cat >"$tmp/specs.sh" <<END
end=\$((\$(date +%s) + $seconds)) n=0
while [ \$(date +%s) -lt \$end ]; do
    curl -s -o /dev/null --unix-socket "$tmp/a/ringd.sock" -H 'Content-Type: application/json' --data-binary "@$tmp/spec" http://localhost/v1/jobs
    n=\$((n + 1))
done
echo \$n
END
}

# --- who there is
ns_up 5
begin_logs 1 2 3 4
no_dad 1 2 3 4 5
segment 1 2 3 4 5
for node in 1 2 3 4; do
    HTTP=none
    [ $node != 1 ] || HTTP="[::]:8473"
    start_ringd $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
done
for node in 1 2 3 4; do
    enrol $node
done
await_all 'a ring of 4' 20 a b c d
ip netns exec "ring$$-switch" "$flood" record sw1-2 4 "$tmp/recorded" &
recorder=$!
spawned="$spawned $recorder"
mark a b c d
stop b TERM
await_all 'a ring of 3' 10 a c d
mark a b c d
start_ringd 2
await_all 'a ring of 4' 10 a b c d
wait $recorder
forget $recorder
mark a b c
stop d TERM
await_all 'a ring of 3' 20 a b c
: >"$tmp/long.steps"
RINGD_SOCKET=$tmp/a/ringd.sock timeout 36000 "$build/ringctl" --json train --model "$model" --data "$data" --adapter-out "$tmp/long" --iters $iters \
    --seed 5 --log "$tmp/long.steps" >"$tmp/long.train.log" 2>&1 </dev/null &
spawned="$spawned $!"
await_line "$tmp/long.steps" '"step":3[,}]' 60
mark a b c
address=$(ns_exec 1 ip -6 -o addr show dev lan1 scope link | grep -o 'fe80[0-9a-f:]*')%lan1

# --- a stranger
for kind in garbage truncated oversized forged question; do
    against "beacons: $kind" 5 "$flood" beacons $kind lan1 "$seconds"
done
against "beacons: of b, again" 5 "$flood" beacons repeated lan1 "$seconds" "$tmp/recorded"
against "beacons: nonsense as from b" 5 "$flood" beacons spoofed lan1 "$seconds" "$tmp/recorded"
for kind in garbage truncated oversized silent; do
    against "handshakes: $kind" 5 "$flood" shakes $kind "$address" "$seconds"
done
against "handshakes: begun again" 5 "$flood" shakes replay "$address" "$seconds" "$tmp/recorded"
against "HTTP: bodies without a token" 5 "$flood" http bodies "$address" "$seconds"
against "HTTP: requests without an end" 5 "$flood" http unfinished "$address" "$seconds"
# --- a member
for kind in messages large records frames deaf; do
    against "member: $kind" 4 "$member" "$tmp/d" "$address" "$seconds" $kind
done
# --- a user
specs
against "user: specs of 8 MB" 1 sh "$tmp/specs.sh"
alive a b c
