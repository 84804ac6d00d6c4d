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

int held_files_begin(struct held_files *f, const uint8_t head[16], uint64_t job)
{
    if (f->job != job || memcmp(f->head, head, 16) != 0)
        held_files_drop(f);
    f->job = job;
    memcpy(f->head, head, 16);
    const int fd = memfd_create("ringd-copies", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    /* Processes that ended before their first step was safe left little: the oldest of all may be
     * the only whole one. */
    if (f->n == HELD_FILES_MAX)
        close(f->fd[--f->n]);
    f->fd[f->n++] = fd;
    return 0;
}
