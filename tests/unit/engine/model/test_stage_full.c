/* SPDX-License-Identifier: MIT
 *
 * Full fine-tuning through stages: every gradient against the slope of the loss, embeddings that
 * are also the head, weights drawn at random, and the same bits however the model is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "tests/lib/chain.h"
#include "tests/lib/near.h"
#include "tests/lib/slope.h"
#include "tests/lib/tiny.h"

enum { STEPS = 3 };

static const struct tune full = {.kind = TUNE_FULL};
static const struct adamw opt = {
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f};
static const struct chain_cut whole = {1, {3}};
static const struct chain_cut cuts[] = {{1, {3}},       {2, {1, 3}},    {2, {0, 3}},    {2, {3, 3}},
                                        {3, {1, 1, 3}}, {3, {1, 2, 3}}, {4, {0, 2, 3}}, {5, {0, 1, 2, 3, 3}}};
enum { CUTS = sizeof cuts / sizeof *cuts };

static struct tiny_spec models[] = {
    {.layers = 3, .tied = false, .biases = true, .dtype = DTYPE_F32},
    {.layers = 3, .tied = true, .biases = true, .dtype = DTYPE_F32},
    {.layers = 3, .tied = true, .biases = false, .dtype = DTYPE_BF16},
    {.layers = 3, .tied = false, .biases = false, .dtype = DTYPE_BF16},
};

static void gradients_are_slopes(void **state)
{
    struct temp_dir dir = temp_dir_new();
    struct config config = tiny_write(dir.path, *state);
    for (size_t i = 0; i < CUTS; i += CUTS - 1) {
        struct tiny_batch batch;
        struct chain c;
        struct chain_spec spec = tiny_chain(dir.path, &config, &full, cuts[i]);
        tiny_batch_init(&batch, &config, 1);
        chain_open(&c, &spec);
        check_slopes(&c, &batch.mb);
        chain_close(&c);
    }
    temp_dir_free(&dir);
}

struct result {
    double loss[STEPS], norm[STEPS];
    float *grads, *state; /* owned */
    size_t n;
};

static void result_free(struct result *r)
{
    free(r->grads);
    free(r->state);
}

static void take_step(struct chain *c, const struct tiny_batch *batches, struct result *r, size_t step)
{
    r->loss[step] = 0;
    for (size_t i = 0; i < 2; i++)
        r->loss[step] += chain_forward(c, i, &batches[i].mb, 1.0f / 32, NULL);
    for (size_t i = 0; i < 2; i++)
        chain_backward(c, i);
    chain_tie(c);
    r->norm[step] = chain_norm(c);
    if (step == 0)
        r->grads = chain_pack_grads(c);
    chain_update(c, &opt, step + 1);
}

/* Two microbatches a step; after step 1 the training moves to a chain cut as `later` says, as a
 * resumed run does. */
static struct result train(const struct chain_spec *spec, struct chain_cut later)
{
    struct result r = {0};
    struct tiny_batch batches[2];
    struct chain c;
    struct chain_spec next = *spec;
    tiny_batch_init(&batches[0], &spec->config, 1);
    tiny_batch_init(&batches[1], &spec->config, 2);
    chain_open(&c, spec);
    take_step(&c, batches, &r, 0);
    float *state = chain_pack(&c, true);
    chain_close(&c);
    next.cut = later;
    chain_open(&c, &next);
    chain_unpack(&c, state, true);
    free(state);
    for (size_t step = 1; step < STEPS; step++)
        take_step(&c, batches, &r, step);
    r.n = chain_elements(&c, false);
    r.state = chain_pack(&c, true);
    chain_close(&c);
    return r;
}

static void cuts_give_the_same_bits(void **state)
{
    struct temp_dir dir = temp_dir_new();
    struct config config = tiny_write(dir.path, *state);
    struct chain_spec spec = tiny_chain(dir.path, &config, &full, whole);
    struct result one = train(&spec, whole);
    for (size_t i = 0; i < CUTS; i++)
        for (int how = 0; how < 4; how++) {
            spec.cut = cuts[i];
            spec.split_backward = how & 1;
            spec.by_layer = how & 2;
            struct result more = train(&spec, cuts[(i + 3) % CUTS]);
            assert_memory_equal(more.loss, one.loss, sizeof one.loss);
            assert_memory_equal(more.norm, one.norm, sizeof one.norm);
            assert_same_bits(more.grads, one.grads, one.n, "gradients against one stage");
            assert_same_bits(more.state, one.state, 3 * one.n, "weights and moments against one stage");
            result_free(&more);
        }
    result_free(&one);
    temp_dir_free(&dir);
}

/* Slots keep microbatches apart: their backward passes may come in any interleaving. */
static void slots_are_apart(void **state)
{
    struct temp_dir dir = temp_dir_new();
    struct config config = tiny_write(dir.path, *state);
    struct chain_spec spec = tiny_chain(dir.path, &config, &full, cuts[1]);
    struct tiny_batch batches[2];
    float *grads[2];
    struct chain c;
    spec.split_backward = true;
    tiny_batch_init(&batches[0], &config, 1);
    tiny_batch_init(&batches[1], &config, 2);
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        chain_open(&c, &spec);
        chain_forward(&c, 0, &batches[0].mb, 1, NULL);
        if (interleaved)
            chain_forward(&c, 1, &batches[1].mb, 1, NULL);
        chain_backward_x(&c, 0);
        if (interleaved)
            chain_backward_x(&c, 1);
        chain_backward_w(&c, 0);
        if (!interleaved) {
            chain_forward(&c, 1, &batches[1].mb, 1, NULL);
            chain_backward_x(&c, 1);
        }
        chain_backward_w(&c, 1);
        chain_tie(&c);
        grads[interleaved] = chain_pack_grads(&c);
        chain_close(&c);
    }
    assert_same_bits(grads[1], grads[0],
                     chain_elements(&(struct chain){.spec = spec, .family = family_find("llama")}, false),
                     "gradients of interleaved microbatches");
    free(grads[0]);
    free(grads[1]);
    temp_dir_free(&dir);
}

/* --- random weights --------------------------------------------------------------------------- */

static float *random_weights(const struct config *config, struct chain_cut cut, uint64_t seed)
{
    struct tune tune = {.kind = TUNE_FULL, .random_init = true, .seed = seed};
    struct chain_spec spec = tiny_chain("/nonexistent", config, &tune, cut);
    struct tiny_batch batch;
    struct chain c;
    tiny_batch_init(&batch, config, 1);
    chain_open(&c, &spec);
    double loss = chain_forward(&c, 0, &batch.mb, 0, NULL); /* a tied head must have been drawn too */
    float *all = chain_pack(&c, false), *ret = calloc(chain_elements(&c, false) + 1, sizeof *ret);
    assert_non_null(ret);
    memcpy(ret, all, chain_elements(&c, false) * sizeof *ret);
    ret[chain_elements(&c, false)] = (float)loss;
    free(all);
    chain_close(&c);
    return ret;
}

static void random_weights_do_not_depend_on_the_cut(void **state)
{
    struct temp_dir dir = temp_dir_new();
    struct config config = tiny_write(dir.path, *state);
    struct chain c = {.spec = {.config = config, .tune = full}, .family = family_find("llama")};
    size_t n = chain_elements(&c, false) + 1;
    float *one = random_weights(&config, whole, 5);
    for (size_t i = 1; i < CUTS; i++) {
        float *more = random_weights(&config, cuts[i], 5);
        assert_same_bits(more, one, n, "random weights, and the loss they give");
        free(more);
    }
    float *other = random_weights(&config, whole, 6);
    assert_true(near_difference(other, one, n) > 0.1);
    free(other);
    free(one);
    temp_dir_free(&dir);
}

static void random_weights_have_the_right_spread(void **state)
{
    struct temp_dir dir = temp_dir_new();
    struct config config = tiny_write(dir.path, *state);
    struct tune tune = {.kind = TUNE_FULL, .random_init = true, .seed = 5};
    struct chain_spec spec = tiny_chain("/nonexistent", &config, &tune, cuts[1]);
    struct chain c;
    chain_open(&c, &spec);
    const struct param *norm = chain_param(&c, "model.layers.1.input_layernorm.weight"),
                       *bias = chain_param(&c, "model.layers.1.self_attn.q_proj.bias"),
                       *matrix = chain_param(&c, "model.layers.1.mlp.up_proj.weight");
    for (size_t i = 0; i < norm->n; i++)
        assert_true(norm->w[i] == 1);
    for (size_t i = 0; i < bias->n; i++)
        assert_true(bias->w[i] == 0);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < matrix->n; i++) {
        sum += (double)matrix->w[i];
        squares += (double)matrix->w[i] * (double)matrix->w[i];
    }
    assert_true(fabs(sum / (double)matrix->n) < 0.05);
    assert_true(fabs(sqrt(squares / (double)matrix->n) - (double)config.init_std) < 0.03);
    chain_close(&c);
    temp_dir_free(&dir);
}

static void training_lowers_the_loss(void **state)
{
    struct temp_dir dir = temp_dir_new();
    struct config config = tiny_write(dir.path, *state);
    struct tune tune = {.kind = TUNE_FULL, .random_init = true, .seed = 5};
    struct chain_spec spec = tiny_chain("/nonexistent", &config, &tune, cuts[5]);
    struct tiny_batch batch;
    struct chain c;
    double first = 0, loss = 0;
    tiny_batch_init(&batch, &config, 1);
    chain_open(&c, &spec);
    for (uint64_t step = 1; step <= 40; step++) {
        loss = chain_forward(&c, 0, &batch.mb, 1.0f / 16, NULL);
        first = step == 1 ? loss : first;
        chain_backward(&c, 0);
        chain_tie(&c);
        chain_update(&c, &opt, step);
    }
    assert_true(loss < first / 4);
    chain_close(&c);
    temp_dir_free(&dir);
}

int main(void)
{
    struct tiny_spec *untied = &models[0], *tied = &models[1], *tied_bf16 = &models[2],
                     *plain_bf16 = &models[3];
    const struct CMUnitTest tests[] = {
        {"gradients_are_slopes (untied, biases)", gradients_are_slopes, NULL, NULL, untied},
        {"gradients_are_slopes (tied, biases)", gradients_are_slopes, NULL, NULL, tied},
        {"gradients_are_slopes (tied, bf16)", gradients_are_slopes, NULL, NULL, tied_bf16},
        {"cuts_give_the_same_bits (untied, biases)", cuts_give_the_same_bits, NULL, NULL, untied},
        {"cuts_give_the_same_bits (tied, biases)", cuts_give_the_same_bits, NULL, NULL, tied},
        {"cuts_give_the_same_bits (tied, bf16)", cuts_give_the_same_bits, NULL, NULL, tied_bf16},
        {"cuts_give_the_same_bits (bf16)", cuts_give_the_same_bits, NULL, NULL, plain_bf16},
        {"slots_are_apart", slots_are_apart, NULL, NULL, tied},
        {"random_weights_do_not_depend_on_the_cut", random_weights_do_not_depend_on_the_cut, NULL, NULL,
         untied},
        {"random_weights_do_not_depend_on_the_cut (tied)", random_weights_do_not_depend_on_the_cut, NULL,
         NULL, tied},
        {"random_weights_have_the_right_spread", random_weights_have_the_right_spread, NULL, NULL, untied},
        {"training_lowers_the_loss", training_lowers_the_loss, NULL, NULL, untied},
        {"training_lowers_the_loss (tied)", training_lowers_the_loss, NULL, NULL, tied},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
