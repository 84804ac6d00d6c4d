/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/held_files.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void keep_from(struct held_files *f, size_t first)
{
    for (size_t i = 0; i < first; i++)
        close(f->file[i].fd);
    memmove(f->file, f->file + first, (f->n - first) * sizeof *f->file);
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

void held_files_whole(struct held_files *f)
{
    if (f->n)
        f->file[f->n - 1].is_whole = true;
}

/* No node has let go of earlier files for one that is not whole here. Of whole ones, whose
 * processes all ended before their second step was safe, the oldest may be the only one that all
 * nodes have, and the newest have what was done since. */
static void make_room(struct held_files *f)
{
    size_t i = 0;
    while (i < f->n && f->file[i].is_whole)
        i++;
    if (i == f->n)
        i = 1;
    close(f->file[i].fd);
    memmove(f->file + i, f->file + i + 1, (--f->n - i) * sizeof *f->file);
}

bool held_files_are_of(const struct held_files *f, const uint8_t head[16], uint64_t job, uint64_t submitted)
{
    return f->job == job && f->submitted == submitted && !memcmp(f->head, head, 16);
}

int held_files_begin(struct held_files *f, const uint8_t head[16], uint64_t job, uint64_t submitted)
{
    if (!held_files_are_of(f, head, job, submitted))
        held_files_drop(f);
    else if (f->n && !f->has_run)
        close(f->file[--f->n].fd);
    f->job = job;
    f->submitted = submitted;
    f->has_run = true; /* of those that are left, each */
    memcpy(f->head, head, 16);
    const int fd = memfd_create("ringd-copies", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (f->n == HELD_FILES_MAX)
        make_room(f);
    f->file[f->n].fd = fd;
    f->file[f->n++].is_whole = false;
    f->has_run = false;
    return 0;
}
