/* SPDX-License-Identifier: MIT
 *
 * A process yields with all its threads, and a thread that it starts later does too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/ringd/job/machine/yield_cpu.h"

struct waits {
    sem_t is_there, may_end;
    pid_t thread;
};

static void *wait_here(void *arg)
{
    struct waits *w = arg;
    w->thread = (pid_t)syscall(SYS_gettid);
    sem_post(&w->is_there);
    sem_wait(&w->may_end);
    return NULL;
}

static pthread_t start(struct waits *w)
{
    pthread_t id;
    sem_init(&w->is_there, 0, 0);
    sem_init(&w->may_end, 0, 0);
    assert_int_equal(pthread_create(&id, NULL, wait_here, w), 0);
    sem_wait(&w->is_there);
    return id;
}

static void all_threads_yield(void **state)
{
    (void)state;
    struct waits first, later;
    const pthread_t a = start(&first);
    assert_int_equal(sched_getscheduler(first.thread), SCHED_OTHER);
    assert_int_equal(yield_cpu(getpid()), 0);
    assert_int_equal(sched_getscheduler(first.thread), SCHED_IDLE);
    assert_int_equal(sched_getscheduler(getpid()), SCHED_IDLE);
    const pthread_t b = start(&later);
    assert_int_equal(sched_getscheduler(later.thread), SCHED_IDLE);
    assert_int_equal(yield_cpu(getpid()), 0);
    sem_post(&first.may_end);
    sem_post(&later.may_end);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
}

static void who_is_gone_is_said_to_be(void **state)
{
    (void)state;
    assert_int_equal(yield_cpu(-1), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_threads_yield),
        cmocka_unit_test(who_is_gone_is_said_to_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
