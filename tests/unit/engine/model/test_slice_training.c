/* SPDX-License-Identifier: MIT
 *
 * Slices that train: each has the losses, norms and values of one stage with everything, bit for
 * bit, also with magnitudes (DoRA) and from principal parts (PiSSA). */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/slice_world.h"

enum { STEPS = 2, SEQS = 2 };

struct learner {
    struct slice_member member;
    const struct slice_world *w;
    double losses[STEPS], norms[STEPS];
    float *values; /* owned: [n] what was trained */
    size_t n;
    size_t sent; /* gradients that travel */
    struct err err;
    int r;
};

/* As from another replica: what is not sent is of no use to anybody. */
static void send_and_return(struct learner *l, struct stage *s)
{
    const struct param_share part = {0, 0, stage_shared_values(s, UNIT_GRADS, 0, 0)};
    float *sent = calloc(part.n, sizeof *sent);
    assert_non_null(sent);
    stage_pack_grads(s, &part, sent);
    for (size_t i = 0; i < s->nunits; i++) {
        const struct unit *u = &s->units[i];
        for (size_t p = 0; p < u->nparams; p++)
            for (size_t k = 0; k < u->params[p].n && !u->params[p].def.fixed; k++)
                u->params[p].g[k] = NAN;
        for (size_t k = 0; k < u->lent_n; k++)
            u->lent_g[k] = NAN;
    }
    stage_unpack_grads(s, &part, sent);
    l->sent = part.n;
    free(sent);
}

static int learn_step(struct learner *l, struct stage *s, uint64_t step)
{
    uint32_t ids[SLICE_PROMPT], start[SEQS + 1] = {0, SLICE_PROMPT / 3, SLICE_PROMPT};
    int32_t labels[SLICE_PROMPT];
    size_t bad;
    for (size_t i = 0; i < SLICE_PROMPT; i++) {
        ids[i] = (uint32_t)((step * 11 + i * 37) % SLICE_VOCAB);
        labels[i] = i % 5 ? (int32_t)((step + i * 53) % SLICE_VOCAB) : -100;
    }
    const struct xent xent = {.labels = labels, .dscale = 0.03f};
    int r = stage_begin(s, 0, (struct seqs){SEQS, start}, step, &l->err);
    if (!r)
        r = stage_input_ids(s, 0, ids, &l->err);
    if (r)
        return r;
    stage_forward(s, 0, NULL);
    l->losses[step - 1] = stage_loss(s, 0, &xent);
    if (s->spec.split_backward) {
        stage_backward_x(s, 0, NULL, NULL);
        stage_backward_w(s, 0);
    } else {
        stage_backward(s, 0, NULL, NULL);
    }
    if (l->w->travels)
        send_and_return(l, s);
    stage_gather_grads(s);
    if (s->spec.config.tied && s->spec.tune.kind == TUNE_FULL)
        stage_add_tied_grad(s, stage_tied_grad(s));
    l->norms[step - 1] = stage_sumsq(s, 0, &bad);
    stage_update(s, 1, &(struct adamw){0.01f, 0.9f, 0.999f, 1e-8f, 0.01f}, step);
    return stage_gathered(s, &l->err);
}

static void keep_values(struct learner *l, const struct stage *s)
{
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        for (size_t i = 0; i < s->nunits; i++)
            for (size_t p = 0; p < s->units[i].nparams; p++) {
                const struct param *param = &s->units[i].params[p];
                if (l->values)
                    memcpy(l->values + n, param->w, param->n * sizeof *param->w);
                n += param->n;
            }
        l->n = n;
        l->values = l->values ? l->values : calloc(n, sizeof *l->values);
    }
}

static void *learn(void *arg)
{
    struct learner *l = arg;
    const struct slice_world *w = l->w;
    struct stage *s = NULL;
    struct num *num = NULL;
    const struct stage_spec spec = {.model_dir = w->model,
                                    .config = w->c,
                                    .tune = w->tune,
                                    .end_layer = w->c.layers,
                                    .embed = true,
                                    .head = true,
                                    .training = true,
                                    .split_backward = w->paged,
                                    .by_layer = w->by_layer,
                                    .slots = 1,
                                    .tokens = SLICE_PROMPT,
                                    .seqs = SEQS,
                                    .positions = SLICE_LENGTH,
                                    .weight_bits = w->bits,
                                    .cache_dir = w->cache.path,
                                    .slice = l->member.gather.slice,
                                    .gather = &l->member.gather};
    l->r = num_new(&num, 1, &l->err);
    if (!l->r)
        num_set_compute(num, w->compute);
    l->r = l->r ? l->r : stage_open(&s, num, &spec, &l->err);
    if (!l->r && w->tune.kind == TUNE_LORA && w->tune.init != LORA_INIT_PISSA)
        slice_fill_adapter(s);
    for (uint64_t step = 1; step <= STEPS && !l->r; step++)
        l->r = learn_step(l, s, step);
    if (!l->r)
        keep_values(l, s);
    stage_close(s);
    num_free(num);
    return NULL;
}

static struct learner *learn_all(const struct slice_world *w, size_t count)
{
    struct learner *l = calloc(count, sizeof *l);
    for (size_t i = 0; i < count; i++)
        l[i].w = w;
    slice_meet_all(l, sizeof *l, count, 0, learn);
    return l;
}

static void learners_free(struct learner *l, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(l[i].values);
    free(l);
}

/* Each slice has the losses, norms and values of one rank. `paged` stands for halves of a
 * backward. */
static void check_training(struct slice_world *w, size_t count)
{
    for (int how = 0; how < 4; how++) {
        w->paged = how == 1;
        w->by_layer = how == 2;
        w->travels = how == 3;
        struct learner *one = learn_all(w, 1), *all = learn_all(w, count);
        must(one->r, &one->err);
        assert_true(one->n > 0);
        for (size_t i = 0; i < count; i++) {
            char what[120];
            snprintf(what, sizeof what, "%s, slice %zu of %zu, way %d", w->c.family, i, count, how);
            must(all[i].r, &all[i].err);
            assert_memory_equal(all[i].losses, one->losses, sizeof one->losses);
            assert_same_bits(all[i].values, one->values, one->n, what);
            assert_memory_equal(all[i].norms, one->norms, sizeof one->norms);
            if (w->travels && w->tune.kind == TUNE_FULL) /* its own rows, of 3 KV heads two, and vectors */
                assert_true(4 * all[i].sent < 3 * one->sent);
        }
        learners_free(one, 1);
        learners_free(all, count);
    }
}

/* --- the tests -------------------------------------------------------------------------------- */

static void training(void **state)
{
    (void)state;
    static const size_t which[] = {0, 1, 3, 4, 7, 2, 5, 6};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++)
        for (int full = 0; full < 2; full++) {
            struct slice_world w;
            struct err err;
            slice_world_make(&w, which[k] < 7 ? slice_models[which[k]] : slice_wide,
                             k % 2 ? "bfloat16" : "float32");
            w.tune = (struct tune){.kind = full ? TUNE_FULL : TUNE_LORA, .end_layer = w.c.layers};
            if (!full) {
                w.tune.rank = 3;
                w.tune.alpha = 6;
                w.tune.dropout = k == 1 ? 0.3f : 0;
                must(tune_targets(&w.tune, family_find(w.c.family), &w.c, "all-linear", &err), &err);
            }
            for (int compute = NUM_F32; compute < NUM_COMPUTES; compute++) {
                w.compute = (enum num_compute)compute;
                w.bits = 0;
                check_training(&w, 2 + k % 2);
                w.bits = compute == NUM_BYTES ? 8 : 4;
                if (!full && which[k] == 7)
                    check_training(&w, 3);
            }
            slice_world_free(&w);
        }
}

/* Magnitudes, whose norms are those of whole rows, and what begins with the principal part of a
 * whole weight. */
static void forms_of_training(void **state)
{
    (void)state;
    static const size_t dense[] = {0, 1, 3};
    for (size_t k = 0; k < 2 * sizeof dense / sizeof *dense; k++) {
        struct slice_world w;
        struct err err;
        slice_world_make(&w, slice_models[dense[k / 2]], k / 2 % 2 ? "bfloat16" : "float32");
        w.tune = (struct tune){.kind = TUNE_LORA, .rank = 3, .alpha = 6, .end_layer = w.c.layers};
        w.tune.dora = k % 2;
        w.tune.dropout = k % 2 ? 0.3f : 0;
        must(tune_targets(&w.tune, family_find(w.c.family), &w.c, "all-linear", &err), &err);
        if (!w.tune.dora) {
            w.tune.init = LORA_INIT_PISSA;
            tune_fix_half(&w.tune);
        }
        for (int compute = NUM_F32; compute < NUM_COMPUTES; compute++) {
            w.compute = (enum num_compute)compute;
            w.bits = compute == NUM_INT8 ? 8 : 0;
            check_training(&w, 2 + k / 2 % 2);
        }
        slice_world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training),
        cmocka_unit_test(forms_of_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
