#!/bin/sh
# README's commands, as they stand there, on two Debian 12 that have just been booted, with a cable between: the indented blocks of its
# sections "Ten minutes, two machines" and "As a service" are read out of the file and typed by a user without root. What cannot be taken
# to the letter is in the table `type_line`; a line of README that is not in it fails the test, and so does one that README no longer has.
# usage: readme.sh BUILD
#
#     a = node 1 ═══ cable1 ═══ b = node 2
#
# The machines have no network but the cable: the packages that README installs are in them already, and nothing else that a build needs
# is. What compilers make is kept in $RINGD_CACHE/ccache. Needs root, systemd-nspawn and debootstrap.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/boot/lib.sh
began=$(milliseconds)
patience=900 # a first build without a cache

seconds() { # SINCE
    echo "$((($(milliseconds) - $1) / 100))" | sed 's/.$/.&/; s/^\./0./'
}

# --- README's lines

# lines SECTION: what is indented by four columns there, "COMMAND<tab>REMARK" each; two spaces or more end a command.
lines() {
    awk -v section="## $1" '
        /^## / { inside = $0 == section }
        inside && /^    / {
            sub(/^    /, "")
            at = match($0, /[^ ]  +[^ ]/)
            print at ? substr($0, 1, at) "\t" substr($0, at + RLENGTH - 1) : $0 "\t"
        }' README.md
}

# --- what a user does

# terminal NAME COMMAND: a new login of alice, in the folder of the project, with what she has exported
terminal() {
    in_node "$1" runuser -l alice -c "cd ringd; $exports $2" >"$tmp/said-$1.log" 2>&1
}
both() {
    for _who in a b; do
        terminal "$_who" "$1" || fail "$_who: $1"
    done
}
first() {
    terminal a "$1" || fail "a: $1"
}
# In the foreground of a terminal of its own, until the machine is told otherwise.
keep() { # NAME COMMAND LOG
    in_node "$1" runuser -l alice -c "cd ringd; $2" >"$tmp/$3.log" 2>&1 </dev/null &
}
said() { # NAME PATTERN
    grep -Eq -- "$2" "$tmp/said-$1.log" || fail "$1: nothing like \"$2\" was printed"
}
is_ring_of_2() {
    terminal a 'ringctl status' && terminal b 'ringctl status' && grep -q 'a ring of 2: ' "$tmp/said-a.log" && grep -q 'a ring of 2: ' "$tmp/said-b.log"
}
gone() { # NAME PROGRAM
    [ -z "$(in_node "$1" pidof "$2")" ]
}
interrupt() { # as ^C in their terminals
    for _who in a b; do
        for _program in ringd ringd-link; do
            gone "$_who" $_program || in_node "$_who" sh -c "kill -INT \$(pidof $_program)"
            wait_for $((20 * slow)) gone "$_who" $_program || fail "$_who: $_program does not end at ^C"
        done
    done
}

# type_line COMMAND REMARK: the table. `where` says in which section we are.
type_line() {
    case $1 in
    'sudo apt-get update && sudo apt-get install -y git make' | 'sudo apt-get install -y build-essential debhelper dh-apparmor' | \
        'make deps && make -j4' | 'sudo make install PREFIX=/usr')
        both "$1"
        ;;
    '/usr/sbin/ringd --state-dir ~/.ringd --name a') # and its remark: --name b on the second
        case $2 in *'--name b'*) ;; *) fail "README does not say how the second node is named: $2" ;; esac
        keep a "$1" ringd-a
        keep b "${1%a}b" ringd-b
        for _who in a b; do
            await_line "$tmp/ringd-$_who.log" "$_who is alone" 20
        done
        ;;
    'export RINGD_SOCKET=~/.ringd/ringd.sock') exports="$1;" ;;
    'ringctl init' | 'ringctl invite')
        case $2 in 'on the first'*) first "$1" ;; *) fail "README does not say where: $1 $2" ;; esac
        token=$(grep -o 'ringd1-[A-Za-z0-9-]*' "$tmp/said-a.log" | head -n 1)
        ;;
    'ringctl join TOKEN')
        [ "$2" = 'on the second' ] || fail "README does not say where: $1 $2"
        terminal b "ringctl join $token" || fail "b: $1"
        wait_for $((30 * slow)) is_ring_of_2 || fail "no ring of two"
        ;;
    # shellcheck disable=SC2016
    'sudo mkdir -p /run/ringd-link && sudo ringd-link --uid $USER')
        for _who in a b; do
            keep $_who "$1" "ringd-link-$_who"
        done
        wait_for $((30 * slow)) has_subnet || fail "ringd-link gave the cable no subnet"
        ;;
    'ringctl status') first "$1" ;;
    'ringctl generate --model /srv/model "Once upon a time"' | 'ringctl generate --model /srv/model --adapter out "Once upon a time"')
        first "$1"
        [ -s "$tmp/said-a.log" ] || fail "a: nothing came of $1"
        ;;
    'ringctl chat --model /srv/model') # the model there is has no chat template, as README says
        terminal a "echo Hello | $1" && fail "a: a model without a chat template converses"
        said a 'chat template'
        ;;
    'ringctl train --model /srv/model --data rows.jsonl --adapter-out out --iters 50')
        # The service cannot read what lies in alice's home: ringctl opens it.
        terminal a "rm -rf out; $1" || fail "a: $1"
        said a 'planned: a layers [0-9].* b layers [0-9]'
        [ -s "$(root_of a)/home/alice/ringd/out/adapter_model.safetensors" ] || fail "a: no adapter in ~/ringd/out"
        ;;
    'planned: a layers 0-2 (14.4 MiB), b layers 3-5 (14.2 MiB)' | '[###############...............] step 25/50') ;; # what is seen, not typed
    'make deb && sudo apt install ./build/ringd_0.1.0_amd64.deb')
        both "$(echo "$1" | sed "s/amd64/$(dpkg --print-architecture)/")"
        ;;
    # shellcheck disable=SC2016
    'sudo adduser $USER ringd') both "$1" ;; # and every terminal is a new login
    'systemctl status ringd')
        both "$1"
        said a 'active \(running\)'
        ;;
    *) fail "README's section \"$where\" has a line that this test does not know: $1" ;;
    esac
    echo "$where: $1" >>"$tmp/typed"
}
has_subnet() {
    for _who in a b; do
        in_node $_who ip -6 -o addr show dev cable1 | grep -q ' inet6 fd.*/127 ' || return 1
    done
}
# type_lines SECTION [FROM TO]: those lines, as they come; all without numbers
type_lines() {
    _lines=$tmp/lines
    lines "$1" | sed -n "${2:-1},${3:-\$}p" >"$_lines"
    [ -s "$_lines" ] || fail "README has no commands in \"$1\""
    while IFS=$(printf '\t') read -r _command _remark <&9; do
        type_line "$_command" "$_remark"
    done 9<"$_lines"
}
line_of() { # SECTION COMMAND: its number
    lines "$1" | command cut -f 1 | grep -nxF -- "$2" | command cut -d : -f 1
}

# --- two machines

# shellcheck disable=SC2016
packages=$(printf 'show:\n\t@echo $(BUILD_DEPS)\n' | make -s -f Makefile -f - show | tr ' ' ',')
base_root "$deb" "$packages,git,make,sudo,adduser,ccache,build-essential,debhelper,dh-apparmor"
mkdir -p "$cache/ccache" && chmod 777 "$cache/ccache"
machine_options=--bind=$cache/ccache:/var/cache/ccache
ns_up 2
no_dad 1 2
cable 1 2
boot 1 2
state=/var/lib/ringd exports='' token=''
for who in a b; do
    root=$(root_of $who)
    : >"$root/etc/apt/sources.list"
    printf 'export PATH=/usr/lib/ccache:$PATH CCACHE_DIR=/var/cache/ccache CCACHE_NOHASHDIR=1 CCACHE_UMASK=000\n' >"$root/etc/profile.d/ccache.sh"
    echo 'alice ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/alice"
    in_node $who useradd -m -s /bin/bash alice
    mkdir -p "$root/srv/model" "$root/home/alice/ringd"
    cp share/tiny-llama/*.json share/tiny-llama/*.safetensors "$root/srv/model/"
    { git ls-files -co --exclude-standard 2>/dev/null || find . -type f -not -path './build*' -printf '%P\n'; } |
        while IFS= read -r f; do [ ! -e "$f" ] || printf '%s\n' "$f"; done | tar -cf - -T - | tar -xf - -C "$root/home/alice/ringd"
    awk 'BEGIN { for (i = 0; i < 60; i++) printf "{\"text\": \"row %d of the rows that are here\"}\n", i }' >"$root/home/alice/ringd/rows.jsonl"
    in_node $who chown -R alice: /home/alice
    in_node $who chmod 700 /home/alice # as adduser makes it
done
ok "two Debian $(in_node a cat /etc/debian_version) and a cable, after $(seconds "$began") s"

where="Ten minutes, two machines"
since=$(milliseconds)
type_lines "$where"
ok "README's \"$where\": $(grep -c "^$where" "$tmp/typed") lines, in $(seconds "$since") s"
interrupt

# Steps 3 to 6 are those before, without the socket's name.
since=$(milliseconds)
exports=
steps=$where
where="As a service"
type_lines "$where"
for who in a b; do
    wait_for $((30 * slow)) in_node $who systemctl is-active --quiet ringd ringd-link || fail "$who: not every service runs"
done
type_lines "$steps" "$(line_of "$steps" 'ringctl init')" "$(line_of "$steps" 'ringctl join TOKEN')"
type_lines "$steps" "$(line_of "$steps" 'ringctl status')" '$'
said a .
kept=$(in_node a find $state/results -name adapter_model.safetensors)
[ -n "$kept" ] || fail "the service has kept no result"
terminal a "rm -r '$(dirname "$kept")'" || fail "alice of the group ringd cannot remove a result"
[ "$(in_node a stat -c %a /home/alice)" = 700 ] || fail "the home of alice is open to others: this test shows nothing"
ok "README's \"$where\": $(grep -c "^$where" "$tmp/typed") lines, in $(seconds "$since") s"
ok "all of it in $(seconds "$began") s"
