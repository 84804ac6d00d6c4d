/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/hold/held_memory.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/task/slice_lanes.h"
#include "daemon/stage/train/saver.h"

#include "model/param_piece.h"

/* Measured on x86-64: pages of the program and its libraries that are touched; what OpenBLAS and
 * our kernels pack matrices into; what sealing and opening want for each neighbour. */
enum { PROGRAM = 8 << 20, PER_THREAD = 3 << 20, PER_NEIGHBOUR = 1 << 20 };

/* A message is being received while the one before it is computed with and the answer waits to
 * leave. */
enum { MESSAGES = 3, PIECES = 3, PIECES_AT_END = 2, TIED = 2 };

/* Of any adapter. */
static int largest_piece(size_t *ret, const struct job_plan *p, const struct config *c, struct err *err)
{
    for (size_t a = 0; a <= p->nmore; a++) {
        struct param_pieces pieces;
        int r = param_pieces_make(&pieces, job_plan_tune(p, a), family_find(c->family), c, true, err);
        if (r)
            return r;
        const size_t bytes = param_pieces_largest(&pieces) * sizeof(float);
        *ret = bytes > *ret ? bytes : *ret;
        param_pieces_done(&pieces);
    }
    return 0;
}

int stage_room(size_t *ret, const struct job_plan *p, const struct config *c, size_t rank, size_t threads,
               struct err *err)
{
    const size_t pipeline = job_plan_pipeline_of(p, rank), places = job_plan_places_of(p, pipeline),
                 place = job_plan_place_of(p, rank);
    const bool end = p->stages == places && (place == 0 || place + 1 == places);
    const uint32_t embed = job_plan_rank_at(p, pipeline, 0),
                   head = job_plan_rank_at(p, pipeline, p->stages - 1);
    const bool tied = p->training && p->tune.kind == TUNE_FULL && c->tied && embed != head;
    const size_t values = p->tokens * p->dim;
    const size_t neighbours = (size_t)__builtin_popcount(job_plan_talks(p, rank));
    size_t bytes = PROGRAM + threads * PER_THREAD + neighbours * PER_NEIGHBOUR, piece = 0, held = 0;
    int r = p->training ? largest_piece(&piece, p, c, err) : 0;
    if (!r)
        r = held_bytes(&held, p, c, (uint32_t)rank, err);
    if (r)
        return r;
    bytes += held + (rank == 0 ? p->draft_bytes : 0);
    if (p->ranks > 1) {
        bytes += MESSAGES * (p->training && !end ? 2 : 1) * values * sizeof(float);
        bytes += (end ? PIECES_AT_END : PIECES) * piece;
        if (tied && (rank == embed || rank == head))
            bytes += TIED * c->vocab * c->dim * sizeof(float);
    } else {
        bytes += piece;
    }
    bytes += slice_lanes_bytes(p);
    if (p->replicas) /* of each part those of all replicas are here, while the next ones come */
        bytes += 2 * p->replicas * replicas_part_bytes(p);
    if (p->training && rank == 0)
        bytes += saver_bytes(p, c);
    *ret = bytes;
    return 0;
}

int stage_chunks(struct stage_bytes *ret, const struct job_plan *p, const struct config *c, size_t rank,
                 struct err *err)
{
    struct stage_bytes all = {0}, one;
    for (size_t s = 0; s < p->stages; s++) {
        const struct stage_spec spec = job_plan_stage(p, c, s, job_plan_pipeline_of(p, rank));
        int r = job_plan_is_at(p, s, rank) ? stage_measure(&one, &spec, err) : 0;
        if (r)
            return r;
        if (!job_plan_is_at(p, s, rank))
            continue;
        all.mapped += one.mapped;
        all.params += one.params;
        all.slots += one.slots;
        all.work = one.work > all.work ? one.work : all.work;
        all.kv += one.kv;
    }
    all.total = all.mapped + all.params + all.slots + all.work + all.kv;
    *ret = all;
    return 0;
}
