/* SPDX-License-Identifier: MIT
 *
 * The built-in orders: what each rank does one after the other. Pure; called by sched_make alone. p
 * ranks, m microbatches, v stages ("chunks") on each rank, counted along the way of a
 * microbatch. */
#include "pipe/sched_impl.h"

static void push(struct sched_list *list, enum sched_op op, uint32_t stage, size_t mb)
{
    list->tasks[list->n++] = (struct sched_task){op, stage, (uint32_t)mb};
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- one stage per rank, whole backwards ------------------------------------------------------ */

/* Some forwards to fill the pipeline, then a forward and a backward in turn, then the backwards
 * that are left. */
static void fill(struct sched_list *list, uint32_t stage, size_t m, size_t warmup)
{
    size_t forward = 0;
    while (forward < warmup)
        push(list, OP_F, stage, forward++);
    for (size_t backward = 0; backward < m; backward++) {
        if (forward < m)
            push(list, OP_F, stage, forward++);
        push(list, OP_B, stage, backward);
    }
}

void order_naive(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    fill(list, rank, s->microbatches, 0);
}

void order_gpipe(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    fill(list, rank, s->microbatches, s->microbatches);
}

/* One for every rank that follows: the first gradient is back just when the last of them has been
 * sent off. */
void order_1f1b(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    fill(list, rank, s->microbatches, smaller(s->ranks - 1 - rank, s->microbatches));
}

/* Two for every rank that follows: a gradient may be late by as much as messages take. */
void order_eager(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    fill(list, rank, s->microbatches, smaller(2 * (s->ranks - 1 - rank), s->microbatches));
}

/* --- one stage per rank, backwards in halves -------------------------------------------------- */

/* As above, but a W is done only once `late` more I have been: it fills the gap at the end. */
static void fill_halves(struct sched_list *list, uint32_t stage, size_t m, size_t warmup, size_t late)
{
    size_t forward = 0, written = 0;
    while (forward < smaller(warmup, m))
        push(list, OP_F, stage, forward++);
    for (size_t backward = 0; backward < m; backward++) {
        if (forward < m)
            push(list, OP_F, stage, forward++);
        push(list, OP_I, stage, backward);
        if (backward >= late)
            push(list, OP_W, stage, written++);
    }
    while (written < m)
        push(list, OP_W, stage, written++);
}

void order_zb_h1(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    fill_halves(list, rank, s->microbatches, s->ranks - 1 - rank, rank);
}

void order_zb_h2(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    fill_halves(list, rank, s->microbatches, 2 * (s->ranks - 1 - rank), 2 * (size_t)rank);
}

/* --- stages in a loop ------------------------------------------------------------------------- */

/* Microbatches that go through all chunks before the next ones start: as even as m allows, and
 * never fewer than p at the end, or ranks would wait for a group to come round. */
static size_t group_size(size_t p, size_t m)
{
    size_t rounds = m / p ? m / p : 1;
    if (m % rounds == 0)
        return m / rounds;
    size_t g = p;
    while (g < m && m % g != 0 && m % g < p)
        g++;
    return g;
}

struct order_walk { /* over chunks and microbatches, group by group */
    size_t chunks, microbatches, group;
    size_t low, chunk, mb; /* where it stands: the group begins at low */
};

static struct order_walk walk_start(const struct sched *s)
{
    return (struct order_walk){
        s->stages / s->ranks, s->microbatches, group_size(s->ranks, s->microbatches), 0, 0, 0};
}

static void walk_on(struct order_walk *w)
{
    if (++w->mb < smaller(w->low + w->group, w->microbatches))
        return;
    if (++w->chunk < w->chunks) {
        w->mb = w->low;
        return;
    }
    w->chunk = 0;
    w->mb = w->low += w->group;
}

void order_interleaved(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    struct order_walk forward = walk_start(s), backward = forward;
    size_t total = forward.chunks * s->microbatches, done = 0;
    size_t warmup = (forward.chunks - 1) * forward.group + 2 * (s->ranks - 1 - rank);
    for (; done < smaller(warmup, total); done++, walk_on(&forward))
        push(list, OP_F, (uint32_t)(forward.chunk * s->ranks) + rank, forward.mb);
    for (size_t back = 0; back < total; back++, walk_on(&backward)) {
        if (done < total) {
            push(list, OP_F, (uint32_t)(forward.chunk * s->ranks) + rank, forward.mb);
            walk_on(&forward);
            done++;
        }
        push(list, OP_B, (uint32_t)((backward.chunks - 1 - backward.chunk) * s->ranks) + rank, backward.mb);
    }
}

void order_looped(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    for (uint32_t stage = rank; stage < s->stages; stage += (uint32_t)s->ranks)
        for (size_t mb = 0; mb < s->microbatches; mb++)
            push(list, OP_F, stage, mb);
    for (uint32_t stage = (uint32_t)s->stages; stage-- > 0;)
        for (size_t mb = s->microbatches; stage % s->ranks == rank && mb-- > 0;)
            push(list, OP_B, stage, mb);
}

/* --- there and back --------------------------------------------------------------------------- */

/* Two stages per rank, a on the way there and b on the way back. The shape is that of 2p − 1
 * microbatches or more; of fewer, what concerns the others is left out. With whole backwards W is
 * left to I. */
struct vee {
    struct sched_list *list;
    size_t microbatches;
    bool whole;
    size_t done[2][OP_B]; /* of a and b: how many of each kind */
};

static void vee_push(struct vee *v, uint32_t stage, int which, enum sched_op op)
{
    size_t mb = v->done[which][op]++;
    if (mb >= v->microbatches || (v->whole && op == OP_W))
        return;
    push(v->list, v->whole && op == OP_I ? OP_B : op, stage, mb);
}

static void fill_vee(struct sched_list *list, const struct sched *s, uint32_t rank, bool whole)
{
    enum { A, B };
    size_t p = s->ranks, m = s->microbatches, shape = 2 * p - 1 > m ? 2 * p - 1 : m;
    uint32_t a = rank, b = (uint32_t)(2 * p - 1) - rank;
    struct vee v = {.list = list, .microbatches = m, .whole = whole};
    for (size_t i = 0; i < 2 * (p - rank) - 1; i++)
        vee_push(&v, a, A, OP_F);
    for (size_t i = 0; i < rank; i++) {
        vee_push(&v, b, B, OP_F);
        vee_push(&v, a, A, OP_F);
    }
    for (size_t i = 0; i < p - rank; i++)
        for (enum sched_op op = OP_F; op < OP_B; op++)
            vee_push(&v, b, B, op);
    while (v.done[B][OP_F] < shape) {
        for (enum sched_op op = v.done[A][OP_F] < shape ? OP_F : OP_I; op < OP_B; op++)
            vee_push(&v, a, A, op);
        for (enum sched_op op = OP_F; op < OP_B; op++)
            vee_push(&v, b, B, op);
    }
    for (size_t i = 0; i < rank; i++) {
        vee_push(&v, a, A, OP_I);
        vee_push(&v, b, B, OP_I);
    }
    for (size_t i = 0; i < p - rank; i++) {
        vee_push(&v, a, A, OP_I);
        vee_push(&v, a, A, OP_W);
    }
    while (v.done[B][OP_W] < v.done[B][OP_I])
        vee_push(&v, b, B, OP_W);
    while (v.done[A][OP_W] < v.done[A][OP_I])
        vee_push(&v, a, A, OP_W);
}

void order_zbv(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    fill_vee(list, s, rank, false);
}

void order_v_1f1b(struct sched_list *list, const struct sched *s, uint32_t rank)
{
    fill_vee(list, s, rank, true);
}
