#!/bin/sh
# What a user does with the package, on three booted Debian 12 with real systemd, cabled in a ring: install, enrol, train,
# read the journal, reload, hang, reboot, pull a cable, upgrade, remove, purge. One line per thing seen.
# usage: story.sh BUILD
#
#     a = node 1 ═══ cable1 ═══ b = node 2 ═══ cable2 ═══ c = node 3 ═══ cable3 ═══ a
#
# Needs root, systemd-nspawn and debootstrap; mounts stay in a mount namespace of the test's own.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/boot/lib.sh
began=$(milliseconds)
state=/var/lib/ringd
model=/usr/share/ringd/tiny-llama
rows=$state/models/rows.jsonl

on() { # NAME ARG...: ringctl there, as a member of the group
    _at=$1
    shift
    as "$_at" alice ringctl "$@"
}
seconds() { # SINCE
    echo "$((($(milliseconds) - $1) / 100))" | sed 's/.$/.&/; s/^\./0./'
}
active() { # NAME UNIT...
    _at=$1
    shift
    in_node "$_at" systemctl is-active --quiet "$@"
}
shows() { # NAME UNIT PROPERTY
    in_node "$1" systemctl show -P "$3" "$2"
}
ring_of_3() {
    for _n in a b c; do
        on "$_n" status 2>/dev/null | grep -q 'ring of 3' || return 1
    done
}
no_failures() {
    for _n in "$@"; do
        _failed=$(in_node "$_n" systemctl --failed --no-legend --plain)
        [ -z "$_failed" ] || {
            in_node "$_n" journalctl -b -p warning -n 15 --no-pager >"$tmp/journal-$_n.log"
            fail "$_n: $_failed"
        }
    done
}
job() { # NAME ID FIELD
    on "$1" job "$2" --json | jq -r ".$3"
}
ended() {
    case $(job "$1" "$2" state) in done | failed | cancelled) ;; *) return 1 ;; esac
}
stepped() { # NAME ID STEPS: has it done so many?
    [ "$(job "$1" "$2" step)" -ge "$3" ] 2>/dev/null
}
submit() { # NAME RESULT STEPS [OPTION...]: its number in $id
    _at=$1 _result=$2 _steps=$3
    shift 3
    id=$(on "$_at" train --model $model --data $rows --adapter-out "$state/results/$_result" --iters "$_steps" --batch-size 3 \
        --seq-len 64 --lr 1e-2 --detach --json "$@" 2>"$tmp/submit.log" | jq -r .id)
    case $id in '' | null | *[!0-9]*) fail "$_at takes no job" ;; esac
}

base_root "$deb"
ns_up 3
no_dad 1 2 3
cable 1 2
cable 2 3
cable 3 1
since=$(milliseconds)
boot 1 2 3
ok "three Debian $(in_node a cat /etc/debian_version) with systemd $(in_node a systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p') are up after $(seconds $since) s"

# --- install
since=$(milliseconds)
for node in a b c; do
    cp "$deb" "$(root_of $node)/root/ringd.deb"
    in_node $node dpkg -i /root/ringd.deb >"$tmp/install-$node.log" 2>&1 || fail "$node: the package cannot be installed"
    active $node ringd.service ringd.socket ringd-link.service || {
        in_node $node journalctl -b -u 'ringd*' -n 30 --no-pager >"$tmp/journal-$node.log"
        fail "$node: installed, but not everything of it runs"
    }
    in_node $node useradd -m -G ringd alice
    in_node $node useradd -m bob
    rm "$tmp/install-$node.log"
done
no_failures a b c
ok "installed on each in $(seconds $since) s: ringd.service, ringd.socket and ringd-link.service run, no unit has failed"
case $(shows a ringd StatusText) in *"a is alone"*) ;; *) fail "systemctl status says \"$(shows a ringd StatusText)\"" ;; esac
ok "systemctl status says: $(shows a ringd StatusText)"

pid=$(shows a ringd MainPID)
[ "$(in_node a stat -c %U "/proc/$pid")" = ringd ] || fail "ringd does not run as the user ringd"
for set in CapEff CapPrm CapBnd CapAmb; do
    [ "$(in_node a sed -n "s/^$set:\t0*$/none/p" "/proc/$pid/status")" = none ] || fail "ringd holds a capability: $(in_node a grep $set "/proc/$pid/status")"
done
link=$(shows a ringd-link MainPID)
[ "$(in_node a sed -n 's/^CapBnd:\t//p' "/proc/$link/status")" = 0000000000001000 ] || fail "ringd-link is bounded by more than CAP_NET_ADMIN"
ok "ringd runs as ringd without any capability, ringd-link as a user of its own, $(in_node a stat -c %u "/proc/$link"), with CAP_NET_ADMIN alone"

[ "$(in_node a stat -c %a:%U:%G /run/ringd/ringd.sock)" = 660:ringd:ringd ] || fail "/run/ringd/ringd.sock is $(in_node a stat -c %a:%U:%G /run/ringd/ringd.sock)"
on a status >"$tmp/status.log" 2>&1 || fail "a member of the group ringd cannot use ringctl"
as a bob ringctl status >"$tmp/bob.log" 2>&1 && fail "somebody outside of the group ringd can use ringctl"
ok "alice of the group ringd may use ringctl; bob is told: $(tail -n 1 "$tmp/bob.log")"

# --- enrol
for node in a b c; do
    printf 'threads = 1\n' | in_node $node tee -a /etc/ringd/ringd.conf >/dev/null
done
on a init >/dev/null || fail "a cannot make a cluster"
for node in b c; do
    on $node join "$(on a invite)" >"$tmp/join.log" 2>&1 || fail "$node cannot join"
done
wait_for $((30 * slow)) ring_of_3 || fail "no ring of three: $(on a status)"
ok "enrolled with two tokens: $(shows a ringd StatusText | head -n 1)"
has_subnet() {
    for _k in 1 2 3; do
        read -r _kind _a _b _rest <"$tmp/cable$_k"
        for _end in "$_a" "$_b"; do
            in_node "$(name_of "$_end")" ip -6 -o addr show dev "cable$_k" | grep -q ' inet6 fd.*/127 ' || return 1
        done
    done
}
wait_for $((30 * slow)) has_subnet || fail "ringd-link gave no subnet to every cable"
ok "every cable has a subnet: $(in_node a ip -6 -o addr show dev cable1 | sed -n 's/.*inet6 \(fd[^ ]*\).*/\1/p')"

# --- train
find /usr/share/common-licenses -type f -exec cat {} + >"$tmp/licences"
LC_ALL=C tr -cd '\n\040-\176' <"$tmp/licences" | LC_ALL=C sed 's/[\\"]/\\&/g; s/^ *//' |
    awk 'length > 40 && n++ < 300 { printf "{\"text\": \"%s\"}\n", $0 }' >"$tmp/rows.jsonl"
for node in a b c; do
    cp "$tmp/rows.jsonl" "$(root_of $node)/home/alice/rows.jsonl"
    in_node $node chown alice: /home/alice/rows.jsonl
    as $node alice cp /home/alice/rows.jsonl $rows || fail "alice cannot put data into $state/models"
done
since=$(milliseconds)
submit a first 30
wait_for $((90 * slow)) ended a "$id" || fail "job $id is $(job a "$id" state) after 90 s"
[ "$(job a "$id" state)" = done ] || fail "job $id: $(job a "$id" error)"
as a alice test -r $state/results/first/adapter_model.safetensors || fail "alice cannot read the adapter that was trained"
ok "job $id has trained an adapter on three nodes in $(seconds $since) s; alice can read it in $state/results"
first=$id
on a generate --model $model --adapter $state/results/first --max-tokens 8 "The terms of" >"$tmp/said" 2>"$tmp/generate.log" || fail "no text came from the ring"
ok "the ring goes on from \"The terms of\" with it: $(tr '\n' ' ' <"$tmp/said" | head -c 60)"

for node in a b c; do
    in_node $node journalctl -q --no-pager RINGD_JOB="$first" >"$tmp/fields-$node" 2>&1
    grep -q 'rank . of 3' "$tmp/fields-$node" || fail "$node: journalctl RINGD_JOB=$first does not tell its rank"
done
ok "journalctl RINGD_JOB=$first has $(wc -l <"$tmp/fields-a"), $(wc -l <"$tmp/fields-b") and $(wc -l <"$tmp/fields-c") lines on the three nodes"

# --- reload
in_node b systemctl reload ringd >"$tmp/reload.log" 2>&1 || fail "b: systemctl reload fails"
in_node b sh -c 'cp /etc/ringd/ringd.conf /root/good && echo "dead-after = soon" >>/etc/ringd/ringd.conf'
in_node b systemctl reload ringd >"$tmp/reload.log" 2>&1 && fail "b: a wrong ringd.conf is accepted"
active b ringd || fail "b: ringd ended because of a wrong ringd.conf"
in_node b journalctl -q --no-pager -u ringd | grep -q 'dead-after' || fail "b: the journal does not name what is wrong in ringd.conf"
ok "systemctl reload takes a good ringd.conf and refuses a wrong one: $(in_node b journalctl -q --no-pager -o cat -u ringd | grep 'dead-after' | tail -n 1)"
in_node b cp /root/good /etc/ringd/ringd.conf
in_node b systemctl reload ringd || fail "b: reload fails after the mistake is mended"

# --- a daemon that hangs
in_node c mkdir -p /run/systemd/system/ringd.service.d
printf '[Service]\nWatchdogSec=3\n' | in_node c tee /run/systemd/system/ringd.service.d/test.conf >/dev/null
in_node c systemctl daemon-reload
in_node c systemctl restart ringd || fail "c: restart fails"
pid=$(shows c ringd MainPID)
since=$(milliseconds)
in_node c kill -STOP "$pid"
other_pid() {
    _is=$(shows c ringd MainPID)
    [ "$_is" != 0 ] && [ "$_is" != "$pid" ] && active c ringd
}
wait_for $((30 * slow)) other_pid || fail "c: nobody ended the daemon that hangs"
took=$(seconds $since)
[ "$(shows c ringd NRestarts)" = 1 ] || fail "c: $(shows c ringd NRestarts) restarts instead of one"
wait_for $((30 * slow)) ring_of_3 || fail "c does not come back into the ring after its daemon hung"
ok "a stopped daemon was ended by the watchdog and replaced after $took s (WatchdogSec=3); the ring is whole again"
in_node c rm -r /run/systemd/system/ringd.service.d
in_node c systemctl daemon-reload

# --- reboot
since=$(milliseconds)
reboot 2
no_dad 2
wait_for $((60 * slow)) ring_of_3 || fail "b has rebooted, and there is no ring: $(on a status)"
no_failures b
ok "b has rebooted, and is in the ring again $(seconds $since) s after"

# --- a cable out and in, under a job
submit a cables 400
wait_for $((60 * slow)) stepped a "$id" 3 || fail "job $id does not begin"
cut 2
wait_for $((20 * slow)) sh -c "! ip -n $(ns_name 2) link show cable2 2>/dev/null | grep -q ." || fail "the cable is still there"
at=$(job a "$id" step)
wait_for $((60 * slow)) stepped a "$id" $((at + 5)) || fail "job $id: $(job a "$id" error) after the cable was pulled"
ok "the cable between b and c is out, job $id goes on: step $at, then $(job a "$id" step)"
plug 2
wait_for $((60 * slow)) ring_of_3 || fail "the ring is not whole with the cable back in"
ok "the cable is back in, and so is the ring"
on a cancel "$id" >/dev/null
wait_for $((30 * slow)) ended a "$id" || fail "job $id cannot be cancelled"

# --- upgrade under a job
before=$(on b status --json | jq -r .node.id)
mkdir "$tmp/next"
dpkg-deb -R "$deb" "$tmp/next"
version=$(dpkg-deb -f "$deb" Version)+next
sed -i "s/^Version: .*/Version: $version/" "$tmp/next/DEBIAN/control"
dpkg-deb --root-owner-group -b "$tmp/next" "$tmp/next.deb" >/dev/null
submit a upgrade 4000 --save-every 5
wait_for $((60 * slow)) stepped a "$id" 10 || fail "job $id does not begin"
pid=$(shows b ringd MainPID)
since=$(milliseconds)
cp "$tmp/next.deb" "$(root_of b)/root/next.deb"
in_node b dpkg -i /root/next.deb >"$tmp/upgrade-b.log" 2>&1 || fail "b: the upgrade fails"
active b ringd.service ringd.socket ringd-link.service || fail "b: not everything runs after the upgrade"
[ "$(shows b ringd MainPID)" != "$pid" ] || fail "b: the daemon is still the old one"
no_failures b
[ "$(on b status --json | jq -r .node.id)" = "$before" ] || fail "b: another identity after the upgrade"
wait_for $((60 * slow)) ring_of_3 || fail "no ring after the upgrade of b"
ok "b is upgraded to $version in $(seconds $since) s, is who it was, and in the ring"
settled() {
    ended a "$id" || stepped a "$id" $((at + 5))
}
at=$(job a "$id" step)
wait_for $((60 * slow)) settled || fail "job $id neither goes on nor ends after the upgrade of b: $(on a job "$id")"
case $(job a "$id" state) in
failed)
    why=$(job a "$id" error)
    case $why in *b*) ok "the job ended on all nodes with the cause: $why" ;; *) fail "job $id ended with \"$why\"" ;; esac
    submit a upgrade $(($(job a "$id" step) + 20)) --save-every 5 --resume
    wait_for $((60 * slow)) ended a "$id" || fail "job $id, which resumes, does not end"
    [ "$(job a "$id" state)" = done ] || fail "job $id: $(job a "$id" error)"
    ok "job $id went on from what was saved, with --resume"
    ;;
*)
    ok "the job went on by itself: step $at, then $(job a "$id" step)"
    on a cancel "$id" >/dev/null
    wait_for $((30 * slow)) ended a "$id"
    ;;
esac
cp "$tmp/next.deb" "$(root_of a)/root/next.deb"
in_node a dpkg -i /root/next.deb >"$tmp/upgrade-a.log" 2>&1 || fail "a: the upgrade fails"
[ "$(job a "$first" state)" = done ] || fail "a: job $first is not in the history after the upgrade"
in_node a grep -q '^threads = 1' /etc/ringd/ringd.conf || fail "a: the upgrade has changed ringd.conf"
wait_for $((60 * slow)) ring_of_3 || fail "no ring after the upgrade of a"
ok "a is upgraded, its jobs and its ringd.conf are what they were"

# --- remove, and purge
in_node c dpkg -r ringd >"$tmp/remove.log" 2>&1 || fail "c: the package cannot be removed"
in_node c sh -c 'pgrep -u ringd' >/dev/null && fail "c: something of ringd still runs after it was removed"
in_node c test -e $state/identity || fail "c: its identity went with the package"
in_node c dpkg -i /root/ringd.deb >"$tmp/install-c.log" 2>&1 || fail "c: it cannot be installed again"
wait_for $((60 * slow)) ring_of_3 || fail "c: installed again, and not in the ring"
ok "removed on c: nothing of it runs; installed again: who it was, and in the ring"
in_node a dpkg -P ringd >"$tmp/purge.log" 2>&1 || fail "a: the package cannot be purged"
in_node c dpkg -P ringd >>"$tmp/purge.log" 2>&1 || fail "c: the package cannot be purged"
for node in a c; do
    left=$(in_node $node sh -c "ls -d /etc/ringd /var/cache/ringd /run/ringd-link /etc/apparmor.d/usr.sbin.ringd* $state/identity $state/ringd.db /etc/systemd/system/*/ringd* 2>/dev/null")
    [ -z "$left" ] || fail "$node: purged, and there still is $left"
    no_failures $node
done
as a root test -e $state/results/first/adapter_model.safetensors || fail "a: purging took what alice had trained"
ok "purged on a and c: configuration, identity and history are gone; what was trained is still there"
ok "all of it in $(seconds $began) s"
