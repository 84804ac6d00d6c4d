#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ringctl as people meet it: colours for terminals alone, tables no wider than these, ^C that asks, jobs that outlive the terminal,
# and completion. lib/pty.c is the terminal with somebody at it.
. "$(dirname "$0")/lib/check.sh"
. "$(dirname "$0")/lib/ring.sh"
pty=$build/tests/system/lib/pty
[ -x "$pty" ] || skip "$pty is missing: make test-programs"
TERM=xterm
export TERM
unset NO_COLOR CLICOLOR_FORCE RINGCTL_LOCAL
start_ring
cd "$work" || exit 1
RINGD_SOCKET=$(sock_of 1)
export RINGD_SOCKET
escape=$(printf '\033')
# at SIZE STEP... -- ARGS...: ringctl on a terminal; what is seen in the file screen, its status as our own
at() {
    limit 100 "$pty" "$@" >screen
}

# Colours: on a terminal, unless they are unwanted; elsewhere only if asked for.
at 100x30 -- "$ringctl" nodes || fail "nodes on a terminal"
grep -q "$escape\[32mup" screen || fail "no colours on a terminal: $(cat screen)"
NO_COLOR=1 at 100x30 -- "$ringctl" nodes || fail "nodes with NO_COLOR"
grep -q "$escape" screen && fail "colours in spite of NO_COLOR"
at 100x30 -- "$ringctl" nodes --color never || fail "nodes --color never"
grep -q "$escape" screen && fail "colours in spite of --color never"
"$ringctl" nodes | grep -q "$escape" && fail "colours in a pipe"
NO_COLOR=1 "$ringctl" nodes --color always | grep -q "$escape\[32mup" || fail "no colours in spite of --color always"
"$ringctl" nodes --color always --json | jq -e '.nodes | length == 3' >/dev/null || fail "colours in JSON"

# Tables: no line is wider than the terminal; in a pipe nothing is cut.
for width in 60 80 100; do
    for table in nodes links jobs members; do
        at ${width}x30 -- "$ringctl" "$table" --color never || fail "$table in $width columns"
        [ -s screen ] || fail "$table in $width columns shows nothing"
        awk -v most=$width '{ sub(/\r$/, ""); gsub(/…/, "~") } length($0) > most { print; wide = 1 } END { exit wide }' screen ||
            fail "$table is wider than $width columns"
    done
done

train() { # STEP... on a terminal of 100 columns
    at 100x30 "$@" -- "$ringctl" train --model "$llama" --data "$tables" --adapter-out out --iters 100000
}
state_of() { "$ringctl" job "$1" --json | jq -r .state; }

# ^C asks. Detached, the job goes on; attached to, it is followed, and the question can be answered with cancelling it.
train 'await:job 1 gets ready' 'await:step 2/' 'send:^C' 'await:detach from job 1, cancel it, or keep watching?' 'send:k' 'await:step ' 'send:^C' \
    'await:keep watching?' 'send:d' 'await:job 1 goes on without you'
equal "status when detached" $? 130
equal "the detached job" "$(state_of 1)" running
at 100x30 'await:tokens/s' 'send:^C' 'await:keep watching?' 'send:c' 'await:cancelling job 1' -- "$ringctl" attach 1
equal "status when cancelled" $? 130
equal "the cancelled job" "$(state_of 1)" cancelled

# A second ^C detaches; so does a terminal that goes away.
train 'await:step 2/' 'send:^C' 'await:keep watching?' 'send:^C' 'await:goes on without you'
equal "status after ^C twice" $? 130
equal "the job after ^C twice" "$(state_of 2)" running
at 100x30 'await:step ' hangup -- "$ringctl" attach 2
equal "the job after the terminal went away" "$(state_of 2)" running
"$ringctl" cancel 2 >/dev/null

# The progress line stays on its line, however narrow the window becomes.
# A line that begins with "step" has lost its bar, and has been written for the narrow window.
train 'await:[#' 'size:40x30' "await:$escape[Kstep " "await:$escape[Kstep " 'send:^C' 'await:keep watching?' 'send:c'
tr '\r' '\n' <screen | sed "s/$escape\[K//g" | grep -E '^step [0-9]+/' | head -n 1 >lines
awk 'length($0) > 39 || !/loss [0-9.]+$/ { bad = 1 } END { exit bad || !NR }' lines || fail "progress in a narrow window: $(tail -c 600 screen | cat -v)"

# A job that has ended can still be attached to.
"$ringctl" train --model "$llama" --data "$tables" --adapter-out short --iters 2 >/dev/null 2>&1 || fail "a short job"
"$ringctl" attach 4 >attached.out 2>/dev/null || fail "attach to a job that is done"
holds "attach to a job that is done" attached.out 'job 4 done'
"$ringctl" attach 1 2>attached.err && fail "attach to a cancelled job says all is well"
holds "attach to a cancelled job" attached.err 'job 1 was cancelled'

# The live screen: drawn at once, drawn again for another size, left by q with the terminal as it was.
at 100x30 'await:a ring of 3' 'await:q leaves' 'size:60x12' 'await:q leaves' 'send:q' -- "$ringctl" top --interval 60
equal "status of top" $? 0
[ "$(tail -c 8 screen)" = "$escape[?1049l" ] || fail "top leaves its screen behind: $(tail -c 60 screen | cat -v)"
"$ringctl" top | grep -q '^4 *train *done *.##' || fail "top in a pipe: $("$ringctl" top)"
"$ringctl" top --json | jq -e '(.nodes | length == 3) and (.jobs | length == 4)' >/dev/null || fail "top --json"

# Completion, as far as the shells are here.
"$ringctl" completion bash >completion.bash || fail "completion bash"
"$ringctl" completion tcsh 2>/dev/null && fail "completion for a shell that is not known"
if command -v bash >/dev/null; then
    PATH=$build:$PATH bash -c '
        . ./completion.bash
        try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ringctl; echo "$* = ${COMPREPLY[*]}"; }
        try ringctl tra
        try ringctl --color never train --schedule = gp
        try ringctl local 3 train --sche
        try ringctl attach ""
        try ringctl remove n' >completed || fail "completion in bash"
    holds "a command" completed '^ringctl tra = train trace$'
    holds "a choice" completed '= gp = gpipe$'
    holds "behind local" completed 'sche = --schedule$'
    holds "jobs" completed '^ringctl attach  = 4 3 2 1$'
    holds "members" completed '^ringctl remove n = n1 n2 n3$'
fi
if command -v zsh >/dev/null; then
    "$ringctl" completion zsh >_ringctl && zsh -n _ringctl || fail "completion zsh"
fi
# Without a daemon: said before the screen is taken.
stop_node 1
at 100x30 -- "$ringctl" top && fail "top without a daemon"
holds "top without a daemon" screen 'no ringd answers'
grep -q "$escape\[?1049h" screen && fail "top takes the screen to say that nobody answers"

say "a terminal is well treated"
