/* SPDX-License-Identifier: MIT
 *
 * aside.h without threads: a piece of work is done a while later, in one moment. Files of jobs are
 * none here: a dossier has no inputs, and a result that comes home has nothing in it. */
#include "tests/sim/cluster/sim.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/deputy/file_set.h"

struct sim_piece {
    struct sim_event event;
    struct sim_piece *next;
    struct aside_work *work;
};

static struct sim_piece **place_of(struct sim_node *n, const struct sim_piece *p)
{
    struct sim_piece **at = &n->pieces;
    while (*at != p)
        at = &(*at)->next;
    return at;
}

static void on_piece(struct sim_event *e)
{
    struct sim_piece *p = (struct sim_piece *)e;
    struct aside_work *w = p->work;
    *place_of(e->node, p) = p->next;
    free(p);
    w->run(w);
    (w->is_left ? w->drop : w->done)(w);
}

int aside_run(struct aside *a, struct aside_work *w)
{
    struct sim_node *n = (struct sim_node *)a;
    struct sim_piece *p = xcalloc(1, sizeof *p);
    *p = (struct sim_piece){.event = {.node = n, .run = on_piece}, .next = n->pieces, .work = w};
    n->pieces = p;
    sim_at(&p->event, n->slow_disk_us + sim_span(SIM_MS, 500 * SIM_MS));
    return 0;
}

void sim_aside_stop(struct sim_node *n)
{
    for (struct sim_piece *p; (p = n->pieces);) {
        n->pieces = p->next;
        sim_cancel(&p->event);
        p->work->drop(p->work);
        free(p);
    }
}

int __wrap_file_set_of_inputs(struct file_set **ret, const json_t *spec, struct loan *loan, struct err *err);
int __wrap_file_set_of_inputs(struct file_set **ret, const json_t *spec, struct loan *loan, struct err *err)
{
    (void)spec, (void)loan;
    return file_set_of_folder(ret, "/a folder that is not there", err);
}
