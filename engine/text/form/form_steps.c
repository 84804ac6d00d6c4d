/* SPDX-License-Identifier: MIT */
#include "text/form/form_compile.h"

#include <errno.h>
#include <string.h>

#include "text/textbuf.h"

static uint32_t too_large(struct form_maker *m)
{
    form_draft_fail(m->d, -E2BIG, "the form is too large: make it simpler, or its repetitions shorter");
    return 0;
}

uint32_t form_op_add(struct form_maker *m, enum form_op_kind kind, uint32_t next, uint32_t other)
{
    struct form *f = m->form;
    void *ops = f->ops;
    if (m->d->failed || f->nops == FORM_OPS_MAX ||
        array_reserve(&ops, &m->ops_cap, f->nops + 1, sizeof *f->ops))
        return too_large(m);
    f->ops = ops;
    f->ops[f->nops] = (struct form_op){kind, next, other};
    return (uint32_t)f->nops++;
}

uint32_t form_bytes_add(struct form_maker *m, const struct form_edge *edges, size_t n)
{
    struct form *f = m->form;
    void *all = f->edges;
    if (m->d->failed || f->nedges + n > 2 * FORM_OPS_MAX ||
        array_reserve(&all, &m->edges_cap, f->nedges + n + 1, sizeof *f->edges))
        return too_large(m);
    f->edges = all;
    if (n)
        memcpy(f->edges + f->nedges, edges, n * sizeof *edges);
    f->nedges += n;
    return form_op_add(m, FORM_BYTES, (uint32_t)(f->nedges - n), (uint32_t)n);
}
