#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ringctl towards a daemon that accepts connections and answers nothing: one sentence within seconds, where it used to wait for a minute.
# A daemon that is alive and takes its time for a plan is waited for. usage: silent.sh BUILD
cd "$(dirname "$0")/../.." || exit 2
. tests/system/lib/check.sh
. tests/system/lib/ring.sh
model=$PWD/share/tiny-llama

# The shell waits for a line on a fifo, not for a time: longer than ringctl is patient with a daemon that says nothing.
mkfifo "$work/go"
cat >"$work/slow-stage" <<END
#!/bin/sh
read -r line <"$work/go"
exec "$build/ringd-stage" "\$@"
END
chmod +x "$work/slow-stage"
node_options="--stage-binary $work/slow-stage" start_node 1
on 1 init >/dev/null

say "a plan that takes longer than a sign of life may"
on 1 plan generate --model "$model" --max-tokens 2 Hello >"$work/plan" 2>&1 &
asker=$!
limit 7 tail --pid=$asker -f /dev/null && fail "the plan is there already, or ringctl gave up: $(cat "$work/plan")"
limit 20 sh -c 'echo go >"$1"' sh "$work/go" || fail "the stage was not started"
wait $asker || fail "a daemon that plans is given up: $(cat "$work/plan")"

say "a daemon that is stopped"
kill -STOP "$(pid_of 1)"
for command in status jobs "log 1" doctor; do
    # shellcheck disable=SC2086
    limit 20 env RINGD_SOCKET="$(sock_of 1)" "$ringctl" $command >"$work/out" 2>"$work/err"
    equal "$command: exit status" $? 3
    holds "$command" "$work/err" '^ringctl: ringd on .*/n1/ringd.sock accepted the connection and has not answered for 5 s: '
done
kill -CONT "$(pid_of 1)"
on 1 status >/dev/null || fail "going on again, it does not answer"
say "done"
