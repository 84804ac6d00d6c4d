#!/bin/sh
# The programs carry the guards that the Makefile asks for: addresses at random, tables of the linker read-only, checked copies,
# and on x86-64 marked targets of jumps. usage: tests/system/hardened.sh BUILD
# SPDX-License-Identifier: MIT
set -eu
build=$1
case $build in *address* | *thread*) echo "sanitizers replace these guards"; exit 77 ;; esac
failed=0
has() { # PROGRAM WHAT PATTERN, in what readelf said
    printf '%s\n' "$said" | grep -Eq "$3" || { echo "$1 lacks $2"; failed=1; }
}
for program in ringd ringd-keys ringd-stage ringd-link ringctl; do
    said=$(readelf -Wdhln --dyn-syms "$build/$program")
    has $program 'random addresses (PIE)' 'Type: +DYN'
    has $program 'tables that are read-only after the start (RELRO)' 'GNU_RELRO'
    has $program 'all symbols bound at the start (BIND_NOW)' 'BIND_NOW'
    has $program 'checked copies (_FORTIFY_SOURCE)' '_chk@'
    has $program 'a guarded stack' '__stack_chk_fail'
    printf '%s\n' "$said" | grep -Eq 'GNU_STACK.* RWE ' && { echo "$program has a stack that can be executed"; failed=1; }
    case $(uname -m) in
    x86_64) objdump -d --no-show-raw-insn --disassemble=main "$build/$program" | grep -q endbr64 ||
        { echo "$program lacks marked targets of jumps (-fcf-protection)"; failed=1; } ;;
    esac
done
exit $failed
