# SPDX-License-Identifier: MIT
#
# Programs for arm64 as files that a kernel of x86-64 starts, whether it knows of qemu (binfmt) or not: sourced by the tests beside it.

# wrap FOLDER BUILD-FOR-ARM64 EMULATOR: a script for each program, in a new folder
wrap() {
    mkdir "$1"
    for program in ringd ringd-keys ringd-fetch ringd-stage tests/bench/free; do
        printf '#!/bin/sh\nexec "%s" -L "%s" "%s/%s" "$@"\n' "$(command -v "$3")" "$QEMU_LD_PREFIX" "$(realpath "$2")" "$program" >"$1/${program##*/}"
        chmod +x "$1/${program##*/}"
    done
}
