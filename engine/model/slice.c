/* SPDX-License-Identifier: MIT */
#include "model/slice.h"

#include <errno.h>

/* Rows of a thread's share in few and many products alike. */
enum { TOGETHER = 64 };

struct slice_rows slice_rows(struct slice s, size_t rows, size_t grain)
{
    if (!slice_is_part(s) || !grain)
        return (struct slice_rows){0, rows};
    const size_t unit = grain != SLICE_ANY           ? grain
                        : rows >= TOGETHER * s.count ? TOGETHER
                                                     : 1,
                 units = (rows + unit - 1) / unit;
    const size_t first = units * s.index / s.count * unit, end = units * (s.index + 1) / s.count * unit;
    return (struct slice_rows){first, (end < rows ? end : rows) - first};
}

struct config slice_config(const struct config *c, struct slice s)
{
    struct config own = *c;
    if (!slice_is_part(s))
        return own;
    own.heads = slice_rows(s, c->heads, c->heads / c->kv_heads).n;
    own.kv_heads = slice_rows(s, c->kv_heads, 1).n;
    own.ffn = slice_rows(s, c->ffn, SLICE_ANY).n;
    own.moe.ffn = slice_rows(s, c->moe.ffn, SLICE_ANY).n;
    own.moe.shared_ffn = slice_rows(s, c->moe.shared_ffn, SLICE_ANY).n;
    return own;
}

/* What a slice has no form for, or NULL. */
static const char *unshared(const struct config *c)
{
    return c->mla.kv_rank                      ? "latent attention"
           : config_has_state(c, 0, c->layers) ? "linear attention"
           : c->fused                          ? "queries, keys and values in one matrix"
           : c->qk_norm && c->qk_norm_whole    ? "norms over all heads at once"
           : c->fp8                            ? "weights in FP8"
                                               : NULL;
}

/* And what one that trains has none for. */
static const char *untrained(const struct config *c)
{
    return c->moe.shared_gate ? "a gate on shared experts" : NULL;
}

static size_t least(size_t a, size_t b)
{
    return b && b < a ? b : a;
}

int slice_check(const struct config *c, size_t count, bool training, struct err *err)
{
    const char *what = unshared(c);
    what = what ? what : training ? untrained(c) : NULL;
    const size_t columns =
        least(least(least(least(c->dim, c->ffn), c->moe.ffn), c->moe.shared_ffn), c->vocab);
    if (count < 2)
        return 0;
    if (count > SLICE_MOST)
        return err_set(err, -EINVAL, "a stage is shared by at most %d nodes, not %zu: lower tp", SLICE_MOST,
                       count);
    if (what)
        return err_set(err, -ENOTSUP,
                       "a %s model has %s, which several nodes cannot share yet%s: leave out tp, and give pp",
                       c->family, what, training ? " while they train" : "");
    if (c->kv_heads < count || columns < count)
        return err_set(err, -EINVAL,
                       "this model has %zu KV head%s, so at most %zu node%s can share a stage: lower tp",
                       c->kv_heads, c->kv_heads == 1 ? "" : "s", least(c->kv_heads, columns),
                       least(c->kv_heads, columns) == 1 ? "" : "s");
    return 0;
}
