/* SPDX-License-Identifier: MIT
 *
 * A ringd-stage whose tasks take a known time: runner_task is wrapped by the linker, and each task of a training step sleeps
 * before it is done, a forward, either half of a backward and a forward done again TASK_US, a whole backward twice that. So
 * what a schedule takes is that of its order and of the messages, whatever the processor. Linked from the objects of ringd-stage
 * for tests/bench/bench_bubble.sh; main thread of the stage. */
#include <errno.h>
#include <time.h>

#include "daemon/stage_task.h"

enum { TASK_US = 20000 };

int __real_runner_task(struct runner *r, const struct task *task, struct err *err);
int __wrap_runner_task(struct runner *r, const struct task *task, struct err *err);

static uint64_t cost_us(const struct runner *r, const struct task *task)
{
    if (r->go->program != PROGRAM_TRAIN)
        return 0;
    switch (task->kind) {
    case TASK_F:
    case TASK_I:
    case TASK_W:
    case TASK_R: return TASK_US;
    case TASK_B: return 2 * TASK_US;
    default: return 0;
    }
}

static void sleep_until(struct timespec at)
{
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

int __wrap_runner_task(struct runner *r, const struct task *task, struct err *err)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    uint64_t ns = (uint64_t)at.tv_nsec + cost_us(r, task) * 1000;
    at.tv_sec += (time_t)(ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    sleep_until(at);
    return __real_runner_task(r, task, err);
}
