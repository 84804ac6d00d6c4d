/* SPDX-License-Identifier: MIT
 *
 * Stages by themselves: what they need, what they refuse and in which words, generation against
 * scoring, LoRA on some of the layers, and dropout. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "num/rng.h"
#include "tests/lib/chain.h"
#include "tests/lib/near.h"
#include "tests/lib/slope.h"
#include "tests/lib/tiny.h"

enum { LAYERS = 4, STEPS = 2 };
static const struct adamw opt = {
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f};
static const struct chain_cut whole = {1, {4}};
static const struct chain_cut cuts[] = {{1, {4}},          {2, {1, 4}},    {2, {2, 4}},
                                        {2, {3, 4}},       {3, {0, 2, 4}}, {3, {1, 3, 4}},
                                        {4, {1, 2, 3, 4}}, {3, {2, 2, 4}}, {4, {0, 1, 4, 4}}};
enum { CUTS = sizeof cuts / sizeof *cuts };

/* A model of four layers in a directory of its own, for all tests here. */
struct place {
    struct temp_dir dir;
    struct config config;
};

static int set_up(void **state)
{
    static struct place place;
    place.dir = temp_dir_new();
    place.config =
        tiny_write(place.dir.path, &(struct tiny_spec){.layers = LAYERS, .biases = true, .dtype = DTYPE_F32});
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    temp_dir_free(&p->dir);
    return 0;
}

static struct tune lora(const struct config *c, const char *targets, size_t first, size_t end, float dropout)
{
    struct err err;
    struct tune t = {.kind = TUNE_LORA,
                     .rank = 3,
                     .alpha = 4.5f,
                     .dropout = dropout,
                     .first_layer = first,
                     .end_layer = end,
                     .seed = 11};
    must(tune_targets(&t, family_find(c->family), c, targets, &err), &err);
    return t;
}

static struct stage_spec whole_stage(const struct place *p)
{
    return (struct stage_spec){.model_dir = p->dir.path,
                               .config = p->config,
                               .end_layer = LAYERS,
                               .embed = true,
                               .head = true,
                               .slots = 1,
                               .tokens = 8,
                               .seqs = 2,
                               .positions = 6};
}

/* --- opening ---------------------------------------------------------------------------------- */

static void refuses_wrong_specs(void **state)
{
    const struct place *p = *state;
    struct err err;
    struct num *num;
    struct stage *s = NULL;
    must(num_new(&num, 1, &err), &err);
    struct stage_spec spec = whole_stage(p);
    spec.end_layer = LAYERS + 1;
    must_refuse(stage_open(&s, num, &spec, &err), -EINVAL, &err,
                "layers 0 to 5 do not exist in a model of 4 layers");
    struct stage_bytes bytes;
    must_refuse(stage_measure(&bytes, &spec, &err), -EINVAL, &err, "0 to 5");
    spec = whole_stage(p);
    strcpy(spec.config.family, "abacus");
    must_refuse(stage_open(&s, num, &spec, &err), -ENOTSUP, &err, "\"abacus\"");
    spec = whole_stage(p);
    spec.model_dir = "/nonexistent/model";
    assert_int_equal(stage_open(&s, num, &spec, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/model"));
    spec = whole_stage(p);
    spec.tune = (struct tune){.kind = TUNE_LORA, .random_init = true};
    must_refuse(stage_open(&s, num, &spec, &err), -EINVAL, &err, "random");
    assert_null(s);
    num_free(num);
}

/* One sentence names everything that does not fit. */
static void names_every_mismatch(void **state)
{
    const struct place *p = *state;
    struct err err;
    struct num *num;
    struct stage *s = NULL;
    must(num_new(&num, 1, &err), &err);
    struct stage_spec spec = whole_stage(p);
    spec.config.ffn += 4;
    int r = stage_open(&s, num, &spec, &err);
    must_refuse(r, -EINVAL, &err,
                "20 tensors are not what config.json says"); /* three and two biases a layer */
    must_refuse(r, -EINVAL, &err,
                "model.layers.0.mlp.gate_proj.weight is [28, 20], config.json says [32, 20]");
    spec = whole_stage(p);
    spec.config.layers = spec.end_layer = LAYERS + 1;
    must_refuse(stage_open(&s, num, &spec, &err), -EINVAL, &err,
                "model.layers.4.input_layernorm.weight is missing");
    spec = whole_stage(p);
    spec.first_layer = 1, spec.end_layer = 2, spec.embed = spec.head = false;
    spec.config.mlp_bias = false;
    /* leaving out what the files hold would be another model, whoever holds the layer */
    must_refuse(stage_open(&s, num, &spec, &err), -ENOTSUP, &err,
                "12 tensors that a llama model has no place for: model.layers.0.mlp.down_proj.bias");
    num_free(num);
}

static void measures_what_it_takes(void **state)
{
    const struct place *p = *state;
    struct err err;
    struct stage_bytes one, all, more;
    struct stage_spec spec = whole_stage(p);
    spec.training = true;
    spec.tune = lora(&p->config, "all-linear", 0, LAYERS, 0);
    must(stage_measure(&all, &spec, &err), &err);
    assert_int_equal(all.total, all.mapped + all.params + all.slots + all.work + all.kv);
    assert_int_equal(all.kv, 0);
    spec.slots = 3;
    must(stage_measure(&more, &spec, &err), &err);
    assert_int_equal(more.slots, 3 * all.slots);
    assert_int_equal(more.params, all.params);
    spec.by_layer = true;
    must(stage_measure(&one, &spec, &err), &err);
    assert_true(3 * one.slots < more.slots); /* inputs of layers alone */
    assert_true(one.work > more.work);       /* the rest once, and for one layer */
    assert_true(one.total < more.total);
    spec.by_layer = false;
    spec.slots = 1, spec.end_layer = 1;
    must(stage_measure(&one, &spec, &err), &err);
    assert_true(one.params < all.params && one.slots < all.slots && one.mapped < all.mapped);
    spec.tune = (struct tune){.kind = TUNE_FULL};
    must(stage_measure(&more, &spec, &err), &err);
    assert_true(more.params > one.params);
    assert_int_equal(more.mapped, 0); /* copied once, then not looked at again */
    spec.tokens = SIZE_MAX / 16;
    must_refuse(stage_measure(&more, &spec, &err), -EOVERFLOW, &err, "address space");
    spec = whole_stage(p);
    spec.kv = true;
    must(stage_measure(&more, &spec, &err), &err);
    assert_int_equal(more.kv % 64, 0);
    spec.kv = false;
    spec.training = true;
    spec.tune = lora(&p->config, "all-linear", 0, LAYERS, 0);
    must(stage_measure(&all, &spec, &err), &err);
    assert_int_equal(all.kv, 0);
    spec.sample = 6;
    struct stage_bytes sampling;
    must(stage_measure(&sampling, &spec, &err), &err);
    assert_int_equal(sampling.kv, more.kv); /* as much as a cache of six positions is elsewhere */
    assert_int_equal(sampling.slots, all.slots);
    assert_true(sampling.work >= all.work);
    assert_true(more.kv >= LAYERS * 2 * 6 * p->config.kv_heads * p->config.head * sizeof(float));
}

/* Memory of others that is too small is not used. */
static void borrows_enough_or_nothing(void **state)
{
    const struct place *p = *state;
    struct err err;
    struct num *num;
    struct stage *s = NULL;
    struct stage_bytes bytes;
    struct stage_spec spec = whole_stage(p);
    must(stage_measure(&bytes, &spec, &err), &err);
    struct slab scratch = {.used = bytes.work};
    must(slab_alloc(&scratch, "scratch", &err), &err);
    scratch.overlaps = true; /* we use it too */
    must(num_new(&num, 1, &err), &err);
    spec.scratch = &scratch;
    scratch.used = bytes.work / 2;
    must_refuse(stage_open(&s, num, &spec, &err), -ENOBUFS, &err, "scratch of a stage needs");
    scratch.used = bytes.work;
    must(stage_open(&s, num, &spec, &err), &err);
    stage_close(s);
    memset(scratch.base, 1, bytes.work); /* still ours */
    slab_free(&scratch);
    num_free(num);
}

/* --- microbatches ----------------------------------------------------------------------------- */

static void refuses_what_does_not_fit(void **state)
{
    const struct place *p = *state;
    struct err err;
    struct num *num;
    struct stage *s;
    struct stage_spec spec = whole_stage(p);
    must(num_new(&num, 1, &err), &err);
    must(stage_open(&s, num, &spec, &err), &err);
    const uint32_t three[] = {0, 1, 2, 3}, nine[] = {0, 4, 9}, seven[] = {0, 7, 8}, fits[] = {0, 6, 8};
    must_refuse(stage_begin(s, 0, (struct seqs){3, three}, 1, &err), -E2BIG, &err, "3 sequences");
    must_refuse(stage_begin(s, 0, (struct seqs){2, nine}, 1, &err), -E2BIG, &err, "9 tokens");
    must_refuse(stage_begin(s, 0, (struct seqs){2, seven}, 1, &err), -E2BIG, &err, "a sequence of 7 tokens");
    must(stage_begin(s, 0, (struct seqs){2, fits}, 1, &err), &err);
    uint32_t ids[] = {0, 1, 2, 3, 4, 5, 36, 37};
    must_refuse(stage_input_ids(s, 0, ids, &err), -ERANGE, &err,
                "token 37 is outside the model's vocabulary of 37");
    stage_close(s);
    spec.kv = true;
    must(stage_open(&s, num, &spec, &err), &err);
    must_refuse(stage_decode(s, ids, NULL, NULL, 9, 0, &err), -E2BIG, &err, "9 positions");
    must_refuse(stage_decode(s, ids, NULL, NULL, 3, 4, &err), -E2BIG, &err, "from 4 on");
    must_refuse(stage_decode(s, ids, NULL, NULL, 1, SIZE_MAX, &err), -E2BIG, &err, "positions");
    must_refuse(stage_decode(s, ids + 7, NULL, NULL, 1, 0, &err), -ERANGE, &err, "token 37 is outside");
    must(stage_decode(s, ids, NULL, NULL, 6, 0, &err), &err);
    stage_close(s);
    num_free(num);
}

static void finds_a_gradient_that_is_not_finite(void **state)
{
    const struct place *p = *state;
    struct tune tune = lora(&p->config, "q_proj,down_proj", 0, LAYERS, 0);
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &tune, whole);
    struct chain c;
    size_t unit;
    chain_open(&c, &spec);
    assert_true(chain_norm(&c) == 0);
    chain_param(&c, "model.layers.1.mlp.down_proj.lora_B.weight")->g[5] = INFINITY;
    chain_param(&c, "model.layers.2.mlp.down_proj.lora_B.weight")->g[5] = NAN;
    assert_false(isfinite(stage_sumsq(c.stage[0], 0, &unit)));
    assert_int_equal(unit, 3); /* backwards it comes first */
    stage_skip_update(c.stage[0]);
    assert_true(stage_sumsq(c.stage[0], 0, &unit) == 0);
    assert_int_equal(unit, STAGE_NO_UNIT);
    chain_param(&c, "model.layers.0.self_attn.q_proj.lora_A.weight")->g[0] = 3;
    chain_param(&c, "model.layers.3.self_attn.q_proj.lora_A.weight")->g[1] = 4;
    assert_true(chain_norm(&c) == 5);
    chain_close(&c);
}

/* B starts at zero, where A's gradient would be zero too. */
static void shake(struct chain *c)
{
    size_t n = chain_elements(c, false);
    float *all = chain_pack(c, false);
    struct rng rng = rng_for(3, "shake");
    rng_fill_normal(&rng, all, n, 0, 0.3f);
    chain_unpack(c, all, false);
    free(all);
}

static void generation_agrees_with_scoring(void **state)
{
    const struct place *p = *state;
    struct tune tune =
        lora(&p->config, "v_proj,up_proj", 1, 3, 0.4f); /* no dropout where nothing is trained */
    struct tiny_batch batch;
    struct chain score, decode;
    float logprob[TINY_TOKENS];
    tiny_batch_init(&batch, &p->config, 4);
    batch.mb.drop = 0;
    for (size_t i = 0; i < CUTS; i++) {
        struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &tune, cuts[i]);
        chain_open(&score, &spec);
        shake(&score);
        chain_forward(&score, 0, &batch.mb, 0, logprob);
        spec.training = false;
        spec.kv = true;
        chain_open(&decode, &spec);
        shake(&decode);
        for (size_t t = batch.start[2]; t < TINY_TOKENS; t++) {
            const float *logits = chain_decode(&decode, &batch.ids[t], 1, t - batch.start[2]);
            if (batch.labels[t] < 0)
                continue;
            double sum = 0;
            for (size_t v = 0; v < p->config.vocab; v++)
                sum += exp((double)logits[v]);
            double want = (double)logits[batch.labels[t]] - log(sum);
            assert_true(fabs((double)logprob[t] - want) < 1e-4);
        }
        chain_close(&decode);
        chain_close(&score);
    }
}

/* --- LoRA ------------------------------------------------------------------------------------- */

static void lora_gradients_are_slopes(void **state)
{
    static const struct {
        const char *targets;
        size_t first, end;
        float dropout;
    } tunes[] = {{"all-linear", 0, LAYERS, 0},    {"all-linear", 1, 3, 0},
                 {"all-linear", 0, LAYERS, 0.3f}, {"q_proj,o_proj", 2, LAYERS, 0.5f},
                 {"down_proj", 0, 2, 0.1f},       {"k_proj,gate_proj", 3, LAYERS, 0}};
    const struct place *p = *state;
    for (size_t i = 0; i < sizeof tunes / sizeof *tunes; i++) {
        struct tune tune = lora(&p->config, tunes[i].targets, tunes[i].first, tunes[i].end, tunes[i].dropout);
        struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &tune, cuts[i % 2]);
        struct tiny_batch batch;
        struct chain c;
        tiny_batch_init(&batch, &p->config, 9);
        chain_open(&c, &spec);
        shake(&c);
        check_slopes(&c, &batch.mb);
        chain_close(&c);
    }
}

/* What is generated between steps, by the parameters as they are: those of a chain that only
 * generates say the same. */
static void sample(struct chain *c, const struct chain_spec *spec)
{
    static const uint32_t ids[] = {3, 1, 4, 1, 5};
    struct chain_spec only = *spec;
    struct chain plain;
    only.training = only.split_backward = false;
    only.sample = 0;
    only.kv = true;
    chain_open(&plain, &only);
    float *values = chain_pack(c, false);
    chain_unpack(&plain, values, false);
    free(values);
    for (size_t at = 0; at < 5; at += 2) {
        const size_t n = at < 4 ? 2 : 1;
        const float *logits = chain_decode(c, ids + at, n, at), *want = chain_decode(&plain, ids + at, n, at);
        assert_same_bits(logits, want, spec->config.vocab, "logits between steps");
    }
    chain_close(&plain);
}

static struct chain_result train(const struct chain_spec *spec)
{
    struct chain_result r = {0};
    struct tiny_batch batch;
    struct chain c;
    chain_open(&c, spec);
    shake(&c);
    for (size_t step = 0; step < STEPS; step++) {
        tiny_batch_init(&batch, &spec->config, 20 + step);
        r.loss[step] = chain_forward(&c, 0, &batch.mb, 1, NULL);
        chain_backward(&c, 0);
        r.norm[step] = chain_norm(&c);
        chain_update(&c, &opt, step + 1);
        if (spec->sample)
            sample(&c, spec);
    }
    r.n = 3 * chain_elements(&c, false);
    r.state = chain_pack(&c, true);
    chain_close(&c);
    return r;
}

static void check_cuts(const struct place *p, const struct tune *tune)
{
    chain_check_cuts(tiny_chain(p->dir.path, &p->config, tune, whole), cuts, CUTS, train);
}

static void lora_on_some_layers_is_the_same_in_every_cut(void **state)
{
    const struct place *p = *state;
    for (size_t first = 0; first < LAYERS; first++) {
        struct tune high = lora(&p->config, "all-linear", first, LAYERS, 0),
                    one = lora(&p->config, "v_proj,down_proj", first, first + 1, 0);
        check_cuts(p, &high);
        check_cuts(p, &one);
    }
}

static void samples_leave_training_as_it_is(void **state)
{
    const struct place *p = *state;
    struct tune tune = lora(&p->config, "all-linear", 0, LAYERS, 0.2f);
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &tune, whole);
    struct chain_result one = train(&spec);
    for (size_t i = 0; i < CUTS; i++) {
        spec.cut = cuts[i];
        spec.split_backward = i & 1;
        spec.sample = 6;
        struct chain_result more = train(&spec);
        assert_memory_equal(more.loss, one.loss, sizeof one.loss);
        assert_memory_equal(more.norm, one.norm, sizeof one.norm);
        assert_same_bits(more.state, one.state, one.n, "adapter and moments against a run without samples");
        free(more.state);
    }
    free(one.state);
}

static void dropout_is_the_same_in_every_cut(void **state)
{
    const struct place *p = *state;
    struct tune tune = lora(&p->config, "all-linear", 0, LAYERS, 0.25f),
                some = lora(&p->config, "all-linear", 2, 3, 0.25f);
    check_cuts(p, &tune);
    check_cuts(p, &some);
}

/* LoRA+: of two runs that differ in the ratio alone, the second moves every B four times as far in
 * its first step, and every A as far. (A power of two, so that the bits are the same but for the
 * exponent.) */
static void lora_plus_moves_b_further(void **state)
{
    const struct place *p = *state;
    float *values[2];
    size_t n = 0;
    for (int plus = 0; plus < 2; plus++) {
        struct tune tune = lora(&p->config, "q_proj,down_proj", 0, LAYERS, 0);
        tune.plus_ratio = plus ? 4 : 1;
        struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &tune, whole);
        struct tiny_batch batch;
        struct chain c;
        tiny_batch_init(&batch, &p->config, 9);
        chain_open(&c, &spec);
        chain_forward(&c, 0, &batch.mb, 1, NULL);
        chain_backward(&c, 0);
        chain_update(&c, &opt, 1);
        n = chain_elements(&c, false);
        values[plus] = chain_pack(&c, false);
        chain_close(&c);
    }
    struct tune tune = lora(&p->config, "q_proj,down_proj", 0, LAYERS, 0);
    size_t at = 0, moved = 0;
    for (size_t l = 0; l < LAYERS; l++) {
        const size_t in[] = {p->config.dim, p->config.ffn},
                     out[] = {p->config.heads * p->config.head, p->config.dim};
        for (size_t t = 0; t < 2; t++) {
            assert_same_bits(values[1] + at, values[0] + at, tune.rank * in[t], "A");
            at += tune.rank * in[t];
            for (size_t i = 0; i < tune.rank * out[t]; i++, at++) {
                assert_true(values[1][at] == 4 * values[0][at]);
                moved += values[0][at] != 0;
            }
        }
    }
    assert_int_equal(at, n);
    assert_true(moved > n / 4);
    free(values[0]);
    free(values[1]);
}

/* A stage all of whose layers lie below the trained ones hands nothing down, and holds nothing to
 * train. */
static void nothing_is_computed_below_the_lowest_layer(void **state)
{
    const struct place *p = *state;
    struct tune tune = lora(&p->config, "all-linear", 2, LAYERS, 0);
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &tune, cuts[1]); /* layers 0 | 1 … 3 */
    struct tiny_batch batch;
    struct chain c;
    tiny_batch_init(&batch, &p->config, 9);
    chain_open(&c, &spec);
    assert_int_equal(tune_unit_elements(&tune, c.family, &p->config, 2), 0);
    assert_true(tune_unit_elements(&tune, c.family, &p->config, 3) > 0);
    chain_forward(&c, 0, &batch.mb, 1, NULL);
    float dx[TINY_TOKENS * 20];
    assert_int_equal(p->config.dim, 20);
    memset(dx, 0x7f, sizeof dx);
    float before = dx[0];
    stage_backward(c.stage[1], 0, NULL, dx);
    for (size_t i = 0; i < TINY_TOKENS * 20; i++)
        assert_memory_equal(&dx[i], &before, sizeof before);
    chain_close(&c);
}

/* Masks belong to a microbatch of a step; evaluation, which has number 0, has none. */
static void dropout_follows_its_number(void **state)
{
    const struct place *p = *state;
    struct tune with = lora(&p->config, "all-linear", 0, LAYERS, 0.5f), without = with;
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &with, whole);
    struct tiny_batch batch;
    struct chain c;
    double loss[3];
    without.dropout = 0;
    tiny_batch_init(&batch, &p->config, 9);
    chain_open(&c, &spec);
    shake(&c);
    for (uint64_t drop = 0; drop < 3; drop++) {
        batch.mb.drop = drop;
        loss[drop] = chain_forward(&c, 0, &batch.mb, 0, NULL);
    }
    batch.mb.drop = 2;
    assert_true(chain_forward(&c, 0, &batch.mb, 0, NULL) == loss[2]);
    chain_close(&c);
    assert_true(loss[1] != loss[0] && loss[2] != loss[0] && loss[1] != loss[2]);
    spec.tune = without;
    chain_open(&c, &spec);
    shake(&c);
    assert_true(chain_forward(&c, 0, &batch.mb, 0, NULL) == loss[0]);
    chain_close(&c);
}

/* With several microbatches in flight each backward pass draws the masks of its own forward
 * pass. */
static void dropout_belongs_to_its_slot(void **state)
{
    const struct place *p = *state;
    struct tune tune = lora(&p->config, "all-linear", 0, LAYERS, 0.5f);
    float *grads[4] = {NULL};
    for (int i = 0; i < 4; i++) {
        bool together = i & 1;
        struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &tune, cuts[2]);
        struct tiny_batch batches[2];
        struct chain c;
        spec.split_backward = i & 2;
        spec.by_layer = together;
        tiny_batch_init(&batches[0], &p->config, 9);
        tiny_batch_init(&batches[1], &p->config, 10);
        chain_open(&c, &spec);
        shake(&c);
        chain_forward(&c, 0, &batches[0].mb, 1, NULL);
        if (together)
            chain_forward(&c, 1, &batches[1].mb, 1, NULL);
        chain_backward(&c, 0);
        if (!together)
            chain_forward(&c, 1, &batches[1].mb, 1, NULL);
        chain_backward(&c, 1);
        grads[i] = chain_pack_grads(&c);
        assert_same_bits(grads[i], grads[0], chain_elements(&c, false),
                         "gradients of microbatches in flight");
        chain_close(&c);
    }
    for (int i = 0; i < 4; i++)
        free(grads[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_wrong_specs),
        cmocka_unit_test(names_every_mismatch),
        cmocka_unit_test(measures_what_it_takes),
        cmocka_unit_test(borrows_enough_or_nothing),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(finds_a_gradient_that_is_not_finite),
        cmocka_unit_test(generation_agrees_with_scoring),
        cmocka_unit_test(lora_gradients_are_slopes),
        cmocka_unit_test(lora_on_some_layers_is_the_same_in_every_cut),
        cmocka_unit_test(lora_plus_moves_b_further),
        cmocka_unit_test(samples_leave_training_as_it_is),
        cmocka_unit_test(dropout_is_the_same_in_every_cut),
        cmocka_unit_test(nothing_is_computed_below_the_lowest_layer),
        cmocka_unit_test(dropout_follows_its_number),
        cmocka_unit_test(dropout_belongs_to_its_slot),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
