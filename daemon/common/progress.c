/* SPDX-License-Identifier: MIT */
#include "daemon/common/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net/clock.h"
#include "pipe/plan.h"

int progress_create(struct progress **ret, int *ret_fd)
{
    int fd = memfd_create("ringd-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    /* A page that the stage could cut off would end the daemon by SIGBUS. */
    if (ftruncate(fd, sizeof(struct progress)) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) || !(*ret = progress_attach(fd))) {
        int saved = errno;
        close(fd);
        return -saved;
    }
    *ret_fd = fd;
    return 0;
}

struct progress *progress_attach(int fd)
{
    void *at = mmap(NULL, sizeof(struct progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

void progress_detach(struct progress *p)
{
    if (p)
        munmap(p, sizeof *p);
}

void progress_set(struct progress *p, enum progress_state state, uint32_t what, uint32_t mb, uint32_t rank)
{
    atomic_store_explicit(&p->what, what, memory_order_relaxed);
    atomic_store_explicit(&p->mb, mb, memory_order_relaxed);
    atomic_store_explicit(&p->rank, rank, memory_order_relaxed);
    atomic_store_explicit(&p->since_us, clock_now().us, memory_order_relaxed);
    atomic_store_explicit(&p->state, state, memory_order_release);
}

struct progress_lane *progress_lane(struct progress *p, uint64_t path)
{
    size_t i = 0;
    while (i + 1 < PROGRESS_LANES && atomic_load_explicit(&p->lanes[i].used, memory_order_relaxed) &&
           p->lanes[i].path != path)
        i++;
    struct progress_lane *lane = &p->lanes[i];
    if (!atomic_load_explicit(&lane->used, memory_order_relaxed)) {
        lane->path = path;
        atomic_store_explicit(&lane->used, 1, memory_order_release);
    }
    return lane;
}

void progress_last_words(const struct progress *p, char *ret)
{
    const size_t n = sizeof p->last_words;
    memset(ret, 0, n);
    if (atomic_load_explicit(&p->has_last_words, memory_order_acquire))
        memcpy(ret, p->last_words, n - 1);
}

double progress_seconds(const struct progress *p)
{
    struct instant since = {atomic_load_explicit(&p->since_us, memory_order_relaxed)};
    return since.us ? (double)clock_since_us(clock_now(), since) / 1e6 : 0;
}

void progress_describe(const struct progress *p, char *buf, size_t n)
{
    uint32_t state = atomic_load_explicit(&p->state, memory_order_acquire);
    uint32_t what = atomic_load_explicit(&p->what, memory_order_relaxed);
    uint32_t mb = atomic_load_explicit(&p->mb, memory_order_relaxed);
    uint32_t rank = atomic_load_explicit(&p->rank, memory_order_relaxed);
    unsigned long long step = atomic_load_explicit(&p->step, memory_order_relaxed);
    if (state == PROGRESS_COMPUTING && what < TASK_COUNT)
        snprintf(buf, n, "computing %s%u of step %llu", task_kind_name(what), mb, step);
    else if ((state == PROGRESS_WAITING_FOR || state == PROGRESS_WAITING_TO) && what < MSG_COUNT)
        snprintf(buf, n, "waiting %s rank %u: %s %u of step %llu",
                 state == PROGRESS_WAITING_FOR ? "for" : "to send to", rank, msg_kind_name(what), mb, step);
    else
        snprintf(buf, n, "%s",
                 state == PROGRESS_ENDING ? "ending"
                 : state == PROGRESS_IDLE ? "waiting for the next message"
                                          : "starting");
}
