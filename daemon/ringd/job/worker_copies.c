/* SPDX-License-Identifier: MIT
 *
 * The files that a stage process leaves copies in, in memory and on the disk, and the lines of rank
 * 0 that belong to them. */
#include "daemon/ringd/job/worker_impl.h"

#include <string.h>

#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/survive/held_disk.h"

static int give_file(struct worker *w, int fd, bool on_disk)
{
    return spawn_send_file(w->stage, json_pack("{s:s s:b}", "do", "hold", "disk", (int)on_disk), fd);
}

int worker_give_files(struct worker *w)
{
    int before[HELD_DISK_MAX], disk;
    if (!w->trains)
        return 0;
    if (!held_files_are_of(&w->held, w->origin.head, w->origin.job, w->submitted))
        line_log_clear(&w->lines);
    const size_t n = held_disk_begin(w->setup.held_disk, w->origin.head, w->origin.job, before, &disk);
    int r = held_files_begin(&w->held, w->origin.head, w->origin.job, w->submitted);
    for (size_t i = 0; i < n && !r; i++)
        r = give_file(w, before[i], false);
    for (size_t i = 0; i < w->held.n && !r; i++)
        r = give_file(w, w->held.file[i].fd, false);
    if (!r && disk >= 0)
        r = give_file(w, disk, true);
    return r;
}

void worker_kept(struct worker *w, const json_t *event)
{
    if (w->state == WORKER_RUNNING)
        worker_tell(w, "job-event", json_pack("{s:O}", "event", (json_t *)event));
}

void worker_drop_memory(struct worker *w, const uint8_t head[16], uint64_t job)
{
    if (memcmp(w->held.head, head, 16) != 0 || job != w->held.job)
        return;
    held_files_drop(&w->held);
    line_log_clear(&w->lines);
}

void worker_drop_copies(struct worker *w)
{
    worker_drop_memory(w, w->origin.head, w->origin.job);
    held_disk_drop(w->setup.held_disk, w->origin.head, w->origin.job);
}

void worker_drop_kept(struct worker *w)
{
    held_files_drop(&w->held);
    line_log_clear(&w->lines);
    if (w->state == WORKER_IDLE && w->trains)
        worker_drop_stage(w);
}

void worker_settle_copies(struct worker *w, const json_t *event)
{
    if (json_is_true(json_object_get(event, "disk")))
        held_disk_settled(w->setup.held_disk);
    else
        held_files_settled(&w->held);
}

void worker_name_copies(struct worker *w, const json_t *event)
{
    if (w->setup.held_disk)
        held_disk_kept(w->setup.held_disk, event);
    else
        worker_kept(w, event);
}

void worker_take_kept(struct worker *w, const json_t *body)
{
    if (w->state == WORKER_RUNNING)
        worker_say(w, json_pack("{s:s s:O s:O}", "do", "kept", "step", json_object_get(body, "step"), "whole",
                                json_object_get(body, "whole")));
}
