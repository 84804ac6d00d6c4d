/* SPDX-License-Identifier: MIT
 *
 * Which ranks make up the pipelines of a plan, and which of them exchange messages. Pure; any
 * thread. */
#include "pipe/plan.h"

static bool are_neighbours(size_t n, size_t a, size_t b)
{
    return a != b && ((a + 1) % n == b || (b + 1) % n == a);
}

struct plan_shape plan_shape_equal(size_t ranks, size_t pipelines, const uint32_t *place)
{
    struct plan_shape shape = {.pipelines = pipelines};
    for (size_t d = 0; d <= pipelines; d++)
        shape.first[d] = d * (ranks / pipelines);
    for (size_t d = 0; d < pipelines; d++)
        shape.place[d] = place;
    return shape;
}

size_t plan_shape_pipeline(const struct plan_shape *shape, size_t rank)
{
    size_t d = 0;
    while (d + 1 < shape->pipelines && rank >= shape->first[d + 1])
        d++;
    return d;
}

uint32_t plan_shape_place(const struct plan_shape *shape, size_t rank)
{
    const size_t d = plan_shape_pipeline(shape, rank);
    return (uint32_t)(d % 2 ? shape->first[d + 1] - 1 - rank : rank - shape->first[d]);
}

bool plan_ranks_talk(const struct plan_shape *shape, size_t stages, size_t a, size_t b)
{
    const size_t of_a = plan_shape_pipeline(shape, a), of_b = plan_shape_pipeline(shape, b);
    if (a == b || are_neighbours(shape->first[shape->pipelines], a, b))
        return a != b;
    if (of_a == of_b)
        return are_neighbours(plan_shape_places(shape, of_a), plan_shape_place(shape, a),
                              plan_shape_place(shape, b));
    for (size_t s = 0; s < stages; s++)
        if (plan_shape_stage(shape, of_a, s) == a && plan_shape_stage(shape, of_b, s) == b)
            return true;
    return false;
}
