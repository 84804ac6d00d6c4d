/* SPDX-License-Identifier: MIT
 *
 * Training on pairs of answers: gradients of their losses through whole stages, and the model
 * without its adapter, which they are compared with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "num/rng.h"
#include "tests/lib/chain.h"
#include "tests/lib/near.h"
#include "tests/lib/slope.h"
#include "tests/lib/tiny.h"

enum { LAYERS = 3 };
static const struct chain_cut cuts[] = {{1, {LAYERS}}, {2, {1, LAYERS}}};

struct place {
    struct temp_dir dir;
    struct config config;
    struct tune tune;
};

static int set_up(void **state)
{
    static struct place place;
    struct err err;
    place.dir = temp_dir_new();
    place.config =
        tiny_write(place.dir.path, &(struct tiny_spec){.layers = LAYERS, .biases = true, .dtype = DTYPE_F32});
    place.tune = (struct tune){
        .kind = TUNE_LORA, .rank = 3, .alpha = 4.5f, .dropout = 0.2f, .end_layer = LAYERS, .seed = 11};
    must(tune_targets(&place.tune, family_find(place.config.family), &place.config, "all-linear", &err),
         &err);
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    temp_dir_free(&((struct place *)*state)->dir);
    return 0;
}

/* Factors that are not zero. */
static void shake(struct chain *c)
{
    const size_t n = chain_elements(c, false);
    float *all = chain_pack(c, false);
    struct rng rng = rng_for(3, "shake");
    rng_fill_normal(&rng, all, n, 0, 0.3f);
    chain_unpack(c, all, false);
    free(all);
}

/* Two pairs of answers, whose losses stand in for those of tokens. */
static void gradients_of_pairs_are_slopes(void **state)
{
    static const struct pair_loss hows[] = {{LOSS_DPO, 0.1}, {LOSS_DPO, 0.7}, {LOSS_ORPO, 0.4}};
    static const uint32_t start[] = {0, 5, 9, 12, TINY_TOKENS};
    const struct place *p = *state;
    const struct tune full_tune = {.kind = TUNE_FULL, .end_layer = LAYERS};
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
        for (int full = 0; full <= (hows[i].kind == LOSS_ORPO); full++) {
            struct chain_spec spec =
                tiny_chain(p->dir.path, &p->config, full ? &full_tune : &p->tune, cuts[i % 2]);
            struct tiny_batch batch;
            struct chain c;
            tiny_batch_init(&batch, &p->config, 9);
            batch.mb.seqs = (struct seqs){4, (uint32_t *)(uintptr_t)start};
            spec.seqs = 4;
            spec.how = hows[i];
            chain_open(&c, &spec);
            if (!full)
                shake(&c);
            check_slopes(&c, &batch.mb);
            chain_close(&c);
        }
}

/* What training with an adapter is compared with: the model, to the bit, and the adapter again
 * behind it. */
static void without_adapter_it_is_the_model(void **state)
{
    const struct place *p = *state;
    const struct tune none = {.end_layer = LAYERS};
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &p->tune, cuts[1]);
    struct tiny_batch batch;
    struct chain c, bare;
    tiny_batch_init(&batch, &p->config, 9);
    batch.mb.drop = 0;
    chain_open(&c, &spec);
    shake(&c);
    spec.tune = none;
    spec.training = false;
    chain_open(&bare, &spec);
    const double with = chain_forward(&c, 0, &batch.mb, 0, NULL);
    for (size_t i = 0; i < c.spec.cut.n; i++)
        stage_select_no_adapter(c.stage[i]);
    const double without = chain_forward(&c, 0, &batch.mb, 0, NULL);
    assert_true(without == chain_forward(&bare, 0, &batch.mb, 0, NULL) && without != with);
    chain_choose(&c, 0);
    assert_true(chain_forward(&c, 0, &batch.mb, 0, NULL) == with);
    check_slopes(&c, &batch.mb);
    chain_close(&bare);
    chain_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_pairs_are_slopes),
        cmocka_unit_test(without_adapter_it_is_the_model),
    };
    return cmocka_run_group_tests_name("stage_pairs", tests, set_up, tear_down);
}
