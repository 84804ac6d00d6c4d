/* SPDX-License-Identifier: MIT */
#include "tests/lib/chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "model/stage_impl.h"
#include "tests/lib/near.h"

/* Buffers between stages begin one float off an aligned address: what comes over a wire is not
 * aligned either, and must give the same bits. */
static float *buffer_new(size_t n)
{
    float *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p + 1;
}

static void buffer_free(float *p)
{
    if (p)
        free(p - 1);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t chain_first(const struct chain *c, size_t stage)
{
    return stage ? min_size(c->spec.cut.end[stage - 1], c->spec.config.layers) : 0;
}

static size_t chain_end(const struct chain *c, size_t stage)
{
    return stage + 1 == c->spec.cut.n ? c->spec.config.layers
                                      : min_size(c->spec.cut.end[stage], c->spec.config.layers);
}

static size_t last(const struct chain *c)
{
    return c->spec.cut.n - 1;
}

static struct stage_spec spec_of(const struct chain *c, size_t i)
{
    const struct chain_spec *spec = &c->spec;
    return (struct stage_spec){
        .model_dir = spec->model_dir,
        .config = spec->config,
        .tune = spec->tune,
        .more = spec->more,
        .nmore = spec->nmore,
        .first_layer = chain_first(c, i),
        .end_layer = chain_end(c, i),
        .embed = i == 0,
        .head = i == last(c),
        .training = spec->training,
        .split_backward = spec->split_backward,
        .by_layer = spec->by_layer,
        .slots = spec->slots,
        .tokens = spec->tokens,
        .seqs = spec->seqs,
        .positions = spec->positions,
        .kv = spec->kv,
        .sample = spec->sample,
        .pairs = spec->how.kind != LOSS_NLL,
        .weight_bits = spec->weight_bits,
        .cache_dir = spec->cache_dir,
        .groups = spec->groups,
        .first_group = spec->first_group,
        .end_group = spec->end_group,
        .updated = spec->updated,
        .updates = spec->updates,
    };
}

/* The stages share their scratch, as those of one node do; what is in it at first is worth nothing,
 * and shows where it is used. */
static void open_scratch(struct chain *c)
{
    struct err err;
    struct stage_bytes bytes;
    size_t most = 0;
    for (size_t i = 0; i < c->spec.cut.n; i++) {
        const struct stage_spec spec = spec_of(c, i);
        must(stage_measure(&bytes, &spec, &err), &err);
        most = bytes.work > most ? bytes.work : most;
    }
    c->scratch.used = most;
    must(slab_alloc(&c->scratch, "scratch", &err), &err);
    c->scratch.used = most;
    c->scratch.overlaps = c->spec.cut.n > 1;
    memset(c->scratch.base, 0xff, most); /* not a number */
}

void chain_open(struct chain *c, const struct chain_spec *spec)
{
    struct err err;
    *c = (struct chain){.spec = *spec, .first = spec->tune, .family = family_find(spec->config.family)};
    assert_non_null(c->family);
    assert_in_range(spec->cut.n, 1, CHAIN_MAX);
    must(num_new(&c->num, 1, &err), &err);
    open_scratch(c);
    for (size_t i = 0; i < spec->cut.n; i++) {
        struct stage_spec s = spec_of(c, i);
        s.scratch = &c->scratch;
        must(stage_open(&c->stage[i], c->num, &s, &err), &err);
        c->act[i] = buffer_new(spec->tokens * spec->config.dim);
        c->grad[i] = buffer_new(spec->tokens * spec->config.dim);
    }
}

void chain_close(struct chain *c)
{
    for (size_t i = 0; i < CHAIN_MAX; i++) {
        stage_close(c->stage[i]);
        buffer_free(c->act[i]);
        buffer_free(c->grad[i]);
    }
    slab_free(&c->scratch);
    num_free(c->num);
    *c = (struct chain){0};
}

void chain_choose(struct chain *c, size_t adapter)
{
    c->spec.tune = adapter ? c->spec.more[adapter - 1] : c->first;
    for (size_t i = 0; i < c->spec.cut.n; i++)
        stage_select_adapter(c->stage[i], adapter);
}

/* --- a microbatch ----------------------------------------------------------------------------- */

static double loss_of_pairs(struct chain *c, size_t slot, const struct microbatch *mb, float dscale)
{
    double logp[16], ref[8];
    assert_true(mb->seqs.n <= sizeof logp / sizeof *logp);
    for (size_t i = 0; i < sizeof ref / sizeof *ref; i++)
        ref[i] = CHAIN_REF;
    const struct stage_pairs pairs = {
        .labels = mb->labels, .how = c->spec.how, .dscale = dscale, .ref = ref, .logp = logp};
    return stage_loss_pairs(c->stage[last(c)], slot, &pairs);
}

double chain_forward(struct chain *c, size_t slot, const struct microbatch *mb, float dscale, float *logprob)
{
    struct err err;
    for (size_t i = 0; i <= last(c); i++) {
        must(stage_begin(c->stage[i], slot, mb->seqs, mb->drop, &err), &err);
        stage_use_group(c->stage[i], slot, mb->group);
        if (i)
            stage_input(c->stage[i], slot, c->act[i]);
        else
            must(stage_input_ids(c->stage[i], slot, mb->ids, &err), &err);
        stage_forward(c->stage[i], slot, i < last(c) ? c->act[i + 1] : NULL);
    }
    if (c->spec.how.kind != LOSS_NLL)
        return loss_of_pairs(c, slot, mb, dscale);
    struct xent xent = {.labels = mb->labels, .dscale = dscale, .logprob = logprob};
    return stage_loss(c->stage[last(c)], slot, &xent);
}

/* A stage below which something is trained has to hand its gradient down. Where the lowest trained
 * layer is the stage's first, the gradient of its input is wanted only by the tests that compare
 * it. */
static bool hands_down(const struct chain *c, size_t stage)
{
    return stage && tune_lowest_layer(&c->spec.tune, &c->spec.config) <= chain_first(c, stage);
}

static bool trains(const struct chain *c, size_t stage)
{
    return tune_lowest_layer(&c->spec.tune, &c->spec.config) < chain_end(c, stage) ||
           c->spec.tune.kind == TUNE_FULL;
}

static float *up(struct chain *c, size_t stage)
{
    return stage < last(c) ? c->grad[stage + 1] : NULL;
}

static float *down(struct chain *c, size_t stage)
{
    return hands_down(c, stage) ? c->grad[stage] : NULL;
}

void chain_backward_x(struct chain *c, size_t slot)
{
    for (size_t i = c->spec.cut.n; i-- > 0 && trains(c, i);)
        stage_backward_x(c->stage[i], slot, up(c, i), down(c, i));
}

void chain_backward_w(struct chain *c, size_t slot)
{
    for (size_t i = c->spec.cut.n; i-- > 0 && trains(c, i);)
        stage_backward_w(c->stage[i], slot);
}

void chain_backward(struct chain *c, size_t slot)
{
    if (c->spec.split_backward) {
        chain_backward_x(c, slot);
        chain_backward_w(c, slot);
        return;
    }
    for (size_t i = c->spec.cut.n; i-- > 0 && trains(c, i);)
        stage_backward(c->stage[i], slot, up(c, i), down(c, i));
}

/* --- a step ----------------------------------------------------------------------------------- */

void chain_tie(struct chain *c)
{
    const float *head = stage_tied_grad(c->stage[last(c)]);
    if (head)
        stage_add_tied_grad(c->stage[0], head);
}

double chain_norm(struct chain *c)
{
    size_t unit;
    double sum = 0;
    for (size_t i = c->spec.cut.n; i-- > 0;)
        sum = stage_sumsq(c->stage[i], sum, &unit);
    return sqrt(sum);
}

void chain_sync_values(struct chain *c)
{
    for (size_t i = 0; i <= last(c); i++)
        for (size_t u = 0; u < c->stage[i]->nunits; u++)
            unit_refresh(&c->stage[i]->units[u]);
    if (last(c) && stage_tied_grad(c->stage[last(c)]))
        stage_set_tied_weight(c->stage[last(c)], stage_tied_weight(c->stage[0]));
}

void chain_update(struct chain *c, const struct adamw *opt, uint64_t step)
{
    for (size_t i = 0; i <= last(c); i++)
        stage_update(c->stage[i], 1, opt, step);
    chain_sync_values(c);
}

const float *chain_decode(struct chain *c, const uint32_t *ids, size_t n, size_t at)
{
    struct err err;
    for (size_t i = 0; i <= last(c); i++)
        must(stage_decode(c->stage[i], i ? NULL : ids, i ? c->act[i] : NULL,
                          i < last(c) ? c->act[i + 1] : NULL, n, at, &err),
             &err);
    return stage_logits(c->stage[last(c)]);
}

/* --- parameters ------------------------------------------------------------------------------- */

struct param *chain_param(struct chain *c, const char *name)
{
    for (size_t i = 0; i <= last(c); i++)
        for (size_t u = 0; u < c->stage[i]->nunits; u++)
            for (size_t p = 0; p < c->stage[i]->units[u].nparams; p++)
                if (!strcmp(c->stage[i]->units[u].params[p].def.name, name))
                    return &c->stage[i]->units[u].params[p];
    fail_msg("no stage trains %s", name);
    return NULL;
}

void chain_clear_grads(struct chain *c)
{
    for (size_t i = 0; i <= last(c); i++)
        stage_skip_update(c->stage[i]);
}

size_t chain_elements(const struct chain *c, bool state)
{
    size_t n = 0;
    for (size_t u = 0; u < c->spec.config.layers + 2; u++)
        n += tune_unit_elements(&c->spec.tune, c->family, &c->spec.config, u);
    return state ? 3 * n : n;
}

static size_t unit_values(const struct chain *c, size_t unit, bool state)
{
    return tune_unit_elements(&c->spec.tune, c->family, &c->spec.config, unit) * (state ? 3 : 1);
}

static struct stage *stage_with(struct chain *c, size_t unit)
{
    for (size_t i = 0; i <= last(c); i++)
        for (size_t u = 0; u < c->stage[i]->nunits; u++)
            if (c->stage[i]->units[u].index == unit)
                return c->stage[i];
    fail_msg("no stage holds unit %zu", unit);
    return NULL;
}

float *chain_pack(struct chain *c, bool state)
{
    float *out = calloc(chain_elements(c, state) + 1, sizeof *out), *at = out;
    assert_non_null(out);
    for (size_t u = 0; u < c->spec.config.layers + 2; u++) {
        struct stage *s = stage_with(c, u);
        const size_t n = unit_values(c, u, state);
        stage_pack(s, &(struct param_piece){u, 0, n}, at);
        at += n;
    }
    return out;
}

void chain_unpack(struct chain *c, const float *in, bool state)
{
    for (size_t u = 0; u < c->spec.config.layers + 2; u++) {
        struct stage *s = stage_with(c, u);
        const size_t n = unit_values(c, u, state);
        stage_unpack(s, &(struct param_piece){u, 0, n}, in);
        in += n;
    }
    chain_sync_values(c);
}

float *chain_pack_grads(struct chain *c)
{
    float *out = calloc(chain_elements(c, false) + 1, sizeof *out), *at = out;
    assert_non_null(out);
    for (size_t i = 0; i <= last(c); i++)
        for (size_t u = 0; u < c->stage[i]->nunits; u++)
            for (size_t p = 0; p < c->stage[i]->units[u].nparams; p++) {
                const struct param *param = &c->stage[i]->units[u].params[p];
                memcpy(at, param->g, param->n * sizeof *at);
                at += param->n;
            }
    return out;
}

void chain_load(struct chain *c, const struct adapter_in *in)
{
    bool state = adapter_in_has_state(in);
    float *all = calloc(chain_elements(c, state) + 1, sizeof *all), *at = all;
    assert_non_null(all);
    for (size_t u = 0; u < c->spec.config.layers + 2; u++) {
        const size_t n = unit_values(c, u, state);
        adapter_in_piece(in, &(struct param_piece){u, 0, n}, at);
        at += n;
    }
    chain_unpack(c, all, state);
    free(all);
}

void chain_check_cuts(struct chain_spec spec, const struct chain_cut *cuts, size_t n,
                      struct chain_result (*train)(const struct chain_spec *))
{
    struct chain_result one = train(&spec);
    assert_true(one.loss[1] != one.loss[0] && isfinite(one.norm[1]));
    for (size_t i = 0; i < n; i++)
        for (int how = 0; how < 4; how++) {
            spec.cut = cuts[i];
            spec.split_backward = how & 1;
            spec.by_layer = how & 2;
            struct chain_result more = train(&spec);
            assert_memory_equal(more.loss, one.loss, sizeof one.loss);
            assert_memory_equal(more.norm, one.norm, sizeof one.norm);
            assert_same_bits(more.state, one.state, one.n, "adapter and moments against one stage");
            free(more.state);
        }
    free(one.state);
}
