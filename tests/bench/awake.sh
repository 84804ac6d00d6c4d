# To be sourced: stay_awake keeps idle cores busy with threads that make way for everybody; sleep_again ends them.
# A core that is idle while others compute is, in a virtual machine, lent to somebody else: what sleeps or is throttled for some milliseconds
# was seen to come back after 1 to 180. And a core beside one that computes is nowhere as fast as alone.
# SPDX-License-Identifier: MIT
stay_awake() {
    awake=
    for _ in $(seq "$(nproc)"); do
        chrt --idle 0 sh -c 'while :; do :; done' &
        awake="$awake $!"
    done
}
sleep_again() {
    # shellcheck disable=SC2086 # processes are words
    [ -z "${awake:-}" ] || kill $awake
    awake=
}
