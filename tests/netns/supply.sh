#!/bin/sh
# Models on their way from one node of a chain to the two others, disturbed at random moments. usage: supply.sh BUILD [TIMES [SEED]]
#
#     a = node 1 ══════ b = node 2 ══════ c = node 3
#            cable1              cable2
#
# Each time b and c lack their layers, a job begins, and while they come one thing happens: a process of the transfer, a stage or a daemon
# is killed, a cable is out for a moment, or the disk of b or c is full. The job ends right, or it fails with a reason; then the job after
# it ends right. The same happens, in turns, while a pushes a model to b and c. No cable carries a byte twice, but for the blocks on their
# way at that moment. Undisturbed, a cable carries at most 1.01 times what is needed. Needs root, and python3.
# SPDX-License-Identifier: MIT
set -u
build=$(realpath "${1:-build}")
times=${2:-12} seed=${3:-1}
cd "$(dirname "$0")/../.." || exit 2
. tests/netns/lib.sh
. tests/netns/nodes.sh
command -v python3 >/dev/null || skip "python3 is not installed"
block=$((4 << 20))
flight=4 # blocks that are asked of a source at once
probe=40000000 # bytes at most that a cable carries when it is measured, as it is when it comes back
layers=32
pushed_layers=12

make_model() {
    mkdir "$tmp/whole"
    cp share/tiny-llama/tokenizer.json share/tiny-llama/tokenizer_config.json "$tmp/whole/"
    python3 tests/lib/layers.py "$tmp/whole" $layers
    make_cache "$tmp/whole"
    rm -r "$tmp/whole"
    mkdir "$tmp/pushed"
    python3 tests/lib/layers.py "$tmp/pushed" $pushed_layers
    pushed=$(stat -c %s "$tmp/pushed/model.safetensors")
}
start_node() { # NODE
    HF_HOME=$tmp/nothing HF_HUB_OFFLINE=1
    [ "$1" != 1 ] || HF_HOME=$tmp/home
    export HF_HOME HF_HUB_OFFLINE
    start_ringd "$1" --models-dir "$tmp/models-$(name_of "$1")" --dead-after 4
}
# A disk of their own for the models of b and c, so that it can be full.
make_disks() {
    for node in b c; do
        mkdir "$tmp/models-$node"
        mount -t tmpfs -o size=180m,mode=700 none "$tmp/models-$node" || skip "no file system can be mounted here"
    done
}
take_down() {
    umount -l "$tmp/models-b" "$tmp/models-c" 2>/dev/null
    ns_down
}
crossed() { # CABLE NODE OTHER: bytes that have gone over it, both ways
    echo $(($(ns_exec "$2" cat "/sys/class/net/cable$1/statistics/tx_bytes") + $(ns_exec "$3" cat "/sys/class/net/cable$1/statistics/tx_bytes")))
}
disk_of() { # NODE: bytes of weights that are there
    find "$tmp/models-$1" -name 'model.safetensors*' ! -name '*.have' ! -name '*.synced' -printf '%b\n' | awk '{ sum += $1 } END { print sum * 512 + 0 }'
}
comes_to() { # NODE BYTES: so many of its weights are there
    [ "$(disk_of "$1")" -ge "$2" ]
}
generate() { # into $tmp/now.ids
    on a --json generate --model test/big --max-tokens 4 --ids 1,2,3 --seed 7 >"$tmp/now.out" 2>"$tmp/now.err" &&
        jq -c .ids "$tmp/now.out" >"$tmp/now.ids"
}
random() { # N: $drawn becomes one of 0 … N-1
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}
children() { # NODE PROGRAM
    pkill -KILL -P "$(cat "$tmp/$1.pid")" "$2"
}
restart() { # NODE-NUMBER
    _one=$(name_of "$1")
    mark a b c
    stop "$_one" KILL
    start_node "$1"
    await_all 'a chain of 3' 40 a b c
}
fill() { # NODE: until nothing fits on its disk
    dd if=/dev/zero of="$tmp/models-$1/filler" bs=64k 2>/dev/null
}
out_for_a_moment() { # CABLE
    random 9
    cut "$1"
    sleep 0.$drawn # that is how long the cable is out
    plug "$1"
}
disturb() {
    case $1 in
    nothing) ;;
    fetch-a) children a ringd-fetch ;;
    fetch-b) children b ringd-fetch ;;
    fetch-c) children c ringd-fetch ;;
    stage-b) children b ringd-stage ;;
    stage-c) children c ringd-stage ;;
    daemon-a) restart 1 ;;
    daemon-b) restart 2 ;;
    daemon-c) restart 3 ;;
    cable1) out_for_a_moment 1 ;;
    cable2) out_for_a_moment 2 ;;
    disk-b) fill b ;;
    disk-c) fill c ;;
    esac
}
set -- fetch-a fetch-b fetch-c stage-b stage-c daemon-a daemon-b daemon-c cable1 cable2 disk-b disk-c

# A cable that comes back is measured once it is idle: what crosses it then is not of the next job.
await_measures() { # WHAT
    case $1 in
    cable1 | daemon-[ab]) await_all 'cable on cable1 to .* Mb/s out' 60 a b ;;
    esac
    case $1 in
    cable2 | daemon-[bc]) await_all 'cable on cable2 to .* Mb/s out' 60 b c ;;
    esac
}

# What the cables carry from now on.
count_from_here() {
    before1=$(crossed 1 1 2) before2=$(crossed 2 2 3) measured=0
}
# What a new cable has carried counts from nothing.
disturb_and_count() { # WHAT
    over1=$(($(crossed 1 1 2) - before1)) over2=$(($(crossed 2 2 3) - before2))
    disturb "$1"
    case $1 in cable1) before1=$((0 - over1)) ;; cable2) before2=$((0 - over2)) ;; esac
    case $1 in cable* | daemon*) measured=$probe ;; esac
}
check_cables() { # ROUND NEED1 NEED2
    over1=$(($(crossed 1 1 2) - before1)) over2=$(($(crossed 2 2 3) - before2))
    need1=$2 need2=$3
    for cable in 1 2; do
        eval "over=\$over$cable need=\$need$cable"
        most=$((need * 106 / 100 + flight * block + measured + 3000000))
        [ "$what" != nothing ] || most=$((need * 101 / 100))
        [ "$over" -le $most ] || fail "$1 at $at bytes: cable$cable carried $over bytes for $need"
    done
}
forget_models() { # b and c lack all
    for node in b c; do
        for model in test/big test/pushed; do
            if on $node models list | grep -q $model; then
                wait_for 10 on $node models remove $model >/dev/null 2>&1 || fail "remove $model on $node"
            fi
        done
    done
}
verify_model() { # ROUND MODEL
    for node in b c; do
        on $node models verify "$2" >"$tmp/verified" 2>&1 || fail "$1: $node has wrong bytes: $(cat "$tmp/verified")"
    done
}
ends_well() { # ROUND WHAT COMMAND: the one in the background, or what comes after it
    said=
    if ! wait $job; then
        said=", which said: $(grep '^ringctl' "$tmp/now.err" | tail -n 1)"
        case $2 in disk-*) ! grep -q 'from the hub' "$tmp/now.err" || fail "$1: the hub was asked for room: $said" ;; esac
        rm -f "$tmp/models-b/filler" "$tmp/models-c/filler"
        wait_for 60 "$3" || fail "$1: $3 after it: $(cat "$tmp/now.err")"
    fi
    rm -f "$tmp/models-b/filler" "$tmp/models-c/filler"
}

pull_once() { # N WHAT
    forget_models
    count_from_here
    random $(((share_c - 2 * block) >> 12))
    at=$((block + (drawn << 12)))
    mark a b c
    generate &
    job=$!
    wait_for 60 comes_to c $at || fail "$1 $2: nothing comes to c: $(cat "$tmp/now.err")"
    disturb_and_count "$2"
    ends_well "$1 $2" "$2" generate
    cmp -s "$tmp/alone.ids" "$tmp/now.ids" || fail "$1 $2: other tokens: $(cat "$tmp/now.out")"
    verify_model "$1 $2" test/big
    check_cables "$1 $2" $(($(disk_of b) + $(disk_of c))) "$(disk_of c)"
    await_measures "$2"
    ok "$1: $2 when c had $((at >> 20)) MiB$said; cable1 $((over1 * 1000 / need1)), cable2 $((over2 * 1000 / need2)) thousandths of $need1 and $need2 bytes"
}

push() {
    on a models push test/pushed b c >"$tmp/now.err" 2>&1
}
# c takes it from b. When the disk of b is full, c takes the rest from a, and b its own rest later: both cross cable1.
push_once() { # N WHAT
    forget_models
    count_from_here
    random $(((pushed - 2 * block) >> 12))
    at=$((block + (drawn << 12)))
    mark a b c
    push &
    job=$!
    wait_for 60 comes_to c $at || fail "$1 push, $2: nothing comes to c: $(cat "$tmp/now.err")"
    disturb_and_count "$2"
    ends_well "$1 push, $2" "$2" push
    verify_model "$1 push, $2" test/pushed
    for node in b c; do
        cmp -s "$tmp/pushed/model.safetensors" "$tmp/models-$node/$exact/model.safetensors" || fail "$1 push, $2: $node has other weights"
    done
    twice=1
    [ "$2" != disk-b ] || twice=2
    check_cables "$1 push, $2" $((twice * pushed)) $((twice * pushed))
    await_measures "$2"
    ok "$1: push, $2 when c had $((at >> 20)) MiB$said; cable1 $((over1 * 1000 / need1)), cable2 $((over2 * 1000 / need2)) thousandths of $need1 and $need2 bytes"
}

trap take_down EXIT
make_model
make_disks
for node in 1 2 3; do
    begin_logs $node
done
ns_up 3
no_dad 1 2 3
cable 1 2 1gbit
cable 2 3 1gbit
for node in 1 2 3; do
    start_link $node
    start_node $node
    await_line "$tmp/$(name_of $node).log" 'API on' 20
    enrol $node
done
await_all 'a chain of 3' 20 a b c
await_all 'cable on cable1 to .* Mb/s out' 60 a b # what is sent to measure them would be counted
await_all 'cable on cable2 to .* Mb/s out' 60 b c
on a pull test/big >/dev/null || fail 'pull'
generate || fail "generate: $(cat "$tmp/now.err")"
cp "$tmp/now.ids" "$tmp/alone.ids"
share_c=$(disk_of c)
exact=$(on a models add "$tmp/pushed" --name test/pushed | command cut -d ' ' -f 1)
echo "c has $((share_c >> 20)) MiB of it, b $(($(disk_of b) >> 20))"

# What crosses a cable then is what is needed, and less than a hundredth more.
what=nothing
pull_once 0 nothing
push_once 0 nothing
i=0
while [ $i -lt "$times" ]; do
    i=$((i + 1))
    eval "what=\${$(((i - 1) % $# + 1))}"
    if [ $(((i + (i - 1) / $#) % 2)) = 1 ]; then # each blow to a pull, and in the next round to a push
        pull_once $i "$what"
    else
        push_once $i "$what"
    fi
done
alive a b c
