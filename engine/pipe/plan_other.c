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

/* Which way a unit goes, and in how many hops: the shorter one round the ring to a rank that holds
 * it, in line to and from rank 0, since those programs pass one piece behind the other. */
struct move {
    uint32_t from, to;
    bool is_down; /* towards lower ranks */
    size_t hops;
};

static struct move move_of(const struct build *b, size_t unit, uint32_t owner)
{
    const struct plan_request *req = b->req;
    if (req->program == PROGRAM_SAVE)
        return (struct move){owner, 0, true, owner};
    if (req->program == PROGRAM_LOAD)
        return (struct move){0, owner, false, owner};
    const uint32_t from = req->held_by[unit], ranks = (uint32_t)req->ranks;
    const size_t up = (owner + ranks - from) % ranks, down = (from + ranks - owner) % ranks;
    return (struct move){from, owner, down < up, down < up ? down : up};
}

/* A tied embedding that comes in goes on to the head's copy of it with its last piece. That rank
 * takes it before anything else: what is sent first is awaited first. */
struct tied_copy {
    bool is_wanted, is_taken;
    uint32_t head;
    uint32_t last_piece; /* of the embedding */
};

static void add_tied(struct build *b, struct tied_copy *tied, struct task *put, uint32_t rank, uint32_t piece)
{
    if (!tied->is_wanted)
        return;
    if (rank == 0 && piece == tied->last_piece)
        build_emit(b, put, MSG_TIED_WEIGHT, 0, tied->head);
    if (rank == tied->head && piece > tied->last_piece && !tied->is_taken) {
        build_need(b, put, MSG_TIED_WEIGHT, 0, 0);
        tied->is_taken = true;
    }
}

static void move_piece(struct build *b, struct tied_copy *tied, const struct move *way, uint32_t piece)
{
    const size_t ranks = b->plan->ranks;
    uint32_t rank = way->from, before = way->from;
    for (size_t hop = 0; hop <= way->hops; hop++) {
        const uint32_t next = way->is_down ? plan_prev(ranks, rank) : plan_next(ranks, rank);
        struct task *put = build_add(b, TASK_PUT, rank, piece);
        add_tied(b, tied, put, rank, piece);
        if (hop > 0)
            build_need(b, put, MSG_PARAM, piece, before);
        if (hop < way->hops)
            build_emit(b, put, MSG_PARAM, piece, next);
        before = rank;
        rank = next;
    }
}

/* Piece by piece; here stages are ranks. */
void build_moves(struct build *b)
{
    const size_t *first = b->req->first, *pieces = b->req->pieces;
    const uint32_t stages = (uint32_t)(b->req->stages ? b->req->stages : b->req->ranks);
    const size_t layers = first[stages];
    const uint32_t head = owner_of(b, stages - 1);
    struct tied_copy tied = {.is_wanted = b->req->tied && b->req->program != PROGRAM_SAVE && head > 0,
                             .head = head,
                             .last_piece = (uint32_t)pieces[1] - 1};
    uint32_t stage = 0;
    for (size_t unit = 0; unit < layers + 2; unit++) {
        while (unit > 0 && unit <= layers && first[stage + 1] < unit)
            stage++;
        const struct move way = move_of(b, unit, unit > layers ? head : owner_of(b, unit ? stage : 0));
        for (uint32_t piece = (uint32_t)pieces[unit]; piece < pieces[unit + 1]; piece++)
            move_piece(b, &tied, &way, piece);
    }
}
