#!/bin/sh
# A job while cables are pulled and daemons killed under it. usage: pull.sh BUILD
#
#     a = node 1 ══ cable1 ══ b = node 2
#        ║                       ║
#     cable4                  cable2
#        ║                       ║
#     d = node 4 ══ cable3 ══ c = node 3
#
# Each cable is the only one between its two nodes. It is out for a second, too short for the job to be given up; the result must be the
# one of the run that nobody disturbed, bit for bit. Then each daemon is killed and started again: either the job ends with one cause that
# names the node, or it goes on to the same result; the job after it runs.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh

# What cable K joins, as in the drawing.
ends() {
    echo "$(name_of "$1") $(name_of $(($1 % 4 + 1)))"
}
# The cable is out for a second; times to notice it, and from the plug to the next step
pull_and_plug() { # K JOB
    mark a b c d
    start=$(milliseconds)
    cut "$1"
    # shellcheck disable=SC2046
    await_all "cable on cable$1 to .* is out" 5 $(ends "$1")
    noticed=$(($(milliseconds) - start))
    sleep 1 # that is how long the cable is out
    plug "$1"
    start=$(milliseconds)
    before=$(steps "$2")
    # shellcheck disable=SC2046
    await_all "cable on cable$1: " 10 $(ends "$1")
    found=$(($(milliseconds) - start))
    await_line "$tmp/$2.steps" "\"step\":$((before + 2))[,}]" 20
    goes_on=$(($(milliseconds) - start))
    [ "$(steps "$2")" -lt $iters ] || fail "the job was over before cable$1 was plugged in again: more steps are needed"
    [ $noticed -le $((2000 * slow)) ] || fail "cable$1 was noticed to be out after $noticed ms, allowed are 2000"
    ok "cable$1 out at step $before: noticed by both ends in $noticed ms; plugged in: found in $found ms, the next step in $goes_on ms"
}
# What a tells of the job that ringctl began last
cause_of_last() {
    on a jobs --all --json >"$tmp/jobs.json" || fail "a does not tell its jobs"
    jq -r '[.jobs[] | select(.type == "train")] | max_by(.id) | "\(.state): \(.error)"' "$tmp/jobs.json"
}
next_job_runs() {
    on a --json generate --model "$model" --max-tokens 4 --ids 1 >"$tmp/next.txt" 2>&1 || fail "the job after it fails: $(cat "$tmp/next.txt")"
}
same_adapter() {
    cmp "$tmp/calm/adapter_model.safetensors" "$tmp/$1/adapter_model.safetensors" || fail "the adapters of calm and $1 differ"
}
# NODE-NUMBER JOB: killed in the middle of the job and started again
kill_and_restart() {
    name=$(name_of "$1")
    train a "$2"
    await_line "$tmp/$2.steps" '"step":5[,}]' 20
    mark a b c d
    start=$(milliseconds)
    stop "$name" KILL
    wait $job # of a killed head ringctl knows no end
    status=$?
    forget $job
    ended=$(($(milliseconds) - start))
    [ $ended -le $((15000 * slow)) ] || fail "the job ended $ended ms after $name was killed"
    [ "$1" = 1 ] || cause=$(cause_of_last)
    mark a b c d
    start=$(milliseconds)
    start_ringd "$1"
    await_all 'a ring of 4' 10 a b c d
    lasted "from the start of $name to the ring" "$start"
    [ "$1" != 1 ] || cause=$(cause_of_last)
    case $cause in
    "done: "*) same_adapter "$2" ;;
    "failed: "*"node $name "* | "failed: the daemon ended "*) [ $status != 0 ] || fail "ringctl says that a failed job went well" ;;
    *) fail "a job of four ended so when $name was killed: $cause" ;;
    esac
    ok "$name killed; after $ended ms the job has ended: $cause"
    next_job_runs
    ok "the next job runs, $(($(milliseconds) - start)) ms after the start of $name"
}

ns_up 4
begin_logs 1 2 3 4
no_dad 1 2 3 4
cable 1 2
cable 2 3
cable 3 4
cable 4 1
for node in 1 2 3 4; do
    start_link $node
    start_ringd $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
    enrol $node
done
await_all 'a ring of 4' 20 a b c d

iters_for 35
start=$(milliseconds)
train a calm
await_job calm
ok "undisturbed: $(($(milliseconds) - start)) ms"
train a rough
await_line "$tmp/rough.steps" '"step":2[,}]' 20
for k in 1 2 3 4; do
    pull_and_plug $k rough
done
await_job rough
[ "$(steps rough)" = $iters ] || fail "$(steps rough) steps of $iters"
same_adapter rough
ok "bit for bit the same adapter"

for node in 1 2 3 4; do
    kill_and_restart $node "killed$node"
done
alive a b c d
