/* SPDX-License-Identifier: MIT
 *
 * Which units each stage holds. Units are: 0 = embedding, 1 … layers = transformer layers, layers +
 * 1 = final norm and head. The embedding always lies on stage 0, the head on the last; a stage may
 * hold no layer. */
#ifndef PIPE_SPLIT_H
#define PIPE_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct split_request {
    size_t stages, layers;
    const double *unit_cost; /* [layers + 2], any unit; NULL = every layer 1, embedding and head 0 */
    /* [stages] lists of [layers + 2], all borrowed, of which several may be one: bytes that a unit
     * takes on the node of that stage beyond what the node has of it already. NULL: no memory. */
    const size_t *const *unit_bytes;
    const double *speed;  /* [stages] relative speed of the node of each stage, or NULL = equal */
    const size_t *memory; /* [stages] bytes available, or NULL = unlimited */
    /* As unit_bytes: bytes of a unit that have yet to come to the node of that stage. NULL: no
     * matter. */
    const size_t *const *unit_lacks;
    double
        slack; /* with unit_lacks: a largest share longer by this part of it is as good, if less has to come */
};

/* Layers first[s] … first[s+1]−1 (0-based) go to stage s; ret_first has stages + 1 entries,
 * first[0] = 0, first[stages] = layers. Minimises the largest unit_cost sum / speed (embedding and
 * head count for their stages), ties resolved towards even counts, within memory; −ENOSPC with the
 * sentence naming the first stage that cannot hold its share and the figures. Where units have to
 * come to nodes, it takes the split for which fewest bytes have to, of all whose largest share is
 * within `slack`. Exact (dynamic programming). Deterministic. */
int split_layers(size_t *ret_first, const struct split_request *req, struct err *err);

/* What has to come for that split, by the request's unit_lacks; SIZE_MAX: more than can be
 * counted. */
size_t split_lacks(const size_t *first, const struct split_request *req);

/* The stages that n splits of as many layers have in common: cut wherever one of them is. first:
 * [n] lists of stages[i] + 1 entries; ret_first: room for the sum of stages + 1 entries; ret_place:
 * [n] lists with room for the sum of stages, in which stage of split i each of the common ones
 * lies. Returns how many there are. */
size_t split_refine(size_t *ret_first, uint32_t *const *ret_place, const size_t *const *first,
                    const size_t *stages, size_t n);

/* Every layer exactly once? The same check is made at plan, at load and at start. */
int split_check(const size_t *first, size_t stages, size_t layers, struct err *err);

#endif
