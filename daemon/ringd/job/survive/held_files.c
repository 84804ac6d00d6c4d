/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/held_files.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void keep_from(struct held_files *f, size_t first)
{
    for (size_t i = 0; i < first; i++)
        close(f->fd[i]);
    memmove(f->fd, f->fd + first, (f->n - first) * sizeof *f->fd);
    f->n -= first;
}

void held_files_settled(struct held_files *f)
{
    if (f->n > 1)
        keep_from(f, f->n - 1);
}

void held_files_drop(struct held_files *f)
{
    keep_from(f, f->n);
}

void held_files_run(struct held_files *f)
{
    f->has_run = true;
}

int held_files_begin(struct held_files *f, const uint8_t head[16], uint64_t job)
{
    if (f->job != job || memcmp(f->head, head, 16) != 0)
        held_files_drop(f);
    else if (f->n && !f->has_run)
        close(f->fd[--f->n]);
    f->job = job;
    f->has_run = false;
    memcpy(f->head, head, 16);
    const int fd = memfd_create("ringd-copies", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    /* Of processes that ended before their second step was safe, the oldest file may be the only
     * whole one, and the newest have what was done since. */
    if (f->n == HELD_FILES_MAX) {
        close(f->fd[1]);
        memmove(f->fd + 1, f->fd + 2, (--f->n - 1) * sizeof *f->fd);
    }
    f->fd[f->n++] = fd;
    return 0;
}
