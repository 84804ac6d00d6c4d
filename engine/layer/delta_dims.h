/* SPDX-License-Identifier: MIT
 *
 * Sizes of the gated delta rule (delta.h). */
#ifndef LAYER_DELTA_DIMS_H
#define LAYER_DELTA_DIMS_H

#include <stddef.h>

enum { DELTA_CHUNK = 64 /* tokens */ };

struct delta_dims {
    size_t key_heads, value_heads; /* value_heads % key_heads == 0: runs of them share a key head */
    size_t key, value;             /* widths of a head */
    size_t taps;                   /* of the convolution */
};

/* A row holds q and k of all key heads, then v of all value heads. */
static inline size_t delta_width(struct delta_dims d)
{
    return 2 * d.key_heads * d.key + d.value_heads * d.value;
}
/* Of the states of all heads. */
static inline size_t delta_state_floats(struct delta_dims d)
{
    return d.value_heads * d.key * d.value;
}
/* Of the inputs that the convolution still needs. */
static inline size_t delta_tail_floats(struct delta_dims d)
{
    return (d.taps - 1) * delta_width(d);
}
/* States that training saves. */
static inline size_t delta_saved(size_t tokens)
{
    return tokens / DELTA_CHUNK;
}

#endif
