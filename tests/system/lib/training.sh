# SPDX-License-Identifier: MIT
#
# Training jobs on the ring of ring.sh that are compared with one in which nothing happened: sourced after ring.sh. A job of
# another length is: training="--iters 3000 --seq-len 32".
training="--iters 40 --seq-len 64"

# train NAME OPTION...: in the background, as job_process; what it says in $work/NAME.err, its steps in $work/NAME.log
train() {
    name=$1
    shift
    : >>"$work/$name.log" # a run that the user goes on with adds to it
    # shellcheck disable=SC2086 # options, words apart
    RINGD_SOCKET=$(sock_of 1) limit 300 "$ringctl" --json train --model "$llama" --data "$tables" --adapter-out "$work/$name" \
        $training --log "$work/$name.log" "$@" >"$work/$name.json" 2>"$work/$name.err" &
    job_process=$!
}
# undisturbed OPTION...: what the others are compared with
undisturbed() {
    train undisturbed "$@"
    await_end "$job_process" 200 || fail "undisturbed: $(cat "$work/undisturbed.err")"
    numbers "$work/undisturbed.log" >"$work/undisturbed.numbers"
}
# done_as_undisturbed NAME
done_as_undisturbed() {
    await_end "$job_process" 200 || fail "$1: $(cat "$work/$1.err")"
    same "the adapter of $1" "$work/undisturbed/adapter_model.safetensors" "$work/$1/adapter_model.safetensors"
    numbers "$work/$1.log" >"$work/$1.numbers"
    same "the losses of $1" "$work/undisturbed.numbers" "$work/$1.numbers"
    no_stages 1 3
}
step_of() { await_line "$work/$1.log" "\"step\":$2," 60; } # NAME STEP
