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
    return next < w->b->own && (stage == 0 || w->before[stage - 1] > next);
}

static void take_losses(struct param_sweep *w)
{
    size_t open = build_places(w->b);
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
        for (uint32_t r = 0; r < build_places(b); r++)
            sweep_rank(&w, plan_shape_rank(&b->shape, b->pipeline, r));
    }
    while (!b->no_memory && w.taken < b->own)
        build_loss(b, (uint32_t)w.taken++);
    free(w.done);
    free(w.before);
}

/* --- generation ------------------------------------------------------------------------------- */

/* One slice of the first replica. */
static void build_decode_one(struct build *b)
{
    uint32_t final = (uint32_t)b->plan->microbatches - 1;
    const bool yields = b->req->want_token && !b->pipeline;
    for (uint32_t s = 0; s <= b->last; s++)
        for (uint32_t i = 0; i <= final; i++) {
            struct task *task = build_forward(b, s, i, false);
            if (yields && s == b->last && i == final)
                build_emit(b, task, MSG_TOKEN, final, 0);
        }
    if (yields)
        build_need(b, build_add(b, TASK_TOKEN, 0, final), MSG_TOKEN, final, b->last);
}

void build_decode(struct build *b)
{
    for (b->pipeline = 0; b->pipeline < request_slices(b->req); b->pipeline++) {
        build_rows(b);
        build_decode_one(b);
    }
}

/* --- parameters ------------------------------------------------------------------------------- */

/* The rank that has a stage in a pipeline. */
static uint32_t owner_of(const struct build *b, size_t pipeline, uint32_t stage)
{
    return plan_shape_stage(&b->shape, pipeline, stage);
}

/* Of the first slices: the others have the same moments. */
static uint32_t farthest(const struct build *b, uint32_t stage)
{
    uint32_t most = 0;
    for (size_t d = 0; d < b->plan->pipelines; d += request_slices(b->req))
        most = owner_of(b, d, stage) > most ? owner_of(b, d, stage) : most;
    return most;
}

/* Which way a unit goes, and in how many hops: the shorter one round the ring to a rank that holds
 * it, in line to and from rank 0, since those programs pass one piece behind the other. To several
 * pipelines it goes up the ring, past all of them. */
struct move {
    uint32_t from;
    bool is_down; /* towards lower ranks */
    size_t hops;
};

static struct move move_of(const struct build *b, size_t unit, uint32_t stage)
{
    const struct plan_request *req = b->req;
    const uint32_t ranks = (uint32_t)req->ranks, owner = owner_of(b, 0, stage);
    if (req->program == PROGRAM_SAVE) {
        /* Past all that have moments of it. */
        const uint32_t from = req->divided ? farthest(b, stage) : owner;
        return (struct move){from, true, from};
    }
    const uint32_t from = req->program == PROGRAM_LOAD ? 0 : req->held_by[unit];
    size_t up = 0;
    for (size_t d = 0; d < b->plan->pipelines; d++) {
        const size_t hops = (owner_of(b, d, stage) + ranks - from) % ranks;
        up = hops > up ? hops : up;
    }
    const size_t down = (from + ranks - owner) % ranks;
    const bool is_down = req->program == PROGRAM_RESTORE && b->plan->pipelines == 1 && down < up;
    return (struct move){from, is_down, is_down ? down : up};
}

/* A tied embedding that comes in goes on to the head's copy of it with its last piece. That rank
 * takes it before anything else: what is sent first is awaited first. */
struct tied_copy {
    bool is_wanted, is_taken[PLAN_MAX_REPLICAS];
    uint32_t last;       /* stage */
    uint32_t last_piece; /* of the embedding */
};

static void add_tied(struct build *b, struct tied_copy *tied, struct task *put, uint32_t rank, uint32_t piece)
{
    if (!tied->is_wanted)
        return;
    const size_t pipeline = plan_shape_pipeline(&b->shape, rank);
    const uint32_t embed = owner_of(b, pipeline, 0), head = owner_of(b, pipeline, tied->last);
    if (embed == head)
        return;
    if (rank == embed && piece == tied->last_piece)
        build_emit(b, put, MSG_TIED_WEIGHT, 0, head);
    if (rank == head && piece > tied->last_piece && !tied->is_taken[pipeline]) {
        build_need(b, put, MSG_TIED_WEIGHT, 0, embed);
        tied->is_taken[pipeline] = true;
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
    const struct plan_request *req = b->req;
    const size_t *first = req->first, *pieces = req->pieces;
    const uint32_t stages = (uint32_t)request_stages(req);
    const size_t layers = first[stages];
    struct tied_copy tied = {.is_wanted = req->tied && req->program != PROGRAM_SAVE,
                             .last = stages - 1,
                             .last_piece = (uint32_t)pieces[1] - 1};
    uint32_t stage = 0;
    for (size_t unit = 0; unit < layers + 2; unit++) {
        while (unit > 0 && unit <= layers && first[stage + 1] < unit)
            stage++;
        const struct move way = move_of(b, unit, unit > layers ? stages - 1 : unit ? stage : 0);
        for (uint32_t piece = (uint32_t)pieces[unit]; piece < pieces[unit + 1]; piece++)
            move_piece(b, &tied, &way, piece);
    }
}
