#!/bin/sh
# SPDX-License-Identifier: MIT
#
# How ringctl says what it can do: alone, with help and --help, and through the shells' completion. No daemon runs.
. "$(dirname "$0")/lib/check.sh"
repo=$PWD
cd "$work" || exit 1
export RINGD_SOCKET="$work/none"

"$ringctl" --help >all || fail "--help"
sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p' all >commands
[ "$(wc -l <commands)" -gt 30 ] || fail "--help lists few commands: $(cat all)"

# Alone: every command by purpose, and the status of wrong usage, for scripts whose command was empty.
"$ringctl" >overview 2>alone.err
equal "status of ringctl alone" $? 2
[ ! -s alone.err ] || fail "ringctl alone complains: $(cat alone.err)"
while read -r command; do
    grep -Eq "^    (.*  )?$command(  |$)" overview || fail "the overview lacks $command: $(cat overview)"
done <commands
holds "the groups" overview '^  The cluster$'
[ "$(wc -l <overview)" -le 40 ] || fail "the overview is no short one"
"$ringctl" --json >json.out 2>json.err
equal "status of ringctl --json" $? 2
[ ! -s json.out ] || fail "ringctl --json prints what is no JSON: $(cat json.out)"
holds "ringctl --json" json.err 'a command is missing'

# help, of all and of one.
"$ringctl" help >help.out || fail "help"
same "help and --help" help.out all
while read -r command; do
    "$ringctl" help "$command" >help.out || fail "help $command"
    "$ringctl" "$command" --help >help.all || fail "$command --help"
    same "help $command" help.out help.all
done <commands
"$ringctl" help trian 2>wrong
equal "status of help for no command" $? 2
holds "help for no command" wrong 'did you mean train'
"$ringctl" help train chat 2>wrong
equal "status of help for two" $? 2

# Completion. Whatever the shell: every command, and every option of every command.
for shell in bash fish zsh; do
    "$ringctl" completion $shell >completion.$shell || fail "completion $shell"
    while read -r command; do
        grep -Eqw -- "$command" completion.$shell || fail "completion for $shell lacks $command"
        "$ringctl" help "$command" | sed -nE 's/^  (    |-., )--([a-z0-9-]+).*/\2/p' | while read -r option; do
            if [ $shell = fish ]; then set -- "-l $option "; else set -- "--$option[^a-z0-9-]"; fi
            grep -Eq -- "$1" completion.$shell || fail "completion for $shell lacks --$option of $command"
        done || exit 1
    done <commands
    ! command -v $shell >/dev/null || $shell -n completion.$shell || fail "completion for $shell does not parse"
done
"$ringctl" completion tcsh 2>wrong && fail "completion for a shell that is not known"
holds "a shell that is not known" wrong 'bash, fish and zsh'
# The form of fish's, which not every machine has: what a line opens with a quote it closes.
awk '/^complete/ { gsub(/\\./, ""); if (gsub(/\047/, "") % 2) { print; odd = 1 } } END { exit odd }' completion.fish ||
    fail "a quote is not closed in the completion for fish"
if command -v fish >/dev/null; then
    # shellcheck disable=SC2016 # fish's variables
    HOME=$work PATH=$build:$PATH fish -c '
        source completion.fish
        for line in "ringctl tra" "ringctl --color never train --schedule gp" "ringctl local 3 train --iter" "ringctl local 3 plan tr" \
                "ringctl help ben" "ringctl link " "ringctl generate --model x cha"
            printf "%s =" $line
            complete -C $line | string replace -r "\t.*" "" | string join " "
            true
        end' >completed 2>&1 || fail "completion in fish: $(cat completed)"
    holds "a command" completed '^ringctl tra =trace train$'
    holds "a choice" completed 'schedule gp =gpipe$'
    holds "behind local" completed 'iter =--iters$'
    holds "behind local and plan" completed 'plan tr =train$'
    holds "of help" completed '^ringctl help ben =bench$'
    holds "first words" completed '^ringctl link  =adopt release$'
    holds "no command behind a command" completed '^ringctl generate --model x cha =$'
fi
say "ringctl says what it can do"
