#!/bin/sh
# The man pages tell every option and command the programs have, and nothing they do not have. usage: man.sh BUILD
# SPDX-License-Identifier: MIT
set -u
build=$1
cd "$(dirname "$0")/../.." || exit 2
failed=0
wrong() {
    echo "$*"
    failed=1
}

docs/make-man --check "$build" || failed=1

# The same question asked without make-man: is each --name of a help text an item of the page, and the other way round?
names() { sed -nE 's/^  (    |-., )--([a-z0-9-]+).*/\2/p' | sort -u; }
items() { sed -nE 's/^\.It (Fl . , )?Fl -([a-z0-9-]+).*/\2/p' "$1" | sort -u; }
same() { # PAGE PROGRAM: both lists in files
    for name in $(comm -23 help.txt page.txt); do wrong "$1 lacks --$name of $2"; done
    for name in $(comm -13 help.txt page.txt); do wrong "$1 has --$name, which $2 does not know"; done
}
repo=$PWD
case $build in /*) ;; *) build=$repo/$build ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

"$build/ringd" --help | names >help.txt
[ "$(wc -l <help.txt)" -gt 5 ] || wrong "ringd --help lists no options"
items "$repo/docs/ringd.8" >page.txt
same ringd.8 ringd

grep -vx config help.txt >keys.txt
sed -nE 's/^\.It Ic ([a-z0-9-]+) .*/\1/p' "$repo/docs/ringd.conf.5" | sort -u >page.txt
mv keys.txt help.txt
same ringd.conf.5 ringd

"$build/ringctl" --help | names >all.txt
"$build/ringctl" --help | sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p' >commands.txt
[ -s commands.txt ] || wrong "ringctl --help lists no commands"
while read -r command; do
    grep -qx "\.Ss $command" "$repo/docs/ringctl.1" || wrong "ringctl.1 lacks the command $command"
    "$build/ringctl" "$command" --help | names >>all.txt
done <commands.txt
sort -u all.txt >help.txt
items "$repo/docs/ringctl.1" >page.txt
same ringctl.1 ringctl

if command -v man >/dev/null && command -v groff >/dev/null; then
    for page in ringd.8 ringd.conf.5 ringctl.1; do
        LC_ALL=C.UTF-8 man --warnings=all -Tutf8 -l "$repo/docs/$page" 2>warnings >/dev/null </dev/null
        [ ! -s warnings ] || wrong "$page: $(head -n 3 warnings)"
    done
fi
[ $failed = 0 ] && echo "every option has its place"
exit $failed
