#!/bin/sh
# Instructions of the hot kernels, counted by callgrind: they repeat exactly on every machine, where times do not. Each figure is per
# product of two numbers (of conversions: per number), and stands beside the one kept in tests/bench/instructions; with `keep` that
# file is written anew. Valgrind knows AVX2 and nothing newer, so that is what is counted, in what this compiler makes of it.
# usage: tests/bench/callgrind.sh BUILD [keep]
# SPDX-License-Identifier: MIT
set -eu
build=$1
kept=$(dirname "$0")/instructions
program=$build/tests/bench/bench_kernels
times=200
if ! command -v valgrind >/dev/null || [ "$(uname -m)" != x86_64 ]; then
    echo "instructions of the kernels            skipped: valgrind on x86-64 counts them"
    exit 0
fi
new=$(mktemp)
trap 'rm -f "$new"' EXIT

counted() { # NAME TIMES
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 >/dev/null | sed -n 's/.*Collected : //p'
}

names=$("$program" 2>&1 | sed -n 's/.*NAME one of//p')
if [ -z "$names" ]; then
    echo "$program is not there: make bench builds it" >&2
    exit 1
fi
for name in $names; do
    each=$(valgrind -q --tool=none "$program" "$name" 1) # of the kernels that are counted, not of this CPU's
    once=$(counted "$name" "$times")
    twice=$(counted "$name" $((2 * times)))
    was=$(awk -v name="$name" '$1 == name {print $2}' "$kept" 2>/dev/null) || was=
    awk -v name="$name" -v n="$((twice - once))" -v of="$((times * each))" -v was="${was:-0}" -v new="$new" 'BEGIN {
        now = n / of
        printf "%s %.4f\n", name, now >>new
        printf "instructions, %-24s %9.4f each", name, now
        if (was > 0) printf "      kept %.4f   %6.1f %%   %s", was, 100 * now / was, (now > 1.02 * was ? "MORE" : "ok")
        printf "\n"
    }'
done
[ "${2:-}" != keep ] || cp "$new" "$kept"
