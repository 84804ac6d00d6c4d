/* SPDX-License-Identifier: MIT
 *
 * A ringd-stage whose tasks take a known time: runner_task is wrapped by the linker, and each task of a training step sleeps
 * before it is done, so that a forward, either half of a backward and a forward done again take TASK_US, a whole backward twice that. So
 * what a schedule takes is that of its order and of the messages, whatever the processor. Linked from the objects of ringd-stage
 * for tests/bench/bench_bubble.sh; main thread of the stage. */
#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

#include "daemon/channel_priv.h"
#include "daemon/stage_task.h"
#include "net/clock.h"

enum { TASK_US = 20000 };

/* The tiny model behind a task is computed as well: what that took at least so far is slept less. */
static uint64_t work_us[TASK_COUNT];

int __real_runner_task(struct runner *r, const struct task *task, struct err *err);
int __wrap_runner_task(struct runner *r, const struct task *task, struct err *err);

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

static void sleep_until(struct instant at)
{
    const struct timespec until = {(time_t)(at.us / 1000000), (long)(at.us % 1000000) * 1000};
    while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

int __wrap_runner_task(struct runner *r, const struct task *task, struct err *err)
{
    const uint64_t cost = r->go->program == PROGRAM_TRAIN ? cost_us(task) : 0;
    if (!cost)
        return __real_runner_task(r, task, err);
    prctl(PR_SET_TIMERSLACK, 1); /* ns, of this thread: else every task is 50 µs longer */
    lane_be_prompt();            /* a task that computed would be on its core already */
    uint64_t *work = &work_us[task->kind];
    const struct instant end = {clock_now().us + cost - *work};
    sleep_until(end);
    int e = __real_runner_task(r, task, err);
    const uint64_t took = clock_since_us(clock_now(), end);
    *work = !*work || took < *work ? took : *work;
    return e;
}
