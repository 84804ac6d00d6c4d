#!/bin/sh
# SPDX-License-Identifier: MIT
#
# sh tests/bench/bench_shares.sh BUILD RATE...: how long it takes until three nodes that lack a model have generated with it, each with its
# layers from a hub that sends RATE bytes a second. Against what the line takes for all of the model.
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
shift
. tests/system/lib/layers.sh

generate() {
    RINGD_SOCKET=$(sock_of 1) limit 600 "$ringctl" --json generate --model test/tiny --max-tokens 12 --ids 1,2 >/dev/null 2>"$work/err" ||
        fail "generate: $(cat "$work/err")"
}
start_hub
start_ring
for rate; do
    echo "$rate" >"$hub/rate"
    from=$(next_line "$work/requests")
    begun=$(milliseconds)
    generate
    took=$(($(milliseconds) - begun)) alone=$((weights * 1000 / rate))
    begun=$(milliseconds)
    generate
    again=$(($(milliseconds) - begun))
    awk -v rate="$rate" -v took=$took -v alone=$alone -v again=$again -v sent="$(weights_sent "$from")" -v weights="$weights" 'BEGIN {
        printf "%-38s %9.0f %-9s %-22s %8.0f %-8s %7.1f%% %7s   <= 115 %%\n", "first token, a hub of " rate / 1e6 " MB/s", took, "ms", "the line alone", alone, "ms", took / alone * 100, "-"
        printf "%-38s %9.1f %-9s %-22s %8.1f %-8s %7.1f%% %7s   <= 101 %%\n", "  bytes of weights that left the hub", sent / 1e6, "MB", "the model", weights / 1e6, "MB", sent / weights * 100, "-"
        printf "%-38s %9.0f %-9s\n", "  the same once the layers are here", again, "ms"
    }'
    forget_all
done
