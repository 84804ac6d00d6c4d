#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A stage process that was taken over stays in its cell: a ringd-stage that tries to leave it (lib/escapes.c) is refused every
# way, by root's daemon and by a user's. The same program without a cell finds most of the ways open, so they are ways. And a
# path that leads to what is the daemon's own is refused with a sentence.
. "$(dirname "$0")/lib/check.sh"
case $build in *address* | *thread*) skip "sanitizers need calls that a cell forbids" ;; esac
stage=$build/tests/system/lib/escapes
chmod 755 "$work"
cd "$work" || exit 1

# run COMMAND...: as the user
run() {
    # shellcheck disable=SC2086
    $as env HOME="$dir/home" XDG_CACHE_HOME="$dir/home/.cache" RINGD_SOCKET="$dir/state/ringd.sock" "$@"
}
start() { # [NAME=VALUE...]
    : >"$dir/log"
    # shellcheck disable=SC2086
    $as env HOME="$dir/home" XDG_CACHE_HOME="$dir/home/.cache" ESCAPES_DIR="$dir" "$@" \
        "$build/ringd" --state-dir "$dir/state" --name one --http-listen 127.0.0.1:0 --threads 1 --discover off \
        --listen "127.0.0.1:$port" --stage-binary "$stage" 2>>"$dir/log" </dev/null &
    daemon=$!
    await_line "$dir/log" 'API on' 20
}
stop() {
    kill "$daemon"
    await_end "$daemon" 20 2>/dev/null
    daemon=
}
at_end() { [ -z "${daemon:-}" ] || kill "$daemon"; }
train() { run "$ringctl" train --model "$dir/model" --data "$tables" --adapter-out "$dir/out" --iters 1 "$@"; }

# world USER: a node, and what is not for its stages
world() {
    user=$1
    dir=$work/$user
    as=
    [ "$user" = "$(id -un)" ] || as="setpriv --reuid=$user --regid=$(id -g "$user") --clear-groups"
    mkdir -p "$dir/state/results/other" "$dir/state/results/empty" "$dir/home/.ssh" "$dir/model/below" "$dir/out"
    cp "$llama"/*.json "$llama"/*.safetensors "$dir/model"
    for secret in home/.ssh/id model/.hidden.json model/key model/below/file.json state/results/other/adapter state/results/other/victim state/cluster.copy; do
        echo secret >"$dir/$secret"
    done
    ln -s ../state "$dir/out/away"
    ln -s ../home/.ssh/id "$dir/model/away"
    chown -R "$user" "$dir"
    port=0
    start
    run "$ringctl" init >/dev/null
    run "$ringctl" doctor >"$dir/doctor" 2>&1
    ! grep -q 'no Landlock\|does not filter' "$dir/doctor" || skip "this kernel cannot confine a stage: $(grep -m 1 'no Landlock\|does not filter' "$dir/doctor")"
    port=$(run "$ringctl" nodes --json | jq -r '.nodes[] | select(.self) | .address | ltrimstr("port ")')
    stop
    for secret in identity cluster http-token; do
        [ -e "$dir/state/$secret" ] || fail "the state directory has no $secret"
    done
}
# attempts NAME=VALUE...: what became of every way, in $dir/out/report
attempts() {
    start ESCAPES_PORT="$port" "$@"
    train >"$dir/said" 2>&1 && fail "a job that only tries to escape succeeds"
    holds "the job of escapes" "$dir/said" "that was all|ESCAPED|ended"
    stop
    [ -s "$dir/out/report" ] || fail "nothing was tried: $(cat "$dir/said" "$dir/log")"
}
# confined WHAT
confined() {
    # Where no control groups are mounted, as below a chroot, there is no place for one.
    [ -d /sys/fs/cgroup ] || sed -i '/^make_group refused ENOENT$/d' "$dir/out/report"
    grep -vE '^[a-z_]+ refused (EPERM|EACCES|ENOSYS|EXDEV)$' "$dir/out/report" && fail "$1: those ways are open"
    tried=$(wc -l <"$dir/out/report")
    [ "$tried" -ge 60 ] || fail "$1: only $tried ways were tried"
    say "$1: refused $tried of $tried ways"
}
# refused_path WHAT OPTION...
refused_path() {
    what=$1
    shift
    train "$@" >"$dir/said" 2>&1 && fail "$what: the job is not refused"
    holds "$what" "$dir/said" "leads to .*, which is (ringd's own|in no model)|lies in ringd's own folder"
    [ ! -e "$dir/out/report" ] || fail "$what: the stage went on"
}

users=$(id -un)
[ "$(id -u)" != 0 ] || ! run_as=$(id -un nobody 2>/dev/null) || users="$users $run_as"
for each in $users; do
    world "$each"
    attempts
    confined "stages of $each"

    rm "$dir/out/report"
    start
    # shellcheck disable=SC2015
    for path in identity http-token results; do
        refused_path "data in the state directory" --data "$dir/state/$path"
    done
    refused_path "a log over a key" --log "$dir/state/identity"
    refused_path "a result in the state directory" --adapter-out "$dir/state/new"
    refused_path "a result around the state directory" --adapter-out "$dir"
    ln -s ../state/identity "$dir/model/extra.json"
    refused_path "a model with a link to a key"
    ln -sf ../home/.ssh/id "$dir/model/extra.json"
    refused_path "a model with a link to another key"
    stop
    rm "$dir/model/extra.json"

    # A folder for a result that was there stays as it was; those that were not have not been made.
    [ ! -e "$dir/state/new" ] || fail "a folder was made in the state directory"
    [ ! -e "$dir/state/results/job-1" ] || fail "the folder of a job without a result stays"

    attempts ESCAPES_WITHOUT_CELL=1
    open=$(grep -c ESCAPED "$dir/out/report")
    [ "$open" -ge 30 ] || fail "without a cell only $open ways are open: $(grep -v ESCAPED "$dir/out/report")"
    say "without a cell, $open of $(wc -l <"$dir/out/report") ways are open to a stage of $each"
done
