#!/bin/sh
# The units are what systemd understands, expose the machine no more than promised, and say of each protection they leave
# out why. The default ringd.conf names every option and is accepted. usage: units.sh BUILD
# SPDX-License-Identifier: MIT
set -u
build=$1
cd "$(dirname "$0")/../.." || exit 2
case $build in /*) ;; *) build=$PWD/$build ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
wrong() {
    echo "$*"
    failed=1
}

systemd/make-conf "$build" >"$work/ringd.conf" || wrong "systemd/make-conf failed"
keys=$(sed -n 's/^#\([a-z0-9-]*\) = .*/\1/p' "$work/ringd.conf" | sort)
options=$("$build/ringd" --help | sed -nE 's/^  (    |-., )--([a-z0-9-]+).*/\2/p' | grep -vx config | sort)
[ "$keys" = "$options" ] || wrong "the default ringd.conf has other keys than ringd has options"
grep -qv '^#\|^$' "$work/ringd.conf" && wrong "the default ringd.conf sets something"
awk 'length > 199 { exit 1 }' "$work/ringd.conf" || wrong "the default ringd.conf has a line that ringd refuses for its length"
# Every default, said outright, is one that ringd takes: it gets as far as the folder that is not there.
sed -n 's/^#\([a-z0-9-]* = [^A-Z]*\)$/\1/p' "$work/ringd.conf" | sed '/^\(socket\|state-dir\|listen\|http-listen\|link-socket\) /d' >"$work/outright"
[ "$(wc -l <"$work/outright")" -gt 3 ] || wrong "the default ringd.conf shows no defaults"
"$build/ringd" --config "$work/outright" --state-dir "$work/none/none" >"$work/said" 2>&1
[ $? != 2 ] || wrong "ringd refuses its own defaults: $(tail -n 1 "$work/said")"

# What `make deps` installs to build with, the package asks for too.
for package in $(sed -n '/^BUILD_DEPS *:=/,/[^\\]$/p' Makefile | grep -oE 'lib[a-z0-9.-]+'); do
    case $package in libc6-dev | libcmocka-dev) continue ;; esac
    grep -q "[ ]$package,\$" systemd/debian/control || wrong "systemd/debian/control does not ask for $package to build with"
done

# Every message with a number is explained, and nothing is that has none.
sed -n 's/^#define LOG_ID_[A-Z_]* "\([0-9a-f]*\)"$/\1/p' daemon/ringd/log.h | sort >"$work/numbers"
sed -n 's/^-- //p' systemd/ringd.catalog | sort >"$work/explained"
[ "$(wc -l <"$work/numbers")" -ge 3 ] && cmp -s "$work/numbers" "$work/explained" || wrong "systemd/ringd.catalog explains other messages than daemon/ringd/log.h numbers"

if ! command -v systemd-analyze >/dev/null; then
    [ $failed = 0 ] || exit 1
    echo "systemd-analyze is not here (package systemd); the units were not examined"
    exit 77
fi
for unit in ringd ringd-link; do
    # What systemd-analyze looks up has to be there; the paths themselves are the installer's.
    sed "s|@SBINDIR@|$build|; s|@BINDIR@|$build|" systemd/$unit.service.in >"$work/$unit.service"
done
cp systemd/ringd.socket "$work"
systemd-analyze verify --man=no "$work/ringd.service" "$work/ringd-link.service" "$work/ringd.socket" >"$work/said" 2>&1
grep -F "$work" "$work/said" | grep -v 'is not executable' >"$work/complaints" # a build folder others may not enter
[ ! -s "$work/complaints" ] || wrong "$(cat "$work/complaints")"

exposure() { # UNIT MOST
    systemd-analyze security --offline=yes --no-pager "$work/$1.service" >"$work/$1.said" 2>&1 ||
        wrong "$1.service: systemd-analyze: $(tail -n 1 "$work/$1.said")"
    is=$(sed -n 's/.*exposure level for .*: \([0-9.]*\) .*/\1/p' "$work/$1.said")
    echo "$1.service: exposure ${is:-unknown}, at most $2 allowed"
    awk "BEGIN { exit !(\"$is\" != \"\" && \"$is\" + 0 <= $2) }" || wrong "$1.service is exposed more than promised:
$(grep -v '✓' "$work/$1.said")"
}
exposure ringd 1.2
exposure ringd-link 1.1
# A stage runs in a group below ringd's, with the limits of its service and, before it parses anything, those of its cell. What the cell
# refuses is said here in systemd's words; tests/boot/cell.sh tries it. The system calls are those that both let through. Other things
# that a cell takes have no such word: which files it may open, and that its memory is bounded.
calls=$(sed -nE 's/.*(SCMP_SYS|ONE|TWO)\(([a-z0-9_]+)[,)].*/\2/p' daemon/stage/cell/cell_calls.c | grep -vx call | sort -u | tr '\n' ' ')
case $calls in *' read '*) ;; *) wrong "the system calls of a stage are not found in cell_calls.c" ;; esac
case " $calls" in *' socket '* | *' connect '* | *' bind '*) wrong "a stage may make sockets: here it says that it may not" ;; esac
{
    sed '/^\[Install\]/,$d' "$work/ringd.service"
    printf 'SystemCallFilter=\nSystemCallFilter=%s\nSystemCallFilter=~@privileged @resources\n' "$calls"
    printf 'RestrictAddressFamilies=\nRestrictAddressFamilies=none\n' # its sockets are given to it
    printf 'Delegate=no\n'                                           # it writes nothing below /sys
    printf 'ProtectHome=tmpfs\n'                                     # there it sees the job's own files
} >"$work/ringd-stage.service"
exposure ringd-stage 0.8

# What is left out is explained in the unit, or is what the unit is for.
explained() { # UNIT SETTING...
    unit=$1
    shift
    for setting; do
        grep -q "^$setting=.*\(yes\|strict\|=pid\|any\)$" "$work/$unit.service" || grep -q "^# .*$setting=" "$work/$unit.service" ||
            wrong "$unit.service neither sets $setting= nor says why not"
    done
}
for unit in ringd ringd-link; do
    explained $unit NoNewPrivileges ProtectSystem PrivateTmp PrivateDevices ProtectClock ProtectControlGroups ProtectHostname \
        ProtectKernelLogs ProtectKernelModules ProtectKernelTunables PrivateUsers PrivateNetwork RestrictNamespaces \
        RestrictRealtime RestrictSUIDSGID LockPersonality MemoryDenyWriteExecute RemoveIPC RootDirectory IPAddressDeny
    grep -q "^# .*ProcSubset\|^ProcSubset=pid" "$work/$unit.service" || wrong "$unit.service says nothing of ProcSubset="
done
exit $failed
