# SPDX-License-Identifier: MIT
#
# What every system test begins with: sourced as `. "$(dirname "$0")/lib/check.sh"`, the build folder in $1. Owns a temporary
# folder ($work), removed at the end. A test ends with status 0, with 1 after a sentence from `fail`, or with 77 from `skip`, whose
# sentence comes last. Every wait here is for an event (a line, the end of a process) and has a deadline.
set -u
case $1 in /*) build=$1 ;; *) build=$PWD/$1 ;; esac
ringctl=$build/ringctl
data=$PWD/tests/data
llama=$data/models/llama
cases=$data/cases
tables=$data/datasets/tables
work=$(mktemp -d)
LC_ALL=C
export LC_ALL
# Instrumented builds are slower by this factor; deadlines are stretched by it.
slow=${RINGD_TEST_SLOW:-1}

# Reports of sanitizers, wherever a process writes them, fail the test.
for sanitizer in ASAN UBSAN TSAN LSAN; do
    eval "export ${sanitizer}_OPTIONS=\"\${${sanitizer}_OPTIONS:-}:log_path=$work/sanitizer\""
done
[ ! -e tests/tsan.supp ] || TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$PWD/tests/tsan.supp

at_end() { :; } # a script that has more to clean up defines its own
finish() {
    status=$?
    trap - EXIT
    at_end
    for report in "$work"/sanitizer.*; do
        [ -e "$report" ] || continue
        head -n 60 "$report"
        status=1
    done
    rm -rf "$work"
    exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '%s\n' "-- $*"; }
fail() {
    printf 'FAILED: %s\n' "$*"
    exit 1
}
skip() {
    printf '%s\n' "$*"
    exit 77
}

# equal WHAT A B: two texts
equal() { [ "$2" = "$3" ] || fail "$1: \"$2\" is not \"$3\""; }
# same WHAT A B: two files, to the byte
same() { cmp "$2" "$3" || fail "$1: $2 and $3 differ"; }
# holds WHAT FILE PATTERN: a line of the file matches
holds() { grep -Eq -- "$3" "$2" || fail "$1: nothing like \"$3\" in: $(head -c 2000 "$2")"; }
# near WHAT A B DISTANCE
near() {
    jq -n --argjson a "$2" --argjson b "$3" --argjson d "$4" '($a - $b) | fabs <= $d' | grep -q true ||
        fail "$1: $2 is not within $4 of $3"
}
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
# lasted WHAT SINCE: says how long it was. A machine with other work is slow: what must be fast is measured by make bench.
lasted() { say "$1: $(($(milliseconds) - $2)) ms"; }
# limit SECONDS COMMAND...: the command, with a deadline
limit() {
    seconds=$(($1 * slow))
    shift
    timeout -k 5 "$seconds" "$@"
}
# await_line FILE PATTERN SECONDS [FIRST]: until the file has such a line, from line FIRST on
await_line() {
    limit "$3" tail -n "+${4:-1}" -F "$1" 2>/dev/null | grep -Eqm1 -- "$2" ||
        fail "no line like \"$2\" in $1 within $3 s; it ends with: $(tail -n 5 "$1")"
}
next_line() { echo $(($(wc -l <"$1") + 1)); }
# await_end PID SECONDS: until one of our children is gone; its status
await_end() {
    limit "$2" tail --pid="$1" -f /dev/null || fail "process $1 did not end within $2 s"
    wait "$1"
}

# A training log without what differs from run to run: every digit of what must not.
numbers() { jq -c 'del(.step_seconds, .tokens_per_second, .bubble)' "$1"; }
