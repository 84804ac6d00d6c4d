/* SPDX-License-Identifier: MIT
 *
 * The tasks of a stage. Nothing is allocated here. */
#include "model/stage_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "num/vec.h"

struct part_gather *stage_gather(struct stage *s)
{
    return slice_is_part(s->spec.slice) ? &s->gather : NULL;
}

int stage_gathered(const struct stage *s, struct err *err)
{
    if (s->gather.failed)
        *err = s->gather.err;
    return s->gather.failed;
}

static struct block_ctx context(struct stage *s, const struct slot *slot)
{
    return (struct block_ctx){.num = s->num,
                              .config = &s->own,
                              .ropes = s->ropes,
                              .seqs = slot->seqs,
                              .pos = slot->pos,
                              .tokens = slot->tokens,
                              .gather = stage_gather(s)};
}

static size_t slot_floats(const struct stage *s, const struct slot *slot)
{
    return slot->tokens * s->spec.config.dim;
}

int stage_begin(struct stage *s, size_t at, struct seqs seqs, uint64_t drop, struct err *err)
{
    struct slot *slot = &s->slot[at];
    if (seqs.n > s->spec.seqs || seqs.start[seqs.n] > s->spec.tokens)
        return err_set(err, -E2BIG,
                       "a microbatch has %zu sequences and %u tokens, but the plan allows %zu and %zu",
                       seqs.n, seqs.start[seqs.n], s->spec.seqs, s->spec.tokens);
    for (size_t i = 0; i < seqs.n; i++) {
        uint32_t len = seqs.start[i + 1] - seqs.start[i];
        if (len > s->spec.positions)
            return err_set(err, -E2BIG, "a sequence of %u tokens is longer than the plan's %zu", len,
                           s->spec.positions);
    }
    memcpy(slot->start, seqs.start, (seqs.n + 1) * sizeof *slot->start);
    slot->seqs = (struct seqs){seqs.n, slot->start};
    slot->tokens = seqs.start[seqs.n];
    slot->drop = drop;
    slot->group = 0;
    for (size_t i = 0; i < seqs.n; i++) {
        const size_t row = stage_first_row(s, seqs.start[i + 1] - seqs.start[i]);
        for (uint32_t t = seqs.start[i]; t < seqs.start[i + 1]; t++)
            slot->pos[t] = (uint32_t)(row + t - seqs.start[i]);
    }
    return 0;
}

void stage_use_group(struct stage *s, size_t at, size_t group)
{
    s->slot[at].group = group;
}

size_t stage_first_row(const struct stage *s, size_t longest)
{
    return config_is_long(&s->spec.config, longest) ? s->long_row : 0;
}

void stage_embed(const struct stage *s, float *y, const uint32_t *ids, size_t n)
{
    const struct config *c = &s->spec.config;
    embed_forward(s->num, y, ids, s->embed->block.weights.lin[0].w, n);
    if (c->embed_scale > 0)
        vec_scale(s->num, y, (float)c->embed_scale, n * c->dim);
}

int stage_check_ids(const struct stage *s, const uint32_t *ids, size_t n, struct err *err)
{
    for (size_t t = 0; t < n; t++)
        if (ids[t] >= s->spec.config.vocab)
            return err_set(err, -ERANGE, "token %u is outside the model's vocabulary of %zu", ids[t],
                           s->spec.config.vocab);
    return 0;
}

int stage_input_ids(struct stage *s, size_t at, const uint32_t *ids, struct err *err)
{
    struct slot *slot = &s->slot[at];
    int r = stage_check_ids(s, ids, slot->tokens, err);
    if (r)
        return r;
    memcpy(slot->ids, ids, slot->tokens * sizeof *ids);
    stage_embed(s, slot->input, slot->ids, slot->tokens);
    return 0;
}

void stage_input(struct stage *s, size_t at, const float *x)
{
    memcpy(s->slot[at].input, x, slot_floats(s, &s->slot[at]) * sizeof *x);
}

/* Before a layer computes. Dropout masks belong to a layer, a linear, a step and a microbatch, and
 * to nothing else: backward draws the same. Number 0 draws none. */
static void make_ready(const struct stage *s, struct unit *u, uint64_t drop)
{
    unit_ready(u, s->num);
    if (!s->tune || s->tune->dropout <= 0)
        return;
    for (size_t t = 0; t < u->ntensors; t++) {
        if (!u->block.weights.lin[t].lora)
            continue;
        u->lora[t].dropout = drop ? s->tune->dropout : 0;
        if (!drop)
            continue;
        char purpose[TENSOR_NAME + 40];
        snprintf(purpose, sizeof purpose, "dropout/%llu/%s", (unsigned long long)drop, u->defs[t].name);
        u->lora[t].drop = rng_for(s->tune->seed, purpose);
    }
}

void stage_set_noise(const struct stage *s, const struct slot *slot)
{
    char purpose[40];
    snprintf(purpose, sizeof purpose, "round/%llu", (unsigned long long)slot->drop);
    const struct rng noise = rng_for(s->tune ? s->tune->seed : 0, purpose);
    num_set_noise(s->num, noise.key);
}

/* What layer l keeps of its forward. */
static struct block_saved *saved_of(const struct stage *s, const struct slot *slot, size_t l)
{
    return s->spec.by_layer ? &s->shared_saved[l] : &slot->in.saved[l];
}

/* Where layers keep their inputs alone, the rest is made again for the backward that follows. Its
 * output is the next layer's input, of the same bits: that may be written again. */
static void layer_again(struct stage *s, const struct slot *slot, const struct block_ctx *ctx, size_t l)
{
    if (s->spec.by_layer)
        block_forward(ctx, slot->in.x[l + 1], saved_of(s, slot, l), slot->in.x[l], &s->layer0[l].block,
                      &s->block_work[l]);
}

void stage_forward(struct stage *s, size_t at, float *y)
{
    struct slot *slot = &s->slot[at];
    struct block_ctx ctx = context(s, slot);
    for (size_t l = 0; l < s->layers; l++) {
        make_ready(s, &s->layer0[l], slot->drop);
        float *out = l + 1 == s->layers && y ? y : slot->in.x[l + 1];
        block_forward(&ctx, out, saved_of(s, slot, l), slot->in.x[l], &s->layer0[l].block, &s->block_work[l]);
    }
    if (!s->layers && y)
        memcpy(y, slot->input, slot_floats(s, slot) * sizeof *y);
}

static bool is_finite(const struct stage *s, const float *x, const struct slot *slot)
{
    return isfinite(vec_sumsq(s->num, x, slot_floats(s, slot)));
}

/* Layers keep their inputs until the backward, so nothing is computed again. */
size_t stage_first_bad(const struct stage *s, size_t at, const float *y)
{
    const struct slot *slot = &s->slot[at];
    const float *out = y ? y : slot->in.x[s->layers];
    if (is_finite(s, out, slot))
        return STAGE_NO_UNIT;
    if (s->embed && !is_finite(s, slot->input, slot))
        return s->embed->index;
    for (size_t l = 0; l < s->layers; l++)
        if (!is_finite(s, l + 1 == s->layers ? out : slot->in.x[l + 1], slot))
            return s->layer0[l].index;
    return STAGE_NO_UNIT; /* it came in from the stage below */
}

struct rmsnorm_dims stage_head_dims(const struct stage *s, size_t tokens)
{
    return (struct rmsnorm_dims){tokens, s->spec.config.dim, s->spec.config.norm_eps, 0};
}

/* Logits are linear in what the head multiplies. */
void stage_scale_logits(const struct stage *s, float *h, size_t rows)
{
    const struct config *c = &s->spec.config;
    if (c->logit_scale > 0)
        vec_scale(s->num, h, (float)c->logit_scale, rows * c->dim);
}

/* --- backward --------------------------------------------------------------------------------- */

/* What the stage's output gradient is: from above, or from the head. */
static const float *top_gradient(const struct stage *s, const struct slot *slot, const float *dy)
{
    return s->head ? slot->dtop : dy;
}

/* Where layer l's input gradient goes: `below` for the layer under it, the caller's dx or the
 * embedding's at the bottom. */
static float *bottom_gradient(const struct stage *s, const struct slot *slot, size_t l, float *dx,
                              float *below)
{
    if (l > s->lowest)
        return below;
    if (slot->dbottom)
        return slot->dbottom;
    return s->lowest == 0 ? dx : NULL;
}

static void embed_backward(struct stage *s, struct slot *slot, float *d)
{
    const struct config *c = &s->spec.config;
    if (!s->embed || !s->embed->block.grads.full[0])
        return;
    if (c->embed_scale > 0)
        vec_scale(s->num, d, (float)c->embed_scale, slot->tokens * c->dim);
    unit_add_to_group(s->embed, s->num, slot->group);
    embed_backward_w(s->num, s->embed->block.grads.full[0], d, slot->ids, slot->tokens, c->dim);
}

void stage_watch(struct stage *s, void (*done)(void *owner, size_t unit), void *owner)
{
    s->watch = done;
    s->watcher = owner;
}

static void say_done(const struct stage *s, const struct unit *u)
{
    if (s->watch)
        s->watch(s->watcher, u->index);
}

/* A stage without layers only hands the gradient on. */
static bool pass_through(struct stage *s, struct slot *slot, const float *dy, float *dx)
{
    if (s->layers)
        return false;
    const float *top = top_gradient(s, slot, dy);
    if (dx)
        memcpy(dx, top, slot_floats(s, slot) * sizeof *dx);
    if (slot->dbottom)
        memcpy(slot->dbottom, top, slot_floats(s, slot) * sizeof *top);
    return true;
}

void stage_backward(struct stage *s, size_t at, const float *dy, float *dx)
{
    struct slot *slot = &s->slot[at];
    struct block_ctx ctx = context(s, slot);
    stage_set_noise(s, slot);
    if (!pass_through(s, slot, dy, dx)) {
        const float *d = top_gradient(s, slot, dy);
        for (size_t l = s->layers; l-- > s->lowest;) {
            struct unit *u = &s->layer0[l];
            float *to = bottom_gradient(s, slot, l, dx, s->ping[l & 1]);
            make_ready(s, u, slot->drop);
            layer_again(s, slot, &ctx, l);
            block_backward_x(&ctx, to, &s->shared_dys[l], d, saved_of(s, slot, l), slot->in.x[l], &u->block,
                             &s->block_work[l]);
            unit_add_to_group(u, s->num, slot->group);
            block_backward_w(&ctx, &s->shared_dys[l], d, saved_of(s, slot, l), slot->in.x[l], &u->block,
                             &s->block_work[l]);
            d = to;
            say_done(s, u);
        }
    }
    embed_backward(s, slot, slot->dbottom);
}

void stage_backward_x(struct stage *s, size_t at, const float *dy, float *dx)
{
    struct slot *slot = &s->slot[at];
    struct block_ctx ctx = context(s, slot);
    stage_set_noise(s, slot);
    if (pass_through(s, slot, dy, dx))
        return;
    memcpy(slot->in.dy[s->layers - 1], top_gradient(s, slot, dy), slot_floats(s, slot) * sizeof *dy);
    for (size_t l = s->layers; l-- > s->lowest;) {
        struct unit *u = &s->layer0[l];
        float *to = bottom_gradient(s, slot, l, dx, l ? slot->in.dy[l - 1] : NULL);
        make_ready(s, u, slot->drop);
        layer_again(s, slot, &ctx, l);
        block_backward_x(&ctx, to, &slot->in.dys[l], slot->in.dy[l], saved_of(s, slot, l), slot->in.x[l],
                         &u->block, &s->block_work[l]);
    }
}

void stage_backward_w(struct stage *s, size_t at)
{
    struct slot *slot = &s->slot[at];
    struct block_ctx ctx = context(s, slot);
    for (size_t l = s->layers; l-- > s->lowest;) {
        struct unit *u = &s->layer0[l];
        make_ready(s, u, slot->drop);
        layer_again(s, slot, &ctx, l);
        unit_add_to_group(u, s->num, slot->group);
        block_backward_w(&ctx, &slot->in.dys[l], slot->in.dy[l], saved_of(s, slot, l), slot->in.x[l],
                         &u->block, &s->block_work[l]);
        say_done(s, u);
    }
    embed_backward(s, slot, slot->dbottom);
}

/* --- a step ----------------------------------------------------------------------------------- */

void stage_end_groups(struct stage *s)
{
    for (size_t i = 0; i < s->nunits; i++)
        unit_end_groups(&s->units[i], s->num);
}

static struct param_slice tied_slice(const struct stage *s)
{
    const struct grad_groups g = stage_groups(&s->spec);
    return param_slice(stage_tied_elements(s), g.slice, g.slices);
}

float *stage_tied_grad(struct stage *s)
{
    if (!s->head || !s->head->lent_n)
        return NULL; /* sums of a step that has begun go on */
    stage_end_groups(s);
    return s->head->lent_g + tied_slice(s).at;
}

size_t stage_tied_elements(const struct stage *s)
{
    return s->spec.config.vocab * s->spec.config.dim;
}

size_t stage_tied_grad_elements(const struct stage *s)
{
    return tied_slice(s).n;
}

void stage_add_tied_grad(struct stage *s, const float *grad)
{
    stage_end_groups(s);
    float *own = s->embed->block.grads.full[0] + tied_slice(s).at;
    vec_add(s->num, own, own, grad, tied_slice(s).n);
}

double stage_sumsq(struct stage *s, double partial, size_t *ret_unit)
{
    *ret_unit = STAGE_NO_UNIT;
    stage_end_groups(s);
    for (size_t i = s->nunits; i-- > 0;)
        for (size_t p = s->units[i].nparams; p-- > 0;) {
            const struct param *param = &s->units[i].params[p];
            const double sum = vec_sumsq(s->num, param->g, param->n);
            if (!isfinite(sum) && *ret_unit == STAGE_NO_UNIT)
                *ret_unit = s->units[i].index;
            partial += sum;
        }
    return partial;
}

void stage_skip_update(struct stage *s)
{
    for (size_t i = 0; i < s->nunits; i++)
        unit_drop_grads(&s->units[i]);
}

const float *stage_tied_weight(const struct stage *s)
{
    return s->embed->block.weights.lin[0].w.data;
}

void stage_set_tied_weight(struct stage *s, const float *w)
{
    memcpy(s->tied_weight, w, stage_tied_elements(s) * sizeof *w);
}

/* --- parameters ------------------------------------------------------------------------------- */

static struct unit *unit_of(const struct stage *s, size_t unit)
{
    for (size_t i = 0; i < s->nunits; i++)
        if (s->units[i].index == unit)
            return &s->units[i];
    return NULL;
}

void stage_pack(const struct stage *s, const struct param_piece *piece, float *out)
{
    unit_pack(unit_of(s, piece->unit), piece, out);
}

void stage_unpack(struct stage *s, const struct param_piece *piece, const float *in)
{
    unit_unpack(unit_of(s, piece->unit), piece, in);
}

/* --- generation ------------------------------------------------------------------------------- */

int stage_decode(struct stage *s, const uint32_t *ids, const float *x, float *y, size_t n, size_t at,
                 struct err *err)
{
    const size_t room = stage_cached(&s->spec);
    if (!n || n > s->spec.tokens || n > room || at > room - n)
        return err_set(err, -E2BIG, "%zu positions from %zu on are not within the plan's %zu (%zu at once)",
                       n, at, room, s->spec.tokens);
    int r = ids ? stage_check_ids(s, ids, n, err) : 0;
    if (r)
        return r;
    if (s->has_state && at && at != s->reached && !s->spec.stands_in)
        return err_set(err, -EINVAL,
                       "position %zu was asked for behind position %zu, but layers with a state only go on",
                       at, s->reached);
    const size_t back = at < s->farthest ? s->farthest - at : 0;
    if (!s->has_state && at && back && back > stage_steps_back(&s->spec))
        return err_set(err, -EINVAL,
                       "position %zu was asked for behind position %zu, but layers with a window keep only "
                       "that: begin at 0",
                       at, s->farthest);
    s->reached = at + n;
    s->farthest = at && s->farthest > at + n ? s->farthest : at + n;
    struct slot geometry = {.tokens = n, .pos = s->slot[0].pos};
    for (size_t t = 0; t < n; t++)
        geometry.pos[t] = (uint32_t)(stage_first_row(s, room) + at + t);
    struct block_ctx ctx = context(s, &geometry);
    float *cur = s->ping[0], *next = s->ping[1];
    if (ids)
        stage_embed(s, cur, ids, n);
    else
        memcpy(cur, x, n * s->spec.config.dim * sizeof *x);
    for (size_t l = 0; l < s->layers; l++) {
        make_ready(s, &s->layer0[l], 0);
        block_forward_cached(&ctx, next, &s->kv[l], at, cur, &s->layer0[l].block, &s->cached_work[l]);
        float *t = cur;
        cur = next;
        next = t;
    }
    s->ping[0] = cur;
    s->ping[1] = next;
    s->decoded = n;
    if (y)
        memcpy(y, cur, n * s->spec.config.dim * sizeof *y);
    return stage_gathered(s, err);
}

/* Only the first slice chooses tokens. */
int stage_multiply_head(struct stage *s, const float *h, size_t n)
{
    struct part_gather *g = stage_gather(s);
    const size_t vocab = s->spec.config.vocab;
    gemm_xwt(s->num, g ? s->own_logits : s->logits, h, s->head_w, n, false);
    int failed = 0;
    if (g) {
        struct gather_columns what = part_columns_of(g, s->logits, s->own_logits, n, vocab, SLICE_ANY);
        what.to_first = true;
        failed = part_gather_run(g, &what);
    }
    if (!failed)
        logits_cap(s->num, s->logits, n * vocab, (float)s->spec.config.logit_softcap);
    return failed;
}

const float *stage_logits(struct stage *s)
{
    const float *last = s->ping[0] + (s->decoded - 1) * s->spec.config.dim;
    rmsnorm_forward(s->num, s->hn, s->rstd, last, s->head->block.weights.vec[0], stage_head_dims(s, 1));
    stage_scale_logits(s, s->hn, 1);
    return stage_multiply_head(s, s->hn, 1) ? NULL : s->logits;
}

float stage_logprob(struct stage *s, uint32_t id, struct likely *likely, size_t top)
{
    return xent_row(s->num, s->logits, s->spec.config.vocab, id, likely, top);
}
