/* SPDX-License-Identifier: MIT
 *
 * A ringd-stage whose tasks take a known time: task_run and exchange_send are wrapped by the
 * linker. What a task of a training step computes is computed first, and then slept until a
 * forward, either half of a backward or a forward done again has taken TASK_US, a whole backward
 * twice that, before anything it made is sent. So what a schedule takes is that of its order and of
 * the messages, whatever the processor. Linked from the objects of ringd-stage for
 * tests/bench/bench_bubble.sh; main thread of the stage. */
#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

#include "daemon/stage/exchange/exchange_impl.h"
#include "daemon/stage/task/stage_task.h"
#include "net/clock.h"

enum { TASK_US = 20000 };

static struct instant end; /* of the task that is computed; zero: it takes as long as it takes */

int __real_task_run(struct rank_state *r, const struct task *task, struct err *err);
int __wrap_task_run(struct rank_state *r, const struct task *task, struct err *err);
int __real_exchange_send(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer,
                         size_t size);
int __wrap_exchange_send(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer,
                         size_t size);

static uint64_t cost_us(const struct task *task)
{
    switch (task->kind) {
    case TASK_F:
    case TASK_I:
    case TASK_W:
    case TASK_R: return TASK_US;
    case TASK_B: return 2 * TASK_US;
    default: return 0;
    }
}

static void sleep_out(void)
{
    const struct timespec until = {(time_t)(end.us / 1000000), (long)(end.us % 1000000) * 1000};
    while (end.us && clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
    end.us = 0;
}

int __wrap_exchange_send(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer,
                         size_t size)
{
    sleep_out();
    return __real_exchange_send(x, to, key, buffer, size);
}

int __wrap_task_run(struct rank_state *r, const struct task *task, struct err *err)
{
    const uint64_t cost = r->go->program == PROGRAM_TRAIN ? cost_us(task) : 0;
    if (!cost)
        return __real_task_run(r, task, err);
    prctl(PR_SET_TIMERSLACK, 1); /* ns, of this thread: else every task is 50 µs longer */
    request_short_timeslice();   /* a task that computed would be on its core already */
    end.us = clock_now().us + cost;
    int e = __real_task_run(r, task, err);
    sleep_out();
    return e;
}
