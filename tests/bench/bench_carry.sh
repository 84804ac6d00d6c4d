#!/bin/sh
# How long the others of four nodes take to get the weights of their layers from the one that has a model, over cables of 1 Gbit/s,
# against what the cables allow; and how many bytes cross the fullest of them. A chain, then a ring. Needs root, for namespaces.
# usage: bench_carry.sh BUILD NAME MODEL
#
#     a = node 1 ══ cable1 ══ b = node 2 ══ cable2 ══ c = node 3 ══ cable3 ══ d = node 4 (══ cable4 ══ a)
#
# Node a has the model in a cache of Hugging Face, and nobody reaches a hub.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "$1") what=$2 from=$(realpath "$3")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
skip() {
    printf '%-38s skipped: %s\n' "a model to four nodes, $what" "$1"
    exit 0
}
command -v tc >/dev/null || skip "tc is not installed (iproute2)"
commit=0123456789abcdef0123456789abcdef01234567
mbit=1000

make_cache() {
    snapshot=$tmp/home/hub/models--test--big/snapshots/$commit
    mkdir -p "$tmp/home/hub/models--test--big/refs" "$tmp/home/hub/models--test--big/blobs" "$snapshot" "$tmp/nothing"
    printf %s $commit >"$tmp/home/hub/models--test--big/refs/main"
    for file in "$from"/*.json "$from"/*.safetensors share/tiny-llama/tokenizer.json; do
        blob=$(sha256sum <"$file" | cut -d ' ' -f 1)
        cp "$file" "$tmp/home/hub/models--test--big/blobs/$blob"
        ln -s "../../blobs/$blob" "$snapshot/$(basename "$file")"
    done
}
start_all() {
    for n in 1 2 3 4; do
        HF_HOME=$tmp/nothing HF_HUB_OFFLINE=1
        [ $n != 1 ] || HF_HOME=$tmp/home
        export HF_HOME HF_HUB_OFFLINE
        start_ringd $n
    done
}
sent() { # CABLE NODE: bytes that have left that end
    ns_exec "$2" cat "/sys/class/net/cable$1/statistics/tx_bytes"
}
crossed() { # of each cable, the sum of both directions
    for k in $(seq "$1"); do
        echo $(($(sent "$k" "$k") + $(sent "$k" $((k % 4 + 1)))))
    done
}

disk_of() { # NODE: bytes of weights that it has
    echo $(($(stat -c %b "$tmp/$1/models/test/big@$commit/model.safetensors") * 512))
}
# measure SHAPE CABLES: in a chain the first cable carries what all others get, in a ring one of two that of two nodes
measure() {
    begin_logs 1 2 3 4
    for n in 1 2 3 4; do
        rm -rf "${tmp:?}/$(name_of $n)/models"
    done
    mark a b c d
    start_all
    await_all "a $1 of 4:" 40 a b c d
    await_all 'cable on cable[0-9] to .*: [0-9]+ Mb/s out' 60 a b c d # it is measured with the cable's own bytes
    on a pull test/big >/dev/null || fail 'pull'
    mark a b c d
    crossed "$2" >"$tmp/before"
    start=$(milliseconds)
    on a generate --model test/big --ids 1 --max-tokens 1 >"$tmp/said" 2>&1 &
    job=$!
    await_all "is here, as far as a job needs it" 120 b c d
    took=$(($(milliseconds) - start))
    crossed "$2" >"$tmp/after"
    wait $job || fail "generate: $(cat "$tmp/said")"
    b=$(disk_of b) c=$(disk_of c) d=$(disk_of d) outline=$((4 << 20))
    bytes=$((b + c + d - 2 * outline))
    [ "$1" = chain ] || bytes=$((c + (b > d ? b : d) - outline))
    paste "$tmp/before" "$tmp/after" | awk -v took=$took -v bytes="$bytes" -v mbit=$mbit -v what="shares of a model, four nodes, $1, $what" '
        { n = $2 - $1; sum += n; if (n > most) most = n }
        END {
            bound = most * 8 / mbit / 1000
            printf "%-38s %9.0f %-9s %-22s %8.0f %-8s %7.1f%% %7s   <= 105 %%\n", what, took, "ms", "its fullest cable", bound, "ms", took / bound * 100, "-"
            least = bytes * 1514 / 1448 # packets of 1500 bytes have heads
            printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %7.1f%% %7s   <= 101 %%\n", "  bytes over that cable", most / 1e6, "MB", "shares behind it, packed", least / 1e6, "MB", most / least * 100, "-"
        }'
    for n in 1 2 3 4; do
        stop "$(name_of $n)" TERM
    done
}

ns_up 4
no_dad 1 2 3 4
make_cache
for n in 1 2 3; do
    cable $n $((n + 1)) ${mbit}mbit
done
begin_logs 1 2 3 4
for n in 1 2 3 4; do
    start_link $n
    start_ringd $n
    await_line "$tmp/$(name_of $n).log" 'API on' 20
    enrol $n
done
for n in 1 2 3 4; do
    stop "$(name_of $n)" TERM
done
measure chain 3
cable 4 1 ${mbit}mbit
measure ring 4
