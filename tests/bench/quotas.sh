# To be sourced by a script that measures nodes with unlike quotas of the CPUs, and calls itself within their ring. $build is the build;
# $seq the tokens of a row. A quota is given out every 10 ms, so that a task feels it as a slower CPU and not as a pause.
# SPDX-License-Identifier: MIT
period_us=10000

# Where groups can be made that limit CPUs: version 2, or version 1 beside it.
groups_in() {
    if [ -w /sys/fs/cgroup/cgroup.subtree_control ] && grep -qw cpu /sys/fs/cgroup/cgroup.controllers; then
        echo +cpu >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null && echo /sys/fs/cgroup
    elif [ -w /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]; then
        echo /sys/fs/cgroup/cpu
    fi
}
# confine FOLDER HUNDREDTHS PID. It goes before all other work, so that it has its share beside that.
confine() {
    mkdir "$1"
    if [ -e "$1/cpu.max" ]; then
        echo "$(($2 * period_us / 100)) $period_us" >"$1/cpu.max"
        echo 10000 >"$1/cpu.weight"
    else
        echo $period_us >"$1/cpu.cfs_period_us"
        echo $(($2 * period_us / 100)) >"$1/cpu.cfs_quota_us"
        echo 262144 >"$1/cpu.shares"
    fi
    echo "$3" >"$1/cgroup.procs"
}
# confine_nodes HUNDREDTHS…: within the ring, its daemons n1, n2, …
confine_nodes() {
    for child in $(cat "/proc/$PPID/task/$PPID/children"); do
        name=$(tr '\0' '\n' <"/proc/$child/cmdline" | sed -n '/^--name$/{n;p;}')
        [ -z "$name" ] || eval "confine \"$GROUP-$name\" \"\${${name#n}}\" \"$child\""
    done
}
release_nodes() {
    rmdir "$GROUP"-* 2>/dev/null || :
}

# begin WHAT: ends the script where there are no groups; else sets $work and what the ring needs, until the script ends
begin() {
    groups=$(groups_in)
    if [ -z "$groups" ]; then
        printf '%-38s skipped: there are no control groups here whose CPUs could be limited (as root, in a cgroup with the cpu controller)\n' "$1"
        exit 0
    fi
    work=$(mktemp -d "${TMPDIR:-/tmp}/ringd-bench.XXXXXX")
    GROUP=$groups/ringd-bench-$$
    RINGCTL=$build/ringctl
    XDG_CACHE_HOME=$work/cache
    export GROUP RINGCTL XDG_CACHE_HOME
    unset CACHE_DIRECTORY
    # Groups that wait for the next period leave cores idle.
    . "$(dirname "$0")/awake.sh"
    keep_awake
    trap 'release_nodes; rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
}
# make_model LAYERS HEADS: a random one of width 384 in $work/model, and rows in $work/rows.jsonl
make_model() {
    mkdir "$work/shape"
    jq --argjson layers "$1" --argjson heads "$2" '.hidden_size = 384 | .intermediate_size = 1024 | .num_hidden_layers = $layers | .num_attention_heads = $heads
        | .num_key_value_heads = $heads | .head_dim = 384 / $heads | .vocab_size = 512' share/tiny-llama/config.json >"$work/shape/config.json"
    jq -cn --argjson n "$seq" 'range(32) as $r | [range($n) | (. * 7 + $r) % 512] | {input_ids: ., labels: .}' >"$work/rows.jsonl"
    "$build/ringctl" local 1 --threads 1 train --model "$work/shape" --init random --fine-tune-type full --data "$work/rows.jsonl" \
        --adapter-out "$work/model" --batch-size 1 --seq-len "$seq" --iters 1 >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        exit 1
    }
}
