/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/machine/yield_cpu.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* A thread that was started meanwhile, by one that did not yield yet, is found in the next turn. */
enum { TURNS_MAX = 8 };

/* *ret: how many threads did not yield before. */
static int yield_all(DIR *threads, size_t *ret)
{
    const struct sched_param none = {0};
    *ret = 0;
    rewinddir(threads);
    for (const struct dirent *e; (e = readdir(threads));) {
        const pid_t thread = (pid_t)strtol(e->d_name, NULL, 10);
        if (thread <= 0 || sched_getscheduler(thread) == SCHED_IDLE)
            continue;
        if (!sched_setscheduler(thread, SCHED_IDLE, &none))
            ++*ret;
        else if (errno != ESRCH)
            return -errno;
    }
    return 0;
}

int yield_cpu(pid_t pid)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    if (!threads)
        return -errno;
    size_t n = 1;
    int r = 0;
    for (int turn = 0; turn < TURNS_MAX && n && !r; turn++)
        r = yield_all(threads, &n);
    closedir(threads);
    return r;
}
