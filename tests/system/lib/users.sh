# SPDX-License-Identifier: MIT
#
# A daemon of a user of its own, and alice, who keeps her files to herself and is in the daemon's group, as the package sets it up.
# Sourced after check.sh and ring.sh; skips without root, who can become other users. Nodes are started with start_other.
[ "$(id -u)" = 0 ] || skip "other users need root"
daemon_uid=61001 alice_uid=61002
programs=$work/programs home=$work/alice
chmod 711 "$work"
mkdir -m 755 "$programs" "$work/daemon"
cp "$build/ringctl" "$build/ringd" "$build"/ringd-[a-z]* "$programs"
chown $daemon_uid:$daemon_uid "$work/daemon"
become() { # UID COMMAND...
    who=$1
    shift
    limit 60 setpriv --reuid "$who" --regid "$who" --groups $daemon_uid "$@"
}
at_end() {
    for node in 1 2; do
        [ -e "$work/n$node/pid" ] && kill "$(pid_of $node)" 2>/dev/null
    done
    wait
}
# Daemon N of a user that is nobody else's.
start_other() {
    mkdir -p "$work/n$1"
    chown $daemon_uid:$daemon_uid "$work/n$1"
    build=$programs start_node "$1" env HOME="$work/daemon" setpriv --reuid $daemon_uid --regid $daemon_uid --clear-groups
}
# ringctl as alice, who keeps her files to herself
alice() { (umask 077 && cd "$home" && become $alice_uid env HOME="$home" RINGD_SOCKET="$(sock_of 1)" "$programs/ringctl" "$@"); }
well() { alice "$@" >"$work/out" 2>"$work/err" || fail "$*: $(cat "$work/err")"; }

mkdir -m 700 "$home"
cp -r share/tiny-llama "$home/model"
awk 'BEGIN { for (i = 0; i < 40; i++) printf "{\"text\": \"row %d of the rows that are here\"}\n", i }' >"$home/rows.jsonl"
mkdir "$home/set"
head -n 30 "$home/rows.jsonl" >"$home/set/train.jsonl"
tail -n 10 "$home/rows.jsonl" >"$home/set/valid.jsonl"
chown -R $alice_uid:$alice_uid "$home"
chmod -R go= "$home"
