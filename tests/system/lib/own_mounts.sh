# SPDX-License-Identifier: MIT
#
# A mount namespace of the test's own, so that nothing stays mounted: sourced first, as `. "$(dirname "$0")/lib/own_mounts.sh"`.
# The test begins again there; where mounting is not allowed, it ends as skipped.
if [ -z "${RINGD_TEST_MOUNTS:-}" ]; then
    if unshare -m true 2>/dev/null; then
        RINGD_TEST_MOUNTS=own exec unshare -m sh "$0" "$@"
    fi
    echo "mounting needs root"
    exit 77
fi
