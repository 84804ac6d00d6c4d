/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_schedule.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/file/input.h"
#include "engine/pipe/sched_text.h"

int stage_schedule_read(struct head *h, struct err *err)
{
    const char *path = h->spec.schedule;
    char *text = NULL;
    size_t n = 0;
    int r = input_read(path, JOB_ORDER_MAX, &text, &n, err);
    if (r == -EFBIG || (!r && strlen(text) != n))
        r = err_set(err, -EINVAL, "--schedule %s is no text of at most %d KiB", path, JOB_ORDER_MAX >> 10);
    else if (r)
        r = err_set(err, r, "--schedule %s is no built-in schedule, and no file the daemon can read: %s",
                    path, strerror(-r));
    free(h->plan.order); /* of a try on other nodes */
    h->plan.order = r ? NULL : text;
    if (r)
        free(text);
    return r;
}

/* As it travels: nothing but tasks. */
static int write_order(struct job_plan *p, const struct sched *sched, struct err *err)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    int e = to ? sched_write(to, sched, false, err) : err_set(err, -ENOMEM, "out of memory");
    if (to && fclose(to) && !e)
        e = err_set(err, -ENOMEM, "out of memory");
    if (e) {
        free(text);
        return e;
    }
    free(p->order);
    p->order = text;
    snprintf(p->schedule, sizeof p->schedule, "own");
    return 0;
}

int stage_schedule_make(struct head *h, struct sched **ret, struct err *err)
{
    struct job_plan *p = &h->plan;
    if (p->nmore && !sched_info(p->schedule))
        return err_set(err, -EINVAL,
                       "--schedule %s orders one step, but --sweep trains several adapters together: use a "
                       "built-in schedule, such as 1f1b",
                       p->schedule);
    int e = sched_info(p->schedule) ? 0 : stage_schedule_read(h, err);
    if (e)
        return e;
    struct sched_request req = {.name = p->schedule,
                                .text = p->order,
                                .ranks = job_plan_places(p),
                                .chunks = h->spec.chunks,
                                .microbatches = p->replicas ? job_plan_first_microbatch(p, 1, p->microbatches)
                                                            : p->microbatches,
                                .groups = job_plan_own_groups(p, 0, p->microbatches)};
    e = sched_make(ret, &req, err);
    if (e)
        return err_prefix(err, e, "--schedule %s", h->spec.schedule);
    if (p->order && !p->replicas && !plan_keeps_groups(*ret, p->groups, p->microbatches, 0, 1))
        p->groups = 1; /* an order that comes back to microbatches it has left */
    return p->order ? write_order(p, *ret, err) : 0;
}
