/* SPDX-License-Identifier: MIT
 *
 * The programs beside training: losses alone, generation, parameters on their way. Owns its
 * scratch. Pure; called by plan_compile. */
#include <stdlib.h>

#include "pipe/plan_impl.h"

/* --- losses ----------------------------------------------------------------------------------- */

/* Every rank does whatever is there, of several stages the one nearest to the end, so that little
 * waits in buffers; all tasks take one step of time. Stage 0 takes losses that are there once more
 * than `open` are not taken. */
struct param_sweep {
    struct build *b;
    size_t *done, *before; /* [stages] forwards of each stage; at the beginning of the present step */
    size_t taken;          /* losses */
    bool moved;
};

static bool can_forward(const struct param_sweep *w, uint32_t stage)
{
    size_t next = w->done[stage];
    return next < w->b->plan->microbatches && (stage == 0 || w->before[stage - 1] > next);
}

static void take_losses(struct param_sweep *w)
{
    size_t open = w->b->plan->ranks;
    while (w->before[0] > w->taken + open && w->before[w->b->last] > w->taken)
        build_loss(w->b, (uint32_t)w->taken++);
}

static void sweep_rank(struct param_sweep *w, uint32_t rank)
{
    if (rank == build_rank(w->b, 0))
        take_losses(w);
    for (uint32_t stage = w->b->last + 1; stage-- > 0;)
        if (build_rank(w->b, stage) == rank && can_forward(w, stage)) {
            build_forward_loss(w->b, stage, (uint32_t)w->done[stage]++, false);
            w->moved = true;
            return;
        }
}

void build_score(struct build *b)
{
    struct param_sweep w = {.b = b, .moved = true};
    w.done = calloc(b->last + 1, sizeof *w.done);
    w.before = calloc(b->last + 1, sizeof *w.before);
    b->no_memory = b->no_memory || !w.done || !w.before;
    while (w.moved && !b->no_memory) {
        w.moved = false;
        for (uint32_t s = 0; s <= b->last; s++)
            w.before[s] = w.done[s];
        for (uint32_t r = 0; r < b->plan->ranks; r++)
            sweep_rank(&w, r);
    }
    while (!b->no_memory && w.taken < b->plan->microbatches)
        build_loss(b, (uint32_t)w.taken++);
    free(w.done);
    free(w.before);
}

/* --- generation ------------------------------------------------------------------------------- */

void build_decode(struct build *b)
{
    uint32_t final = (uint32_t)b->plan->microbatches - 1;
    for (uint32_t s = 0; s <= b->last; s++)
        for (uint32_t i = 0; i <= final; i++) {
            struct task *task = build_forward(b, s, i, false);
            if (b->req->want_token && s == b->last && i == final)
                build_emit(b, task, MSG_TOKEN, final, 0);
        }
    if (b->req->want_token)
        build_need(b, build_add(b, TASK_TOKEN, 0, final), MSG_TOKEN, final, b->last);
}

/* --- parameters ------------------------------------------------------------------------------- */

static uint32_t owner_of(const struct build *b, uint32_t stage)
{
    return b->req->rank_of_stage ? b->req->rank_of_stage[stage] : stage;
}

/* Piece by piece between its owner and rank 0, through every rank that lies between: here stages
 * are ranks. A tied embedding that is loaded goes on to the head's copy of it with its last piece,
 * and that rank takes it before anything else: what is sent first is awaited first. */
void build_params(struct build *b, bool save)
{
    const size_t *first = b->req->first, *pieces = b->req->pieces;
    uint32_t stages = (uint32_t)(b->req->stages ? b->req->stages : b->req->ranks), stage = 0;
    size_t layers = first[stages], unit = 0;
    uint32_t head = owner_of(b, stages - 1);
    bool tied = b->req->tied && !save && head > 0, taken = false;
    for (uint32_t piece = 0; piece < pieces[layers + 2]; piece++) {
        while (piece >= pieces[unit + 1])
            unit++;
        while (unit > 0 && unit <= layers && first[stage + 1] < unit)
            stage++;
        uint32_t owner = unit > layers ? head : owner_of(b, unit ? stage : 0);
        for (uint32_t r = 0; r <= owner; r++) {
            struct task *put = build_add(b, TASK_PUT, r, piece);
            if (tied && piece + 1 == pieces[1])
                build_emit(b, put, MSG_TIED_WEIGHT, 0, head);
            if (tied && r == head && !taken) {
                build_need(b, put, MSG_TIED_WEIGHT, 0, 0);
                taken = true;
            }
            if (save ? r < owner : r > 0)
                build_need(b, put, MSG_PARAM, piece, save ? r + 1 : r - 1);
            if (save ? r > 0 : r < owner)
                build_emit(b, put, MSG_PARAM, piece, save ? r - 1 : r + 1);
        }
    }
}
