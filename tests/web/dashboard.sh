#!/bin/sh
# The dashboard in a real browser: a ring of three daemons in network namespaces, a job from its form to its end, text as it comes, a
# conversation, a cable pulled and plugged, a node killed. What the browser does is in dashboard.mjs; it runs on node a, beside the daemon.
#   usage: tests/web/dashboard.sh BUILD [FOLDER]      FOLDER: screenshots are kept there
# Needs root, chromium (CHROMIUM names it), node, jq, and playwright-core and axe-core: see npm.sh.
# SPDX-License-Identifier: MIT
cd "$(dirname "$0")/../.." || exit 2
root=$PWD
build=$(cd "${1:-build}" && pwd)
shots=${2:+$(mkdir -p "$2" && cd "$2" && pwd)}
. tests/netns/lib.sh
. tests/netns/nodes.sh
. tests/lib/endless.sh

browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
[ -n "$browser" ] || skip "chromium is not installed: CHROMIUM can name another browser of its kind"
. tests/web/npm.sh
need_packages playwright-core axe-core

# Rows enough for a few dozen steps, in letters JSON takes as they are.
cat /usr/share/common-licenses/* 2>/dev/null | tr -cd '\n\040-\176' | tr '\\"' "/'" | grep -E '.{40}' | tr -s ' ' |
    awk '{ row = row " " $0 } NR % 5 == 0 { printf "{\"text\": \"%s\"}\n", row; row = "" }' >"$tmp/rows.jsonl"
[ "$(wc -l <"$tmp/rows.jsonl")" -ge 100 ] || skip "there are no licences in /usr/share/common-licenses to learn from"
head -n 8 "$tmp/rows.jsonl" >"$tmp/valid.jsonl"

# A model with a name, in a cache of Hugging Face that node a has.
named=$tmp/home/hub/models--test--big/snapshots/0123456789abcdef0123456789abcdef01234567
command -v python3 >/dev/null || skip 'python3 is not installed'
mkdir -p "$named" "$(dirname "$(dirname "$named")")/refs"
printf %s "$(basename "$named")" >"$(dirname "$(dirname "$named")")/refs/main"
cp share/tiny-llama/tokenizer.json share/tiny-llama/tokenizer_config.json share/tiny-llama/generation_config.json "$named/"
python3 tests/lib/layers.py "$named" || fail 'the model cannot be made'

ns_up 3
no_dad 1 2 3
cable 1 2
cable 2 3
cable 3 1
cable 1 2
second=$cable
begin_logs 1 2 3
HF_HOME=$tmp/nothing HF_HUB_OFFLINE=1
export HF_HOME HF_HUB_OFFLINE
HF_HOME=$tmp/home start_ringd 1 --http-listen 127.0.0.1:8473 --dead-after 6
ns_exec 1 ip addr add 10.99.0.1/30 dev cable1
ns_exec 2 ip addr add 10.99.0.2/30 dev cable1
start_ringd 2 --http-listen 10.99.0.2:8473 --dead-after 6 # which others reach
start_ringd 3 --dead-after 6
await_all "is alone|a ring of" 20 a b c
for n in 1 2 3; do
    enrol $n
done
await_all "a ring of 3:" 30 a b c
ok "a ring of three, two cables between a and b"
for n in ${shots:+1 3 $second}; do # in pictures all cables have been measured, before anything else takes the machine's time
    await_line "$tmp/a.log" "cable on cable$n to [bc]: " 60
done

on a pull test/big >/dev/null || fail 'pull'
cut_command="ip -n $(ns_name 1) link del cable$second"
ln -s "$root/share/tiny-llama" "$tmp/tiny-llama"
models=$(realpath "$tmp/a")/models # where a node's models lie
mkdir "$models"
cp -r "$root/share/tiny-llama" "$models/"
endless "$tmp/talker" "$root/share/tiny-llama"
MODELS=$models MODEL=$tmp/tiny-llama TALKER=$tmp/talker ROWS=$tmp/rows.jsonl VALID=$tmp/valid.jsonl OUT=$tmp/adapter CHROMIUM=$browser \
    REMOTE=http://10.99.0.2:8473/ REMOTE_TOKEN=$(head -n 1 "$tmp/b/http-token") SHOTS=$shots CUT=$cut_command LINK="$build/ringctl --socket $tmp/a/ringd.sock dashboard --no-open" VICTIM=$(cat "$tmp/c.pid") MODULES=$modules SLOW=$slow HOME=$tmp \
    ns_exec 1 timeout $((240 * slow)) node tests/web/dashboard.mjs || fail "the page is not as it should be"
alive a b
