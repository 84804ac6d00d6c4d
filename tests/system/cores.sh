#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Whoever gets a core of ringd, of ringd-keys or of a stage in the middle of a job finds no secret in it: nothing of the files
# that only their owner reads, and no key of a connection, as the keepers of such keys show them to this test.
# As root, for no other may look into these processes; needs gdb.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
at_end() { kill_ring; }
[ "$(id -u)" = 0 ] || skip "only root may make cores of these processes"
command -v gcore >/dev/null || skip "gcore is not installed: apt-get install gdb"
case $build in *address* | *thread*) skip "sanitizers keep copies of what is freed" ;; esac

node_options=""
start_ring
on 1 invite >/dev/null # a token that is alive
printf 'header = "Authorization: Bearer %s"\n' "$(cat "$work/n1/http-token")" >"$work/bearer"
long_job 1 training

# secrets NODE: what only it may know, each as hex digits. Of STATE/identity the seed, of STATE/cluster the two keys of each
# generation (after magic, key and certificate; PROTOCOL.md has the sizes), of STATE/tokens the handshake secret of each.
secrets() {
    hex() { od -An -v -tx1 -j "$2" -N "$3" "$1" | tr -d ' \n'; echo; }
    dir=$work/n$1
    hex "$dir/identity" 0 32
    generations=$(od -An -tu1 -j 236 -N 1 "$dir/cluster" | tr -d ' ')
    at=237
    while [ "$generations" -gt 0 ]; do
        hex "$dir/cluster" $((at + 2)) 32
        hex "$dir/cluster" $((at + 34)) 32
        at=$((at + 66)) generations=$((generations - 1))
    done
    [ ! -e "$dir/tokens" ] || hex "$dir/tokens" 10 32
    tr -d '\n' <"$dir/http-token" | od -An -v -tx1 | tr -d ' \n'
    echo
}
# search CORE WHOSE: half a key is as bad as a whole one
search() {
    { secrets 1; secrets 2; } | python3 -c '
import sys
core = open(sys.argv[1], "rb").read()
n = 0
for line in sys.stdin:
    secret = bytes.fromhex(line)
    n += 1
    for at in range(0, len(secret), 16):
        part = secret[at:at + 16]
        for form in (part, part.hex().encode()):
            if form in core:
                place = core.find(form)
                sys.exit(f"secret {n}, byte {at}, is in the core at {place:#x}, after {core[place - 60:place]}")
print(n, "secrets,", len(core) >> 10, "KiB of core")' "$1" || fail "a core of $2 has a secret"
}
for node in 1 2; do
    for process in "$(pid_of $node):ringd" "$(keys_of $node):ringd-keys" "$(stage_of $node):ringd-stage"; do
        gcore -o "$work/core" "${process%:*}" >"$work/gcore.said" 2>&1 || fail "gcore: $(tail -n 3 "$work/gcore.said")"
        say "${process#*:} of n$node"
        search "$work/core.${process%:*}" "${process#*:}"
        rm "$work/core.${process%:*}"
    done
done
