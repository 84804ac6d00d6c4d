/* SPDX-License-Identifier: MIT
 *
 * One allocation carved into named pieces. The same function that carves also measures: run it over
 * a slab without memory and `used` is the size to allocate. So a layout is one list, never a size
 * here and a pointer there. */
#ifndef NUM_SLAB_H
#define NUM_SLAB_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

struct slab {
    char *base;    /* NULL while measuring */
    size_t used;   /* bytes handed out, each piece rounded up to a cache line */
    bool overflow; /* a product or sum did not fit size_t; slab_alloc then refuses */
    bool overlaps; /* its memory is carved in several ways, of which one is in use at a time. Gaps
                      between pieces (poison.h) would lie in pieces of another way: none are marked */
};

/* n·m elements of `size` bytes, 64-byte aligned; NULL while measuring. With AddressSanitizer what
 * lies between two pieces must not be touched. */
void *slab_take(struct slab *slab, size_t n, size_t m, size_t size);
static inline float *slab_floats(struct slab *slab, size_t n, size_t m)
{
    return slab_take(slab, n, m, sizeof(float));
}

/* After two ways of carving what follows, of which one is in use at a time: `slab` ends where the
 * longer does.
 */
void slab_join(struct slab *slab, const struct slab *other);

/* Gives a measured slab its memory (zero pages, not touched, so unused parts cost nothing) and
 * rewinds it for carving. `what` names it in the sentence when memory is short. */
int slab_alloc(struct slab *slab, const char *what, struct err *err);
void slab_free(struct slab *slab);

#endif
