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

/* --- groups of microbatches ------------------------------------------------------------------- */

enum { MANY = 7, ALL_GROUPS = 5 };

static size_t group_of(size_t mb)
{
    return mb * ALL_GROUPS / MANY;
}

/* Those of groups [first, end), without the end of the step. */
static void open_share(struct chain *c, const struct chain_spec *spec, size_t first, size_t end)
{
    struct chain_spec own = *spec;
    own.groups = ALL_GROUPS;
    own.first_group = first;
    own.end_group = end;
    chain_open(c, &own);
    for (size_t mb = 0; mb < MANY; mb++) {
        struct tiny_batch batch;
        if (group_of(mb) < first || group_of(mb) >= end)
            continue;
        tiny_batch_init(&batch, &spec->config, (uint32_t)mb + 1);
        batch.mb.group = group_of(mb);
        chain_forward(c, 0, &batch.mb, 1.0f / 64, NULL);
        chain_backward(c, 0);
    }
}

/* What a stage has left of two shares, joined as replicas do it, in pieces: each makes the sum of
 * one and gives it to the other. */
static void join_shares(struct chain *const c[2], size_t stage, size_t bound)
{
    struct sum_node nodes[SUM_TREE_NODES];
    const size_t n_of[2] = {sum_tree_roots(nodes, ALL_GROUPS, 0, bound),
                            sum_tree_roots(nodes, ALL_GROUPS, bound, ALL_GROUPS)};
    const bool sliced = c[0]->spec.updates > 1;
    for (size_t piece = 0; piece < 2; piece++) {
        const size_t values = stage_shared_values(c[0]->stage[stage], UNIT_GRADS, 0, sliced ? piece : 0),
                     bounds[] = {0, values / 3, values}, n = bounds[piece + 1] - bounds[piece];
        const struct param_share part =
            sliced ? (struct param_share){piece, 0, values} : (struct param_share){0, bounds[piece], n};
        float *sums = calloc((n_of[0] + n_of[1]) * part.n + 1, sizeof *sums);
        assert_non_null(sums);
        stage_pack_grads(c[0]->stage[stage], &part, sums);
        stage_pack_grads(c[1]->stage[stage], &part, sums + n_of[0] * part.n);
        const struct grad_share shares[] = {{0, bound, sums}, {bound, ALL_GROUPS, sums + n_of[0] * part.n}};
        const float *sum = stage_join_grads(c[piece]->stage[stage], &part, shares, 2);
        if (!sliced)
            stage_unpack_grads(c[!piece]->stage[stage], &part, sum);
        free(sums);
    }
}

/* A step whose groups are shared out to two chains, wherever the bound lies, against one chain. */
static void shares_of_groups_give_the_same_bits(void **state)
{
    struct temp_dir dir = temp_dir_new();
    struct config config = tiny_write(dir.path, *state);
    for (size_t how = 0; how < 4; how++) {
        struct chain_spec spec = tiny_chain(dir.path, &config, &full, how < 2 ? whole : cuts[4]);
        struct chain one, shares[2], *const both[2] = {&shares[0], &shares[1]};
        spec.split_backward = how & 1;
        open_share(&one, &spec, 0, ALL_GROUPS);
        chain_tie(&one);
        const double norm = chain_norm(&one);
        float *grads = chain_pack_grads(&one);
        for (size_t bound = 1; bound < ALL_GROUPS; bound++) {
            open_share(&shares[0], &spec, 0, bound);
            open_share(&shares[1], &spec, bound, ALL_GROUPS);
            for (size_t i = 0; i < spec.cut.n; i++)
                join_shares(both, i, bound);
            for (size_t s = 0; s < 2; s++) {
                chain_tie(&shares[s]);
                assert_true(chain_norm(&shares[s]) == norm);
                float *own = chain_pack_grads(&shares[s]);
                assert_same_bits(own, grads, chain_elements(&one, false), "gradients of two shares");
                free(own);
                chain_close(&shares[s]);
            }
        }
        free(grads);
        chain_close(&one);
    }
    temp_dir_free(&dir);
}

/* The norm of slices, added up on the first chain. */
static double norm_of_slices(struct chain *const c[2])
{
    double sum = 0;
    for (size_t s = c[0]->spec.cut.n; s-- > 0;) {
        double *squares[2];
        size_t unit;
        for (size_t i = 0; i < 2; i++) {
            squares[i] = calloc(stage_squares_count(c[i]->stage[s], i) + 1, sizeof *squares[i]);
            assert_non_null(squares[i]);
            stage_squares(c[i]->stage[s], squares[i]);
        }
        sum = stage_sum_squares(c[0]->stage[s], sum, (const double *const[]){squares[0], squares[1]}, &unit);
        assert_int_equal(unit, STAGE_NO_UNIT);
        free(squares[0]);
        free(squares[1]);
    }
    return sqrt(sum);
}

/* Each gives the slice that it has updated to the other. */
static void exchange_values(struct chain *const c[2])
{
    for (size_t s = 0; s < c[0]->spec.cut.n; s++)
        for (size_t i = 0; i < 2; i++) {
            const struct param_share part = {i, 0, stage_shared_values(c[i]->stage[s], UNIT_VALUES, 0, i)};
            float *values = calloc(part.n + 1, sizeof *values);
            assert_non_null(values);
            stage_pack_values(c[i]->stage[s], &part, values);
            stage_unpack_values(c[!i]->stage[s], &part, values);
            free(values);
        }
    chain_sync_values(c[0]);
    chain_sync_values(c[1]);
}

/* Two chains that each update a slice, against one that updates all: norm, values, and the moments,
 * of which each has what the other has not. */
static void shares_of_the_update_give_the_same_bits(void **state)
{
    struct temp_dir dir = temp_dir_new();
    struct config config = tiny_write(dir.path, *state);
    for (size_t how = 0; how < 2; how++) {
        struct chain_spec spec = tiny_chain(dir.path, &config, &full, how ? cuts[4] : whole);
        struct chain one, shares[2], *const both[2] = {&shares[0], &shares[1]};
        open_share(&one, &spec, 0, ALL_GROUPS);
        chain_tie(&one);
        const double norm = chain_norm(&one);
        chain_update(&one, &opt, 1);
        spec.updates = 2;
        open_share(&shares[0], &spec, 0, 2);
        spec.updated = 1;
        open_share(&shares[1], &spec, 2, ALL_GROUPS);
        for (size_t i = 0; i < spec.cut.n; i++)
            join_shares(both, i, 2);
        chain_tie(both[0]);
        chain_tie(both[1]);
        assert_true(norm_of_slices(both) == norm);
        chain_update(both[0], &opt, 1);
        chain_update(both[1], &opt, 1);
        exchange_values(both);
        const size_t n = chain_elements(&one, true);
        float *want = chain_pack(&one, true),
              *has[2] = {chain_pack(both[0], true), chain_pack(both[1], true)};
        size_t apart = 0;
        for (size_t i = 0; i < n; i++) {
            apart += has[0][i] != has[1][i];
            assert_true(want[i] == has[0][i] || want[i] == has[1][i]);
            assert_true(has[0][i] == has[1][i] || has[0][i] == 0 || has[1][i] == 0);
        }
        assert_true(apart > n / 2); /* of moments, mostly; no value */
        free(want);
        for (size_t i = 0; i < 2; i++) {
            float *values = chain_pack(both[i], false), *wanted = chain_pack(&one, false);
            assert_same_bits(values, wanted, chain_elements(&one, false), "values of two slices");
            free(values);
            free(wanted);
            free(has[i]);
            chain_close(both[i]);
        }
        chain_close(&one);
    }
    temp_dir_free(&dir);
}

/* --- before a backward has ended -------------------------------------------------------------- */

enum { PARTS = 6 };

/* Parts that are packed as soon as the units that they lie in are through. */
struct early {
    struct stage *stage;
    size_t values, packed;
    float *sums; /* [values] */
};

static struct param_share part_of(const struct early *e, size_t part)
{
    const size_t at = e->values * part / PARTS;
    return (struct param_share){0, at, e->values * (part + 1) / PARTS - at};
}

static void pack_early(void *owner, size_t unit)
{
    struct early *e = owner;
    struct param_share part = part_of(e, e->packed);
    while (e->packed < PARTS && stage_part_is_above(e->stage, &part, unit)) {
        stage_pack_grads(e->stage, &part, e->sums + part.at);
        part = part_of(e, ++e->packed);
    }
}

/* Gradients of upper units go while lower ones are still computed, and are the same. */
static void gradients_may_go_early(void **state)
{
    struct temp_dir dir = temp_dir_new();
    struct config config = tiny_write(dir.path, *state);
    float *sums[2];
    size_t values = 0;
    for (size_t split = 0; split < 2; split++) {
        for (size_t early = 0; early < 2; early++) {
            struct chain_spec spec = tiny_chain(dir.path, &config, &full, whole);
            struct tiny_batch batch;
            struct chain c;
            spec.split_backward = split;
            chain_open(&c, &spec);
            struct early e = {c.stage[0], stage_shared_values(c.stage[0], UNIT_GRADS, 0, 0), 0, NULL};
            e.sums = sums[early] = calloc(e.values, sizeof *e.sums);
            assert_non_null(e.sums);
            tiny_batch_init(&batch, &config, 1);
            chain_forward(&c, 0, &batch.mb, 1.0f / 64, NULL);
            stage_watch(c.stage[0], early ? pack_early : NULL, &e);
            chain_backward(&c, 0);
            stage_watch(c.stage[0], NULL, NULL);
            assert_true(early ? e.packed > 1 && e.packed < PARTS : !e.packed);
            pack_early(&e, 0);
            assert_int_equal(e.packed, PARTS);
            values = e.values;
            chain_close(&c);
        }
        assert_same_bits(sums[1], sums[0], values, "gradients that go early");
        free(sums[0]);
        free(sums[1]);
    }
    temp_dir_free(&dir);
}

/* Another replica's groups are added to its own whatever came: of each node of its tree there are
 * values. */
static void a_share_without_a_microbatch_is_zero(void **state)
{
    struct temp_dir dir = temp_dir_new();
    const struct config config = tiny_write(dir.path, *state);
    struct chain_spec spec = tiny_chain(dir.path, &config, &full, whole);
    struct sum_node nodes[SUM_TREE_NODES];
    const size_t n_of = sum_tree_roots(nodes, ALL_GROUPS, 1, ALL_GROUPS);
    struct chain c;
    spec.groups = ALL_GROUPS;
    spec.first_group = 1;
    spec.end_group = ALL_GROUPS;
    chain_open(&c, &spec);
    const struct param_share part = {0, 0, stage_shared_values(c.stage[0], UNIT_GRADS, 0, 0)};
    const size_t n = n_of * part.n;
    float *sums = malloc(n * sizeof *sums);
    assert_non_null(sums);
    memset(sums, 0xff, n * sizeof *sums);
    stage_pack_grads(c.stage[0], &part, sums);
    for (size_t i = 0; i < n; i++)
        assert_true(sums[i] == 0);
    free(sums);
    chain_close(&c);
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
        {"shares_of_groups_give_the_same_bits (untied, biases)", shares_of_groups_give_the_same_bits, NULL,
         NULL, untied},
        {"shares_of_groups_give_the_same_bits (tied)", shares_of_groups_give_the_same_bits, NULL, NULL, tied},
        {"shares_of_the_update_give_the_same_bits (untied, biases)", shares_of_the_update_give_the_same_bits,
         NULL, NULL, untied},
        {"shares_of_the_update_give_the_same_bits (tied)", shares_of_the_update_give_the_same_bits, NULL,
         NULL, tied},
        {"gradients_may_go_early (untied, biases)", gradients_may_go_early, NULL, NULL, untied},
        {"gradients_may_go_early (tied)", gradients_may_go_early, NULL, NULL, tied},
        {"a_share_without_a_microbatch_is_zero", a_share_without_a_microbatch_is_zero, NULL, NULL, tied},
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
