#!/bin/sh
# A stage that was taken over stays in its cell in the service too, where systemd has already taken from ringd what a cell takes
# with: on a booted Debian 12 the escapes of tests/system/lib/escapes.c are tried by a stage of the service ringd, and refused.
# A job of the usual stage is done there, and the daemon knows how much memory it has. usage: cell.sh BUILD
#
# Needs root, systemd-nspawn and debootstrap; mounts stay in a mount namespace of the test's own.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/boot/lib.sh
escapes=$build/tests/system/lib/escapes
[ -x "$escapes" ] || skip "there is no $escapes: make test-programs makes it"
state=/var/lib/ringd
model=/usr/share/ringd/tiny-llama

base_root "$deb"
ns_up 1
boot 1
cp "$deb" "$(root_of a)/root/ringd.deb"
in_node a dpkg -i /root/ringd.deb >"$tmp/install.log" 2>&1 || fail "the package cannot be installed"
in_node a ringctl init >/dev/null || fail "a cannot make a cluster"
printf '{"text": "a row of text"}\n{"text": "and another one"}\n' | in_node a tee $state/models/rows.jsonl >/dev/null
train() { # RESULT
    in_node a ringctl train --model $model --data $state/models/rows.jsonl --adapter-out "$state/results/$1" --iters 2 >"$tmp/train.log" 2>&1
}
train first || fail "a job of the usual stage: $(cat "$tmp/train.log")"
ok "a job of the usual stage is done in its cell"

# What is not for stages, where escapes.c looks for it.
in_node a sh -ec '
    mkdir -p /var/lib/escapes/home/.ssh /var/lib/escapes/model/below '$state'/results/other '$state'/results/empty '$state'/results/taken
    cp '$model'/config.json '$model'/*.safetensors /var/lib/escapes/model
    ln -s '$state' /var/lib/escapes/state
    for secret in home/.ssh/id model/.hidden.json model/key model/below/file.json state/results/other/adapter state/results/other/victim state/cluster.copy; do
        echo secret >/var/lib/escapes/$secret
    done
    ln -s '$state' '$state'/results/taken/away
    ln -s ../home/.ssh/id /var/lib/escapes/model/away
    chown -R ringd: /var/lib/escapes '$state'
    mkdir -p /etc/systemd/system/ringd.service.d
    printf "[Service]\nEnvironment=ESCAPES_DIR=/var/lib/escapes ESCAPES_PORT=17464\n" >/etc/systemd/system/ringd.service.d/escapes.conf
    echo "stage-binary = /usr/libexec/ringd/escapes" >>/etc/ringd/ringd.conf'
cp "$escapes" "$(root_of a)/usr/libexec/ringd/escapes"
in_node a systemctl daemon-reload
in_node a systemctl restart ringd || fail "ringd does not start again"
train taken && fail "a job that only tries to escape succeeds"
report=$(root_of a)$state/results/taken/report
[ -s "$report" ] || fail "nothing was tried: $(cat "$tmp/train.log")"
# The service's file system is read-only in most places, and its /proc hides what a process may not look into.
grep -vE '^([a-z_]+ refused (EPERM|EACCES|ENOSYS|EXDEV|EROFS)|(read|list)_daemon_[a-z]+ refused ENOENT)$' "$report" && fail "those ways are open"
tried=$(wc -l <"$report")
[ "$tried" -ge 60 ] || fail "only $tried ways were tried"
ok "in the service, refused $tried of $tried ways"
