/* SPDX-License-Identifier: MIT
 *
 * Several adapters on one stage, unlike in rank, scale, dropout, seed and form, whose microbatches
 * pass through it in between each other's: each learns what it would have learnt alone, bit for
 * bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/stage_impl.h"
#include "tests/lib/chain.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

enum { LAYERS = 3, ADAPTERS = 3, STEPS = 3, MICROBATCHES = 2 };
static const float rates[ADAPTERS] = {1e-2f, 3e-2f, 1e-3f};

struct place {
    struct temp_dir dir;
    struct config config;
    struct tune tune[ADAPTERS];
};

static int set_up(void **state)
{
    static struct place place;
    struct err err;
    place.dir = temp_dir_new();
    place.config = tiny_write(place.dir.path, &(struct tiny_spec){.layers = LAYERS, .dtype = DTYPE_F32});
    struct tune t = {
        .kind = TUNE_LORA, .rank = 2, .alpha = 4, .end_layer = LAYERS, .first_layer = 1, .seed = 5};
    must(tune_targets(&t, family_find(place.config.family), &place.config, "all-linear", &err), &err);
    place.tune[0] = place.tune[1] = place.tune[2] = t;
    place.tune[1].rank = 5;
    place.tune[1].dropout = 0.2f;
    place.tune[1].seed = 6;
    place.tune[2].rslora = true;
    place.tune[2].alpha = 9;
    place.tune[2].plus_ratio = 4;
    place.tune[2].dora = true;
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    temp_dir_free(&((struct place *)*state)->dir);
    return 0;
}

struct result {
    double loss[STEPS][MICROBATCHES], norm[STEPS];
    float *state; /* owned: values and moments */
    size_t n;
};

static struct microbatch microbatch_of(struct tiny_batch *b, const struct place *p, size_t step, size_t i)
{
    tiny_batch_init(b, &p->config, 100 * step + i);
    b->mb.drop = 10 * (step + 1) + i;
    return b->mb;
}

static void end_step(struct chain *c, struct result *r, size_t adapter, float rate, size_t step)
{
    const struct adamw opt = {.lr = rate, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
    chain_choose(c, adapter);
    r->norm[step] = chain_norm(c);
    chain_update(c, &opt, step + 1);
}

static void end_run(struct chain *c, struct result *r, size_t adapter)
{
    chain_choose(c, adapter);
    r->n = chain_elements(c, true);
    r->state = chain_pack(c, true);
}

static void run_alone(struct result *r, const struct place *p, size_t adapter, struct chain_spec spec)
{
    struct chain c;
    struct tiny_batch batch;
    spec.tune = p->tune[adapter];
    chain_open(&c, &spec);
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < MICROBATCHES; i++) {
            const struct microbatch mb = microbatch_of(&batch, p, step, i);
            r->loss[step][i] = chain_forward(&c, 0, &mb, 0.1f, NULL);
            chain_backward(&c, 0);
        }
        end_step(&c, r, 0, rates[adapter], step);
    }
    end_run(&c, r, 0);
    chain_close(&c);
}

/* The forwards of all adapters, then their backwards: each has a slot, and all are in flight at
 * once. */
static void run_together(struct result *r, const struct place *p, struct chain_spec spec)
{
    struct chain c;
    struct tiny_batch batch;
    spec.tune = p->tune[0];
    spec.more = p->tune + 1;
    spec.nmore = ADAPTERS - 1;
    spec.slots = ADAPTERS;
    chain_open(&c, &spec);
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < MICROBATCHES; i++) {
            for (size_t a = 0; a < ADAPTERS; a++) {
                const struct microbatch mb = microbatch_of(&batch, p, step, i);
                chain_choose(&c, a);
                r[a].loss[step][i] = chain_forward(&c, a, &mb, 0.1f, NULL);
            }
            for (size_t a = 0; a < ADAPTERS; a++) {
                chain_choose(&c, a);
                chain_backward(&c, a);
            }
        }
        for (size_t a = ADAPTERS; a-- > 0;)
            end_step(&c, &r[a], a, rates[a], step);
    }
    for (size_t a = 0; a < ADAPTERS; a++)
        end_run(&c, &r[a], a);
    chain_close(&c);
}

static void check(const struct place *p, struct chain_cut cut, bool split_backward, bool by_layer)
{
    struct result together[ADAPTERS] = {0};
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &p->tune[0], cut);
    spec.split_backward = split_backward;
    spec.by_layer = by_layer;
    run_together(together, p, spec);
    for (size_t a = 0; a < ADAPTERS; a++) {
        struct result alone = {0};
        run_alone(&alone, p, a, spec);
        assert_memory_equal(alone.loss, together[a].loss, sizeof alone.loss);
        assert_memory_equal(alone.norm, together[a].norm, sizeof alone.norm);
        assert_int_equal(alone.n, together[a].n);
        assert_memory_equal(alone.state, together[a].state, alone.n * sizeof *alone.state);
        free(alone.state);
    }
    assert_true(together[0].loss[STEPS - 1][0] != together[2].loss[STEPS - 1][0]);
    for (size_t a = 0; a < ADAPTERS; a++)
        free(together[a].state);
}

static void each_learns_what_it_would_alone(void **state)
{
    check(*state, (struct chain_cut){1, {LAYERS}}, false, false);
    check(*state, (struct chain_cut){2, {2, LAYERS}}, false, true);
    check(*state, (struct chain_cut){3, {0, 2, LAYERS}}, true, false);
}

/* The weights are there once; what an adapter adds is its factors with their gradients and
 * moments. */
static void adapters_share_the_weights(void **state)
{
    const struct place *p = *state;
    struct stage_spec spec = {.model_dir = p->dir.path,
                              .config = p->config,
                              .tune = p->tune[0],
                              .end_layer = LAYERS,
                              .embed = true,
                              .head = true,
                              .training = true,
                              .slots = 2,
                              .tokens = 8,
                              .seqs = 1,
                              .positions = 8};
    struct stage_bytes one, three;
    struct err err;
    must(stage_measure(&one, &spec, &err), &err);
    spec.more = p->tune + 1;
    spec.nmore = ADAPTERS - 1;
    must(stage_measure(&three, &spec, &err), &err);
    assert_int_equal(three.mapped, one.mapped);
    size_t wanted = 0;
    for (size_t a = 1; a < ADAPTERS; a++)
        for (size_t u = 0; u < LAYERS + 2; u++)
            wanted += 4 * sizeof(float) *
                      tune_unit_elements(&p->tune[a], family_find(p->config.family), &p->config, u);
    assert_true(three.params >= one.params + wanted && three.params < one.params + wanted + (32 << 10));
    assert_true(three.slots > one.slots); /* room for the widest */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_learns_what_it_would_alone),
        cmocka_unit_test(adapters_share_the_weights),
    };
    return cmocka_run_group_tests_name("stage_adapters", tests, set_up, tear_down);
}
