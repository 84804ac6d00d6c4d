/* SPDX-License-Identifier: MIT
 *
 * Adapters that are more than two factors: DoRA, and PiSSA, whose factors begin with the principal
 * part of a weight; and rates that differ by layer. Each is the same, bit for bit, in every cut.
 * And what matrices are rounded by, in whichever form they are. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/stage_impl.h"
#include "num/rng.h"
#include "tests/lib/chain.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

enum { LAYERS = 4, STEPS = 3 };
static const struct adamw opt = {
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f};
static const struct chain_cut whole = {1, {LAYERS}};
static const struct chain_cut cuts[] = {{2, {1, 4}}, {3, {0, 2, 4}}, {4, {1, 2, 3, 4}}};
enum { CUTS = sizeof cuts / sizeof *cuts };

struct place {
    struct temp_dir dir;
    struct config config;
};

static int set_up(void **state)
{
    static struct place place;
    place.dir = temp_dir_new();
    place.config = tiny_write(place.dir.path,
                              &(struct tiny_spec){.layers = LAYERS, .biases = true, .dtype = DTYPE_BF16});
    *state = &place;
    return 0;
}

static int tear_down(void **state)
{
    temp_dir_free(&((struct place *)*state)->dir);
    return 0;
}

static struct tune lora(const struct place *p, const char *targets)
{
    struct err err;
    struct tune t = {.kind = TUNE_LORA, .rank = 4, .alpha = 8, .end_layer = LAYERS, .seed = 11};
    must(tune_targets(&t, family_find(p->config.family), &p->config, targets, &err), &err);
    return t;
}

static struct tune dora(const struct place *p)
{
    struct tune t = lora(p, "all-linear");
    t.dora = true;
    t.dropout = 0.25f;
    return t;
}

static struct tune pissa(const struct place *p)
{
    struct tune t = lora(p, "q_proj,v_proj,down_proj");
    t.init = LORA_INIT_PISSA;
    tune_fix_half(&t);
    return t;
}

/* --- training --------------------------------------------------------------------------------- */

static struct chain_result train(const struct chain_spec *spec)
{
    struct chain_result r = {0};
    struct tiny_batch batch;
    struct chain c;
    chain_open(&c, spec);
    for (size_t step = 0; step < STEPS; step++) {
        tiny_batch_init(&batch, &spec->config, 20 + step);
        batch.mb.drop = step + 1;
        r.loss[step] = chain_forward(&c, 0, &batch.mb, 1, NULL);
        chain_backward(&c, 0);
        r.norm[step] = chain_norm(&c);
        chain_update(&c, &opt, step + 1);
    }
    r.n = chain_elements(&c, true);
    r.state = chain_pack(&c, true);
    chain_close(&c);
    return r;
}

static void check_cuts(const struct place *p, const struct tune *tune, size_t bits)
{
    struct temp_dir cache = temp_dir_new();
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, tune, whole);
    spec.weight_bits = bits;
    spec.cache_dir = cache.path;
    chain_check_cuts(spec, cuts, CUTS, train);
    temp_dir_free(&cache);
}

static void they_are_the_same_in_every_cut(void **state)
{
    const struct place *p = *state;
    const struct tune all[] = {dora(p), pissa(p)};
    for (size_t i = 0; i < 2; i++) {
        check_cuts(p, &all[i], 0);
        check_cuts(p, &all[i], 8);
    }
}

/* However weights are stored, each matrix is multiplied with what draws of its own round. */
static void each_matrix_has_its_own_draws(void **state)
{
    const struct place *p = *state;
    const struct tune tune = lora(p, "all-linear");
    struct temp_dir cache = temp_dir_new();
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &tune, whole);
    spec.cache_dir = cache.path;
    for (spec.weight_bits = 0; spec.weight_bits <= 8; spec.weight_bits += 8) {
        struct chain c;
        size_t matrices = 0;
        chain_open(&c, &spec);
        for (size_t i = 0; i < c.stage[0]->nunits; i++) {
            const struct unit *u = &c.stage[0]->units[i];
            for (size_t t = 0; t < u->ntensors; t++, matrices++)
                assert_int_equal(u->block.weights.lin[t].w.stream, rng_stream(u->defs[t].name));
        }
        assert_true(matrices > LAYERS);
        chain_close(&c);
    }
    temp_dir_free(&cache);
}

/* --- what they begin with --------------------------------------------------------------------- */

static double first_loss(const struct place *p, const struct tune *tune)
{
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, tune, whole);
    struct tiny_batch batch;
    struct chain c;
    chain_open(&c, &spec);
    tiny_batch_init(&batch, &p->config, 9);
    const double loss = chain_forward(&c, 0, &batch.mb, 1, NULL);
    chain_close(&c);
    return loss;
}

static void the_model_is_unchanged_at_first(void **state)
{
    const struct place *p = *state;
    struct tune plain = lora(p, "all-linear"), d = dora(p), s = pissa(p);
    const double loss = first_loss(p, &plain);
    d.dropout = 0;
    assert_true(first_loss(p, &d) == loss);
    assert_true(fabs(first_loss(p, &s) / loss - 1) < 1e-6);
}

/* ‖x‖² of what is left of w [rows, cols] without its part in the span of n orthonormal rows of v.
 */
static double left_over(const float *w, size_t rows, size_t cols, const double *v, size_t n)
{
    double sum = 0;
    for (size_t r = 0; r < rows; r++) {
        const float *row = w + r * cols;
        for (size_t c = 0; c < cols; c++)
            sum += (double)row[c] * (double)row[c];
        for (size_t k = 0; k < n; k++) {
            double dot = 0;
            for (size_t c = 0; c < cols; c++)
                dot += (double)row[c] * v[k * cols + c];
            sum -= dot * dot;
        }
    }
    return sum;
}

/* The largest right singular vectors one after the other by the power method in f64: slow, plain,
 * and nothing of the code that is tested. */
static void singular_vectors(double *v, const float *w, size_t rows, size_t cols, size_t n)
{
    double *left = calloc(rows, sizeof *left);
    for (size_t k = 0; k < n; k++)
        for (size_t c = 0; c < cols; c++)
            v[k * cols + c] = cos((double)(1 + k * cols + c));
    for (size_t k = 0; k < n; k++)
        for (size_t round = 0; round < 3000; round++) {
            double *x = v + k * cols, length = 0;
            for (size_t r = 0; r < rows && round; r++) {
                left[r] = 0;
                for (size_t c = 0; c < cols; c++)
                    left[r] += (double)w[r * cols + c] * x[c];
            }
            for (size_t c = 0; c < cols && round; c++) {
                x[c] = 0;
                for (size_t r = 0; r < rows; r++)
                    x[c] += (double)w[r * cols + c] * left[r];
            }
            for (size_t i = 0; i < k; i++) {
                double dot = 0;
                for (size_t c = 0; c < cols; c++)
                    dot += x[c] * v[i * cols + c];
                for (size_t c = 0; c < cols; c++)
                    x[c] -= dot * v[i * cols + c];
            }
            for (size_t c = 0; c < cols; c++)
                length += x[c] * x[c];
            for (size_t c = 0; c < cols; c++)
                x[c] /= sqrt(length);
        }
    free(left);
}

static void check_principal(const struct place *p, struct chain *c, const char *name)
{
    char factor[2][96], tensor[96];
    snprintf(tensor, sizeof tensor, "%s.weight", name);
    for (int i = 0; i < 2; i++)
        snprintf(factor[i], sizeof factor[i], "%s.lora_%c.weight", name, "AB"[i]);
    const struct param *a = chain_param(c, factor[0]), *b = chain_param(c, factor[1]);
    const size_t rank = a->def.rows, half = rank / 2, cols = a->def.cols, rows = b->def.rows;
    const struct unit *u = &c->stage[0]->layer0[2];
    const struct mat w = u->block.weights.lin[tiny_tensor_index(c->family, &p->config, 3, tensor)].w;
    float *plain = calloc(rows * cols, sizeof *plain);
    double *v = calloc(half * cols, sizeof *v), missing = 0;
    gemm_rows(c->num, plain, w, 0, rows);
    singular_vectors(v, plain, rows, cols, half);
    const double best = left_over(plain, rows, cols, v, half);
    for (size_t r = 0; r < rows; r++)
        for (size_t col = 0; col < cols; col++) {
            double rest = (double)plain[r * cols + col];
            for (size_t k = 0; k < half; k++)
                rest -= a->def.scale * (double)b->w[r * rank + k] * (double)a->w[k * cols + col];
            missing += rest * rest;
        }
    if (!(missing < best * (1 + 1e-5) && missing > best * (1 - 1e-5)))
        fail_msg("%s without its principal part has %g, not %g", name, missing, best);
    for (size_t k = 0; k < half; k++) {
        assert_memory_equal(a->w + k * cols, a->w + (half + k) * cols, cols * sizeof *a->w);
        for (size_t r = 0; r < rows; r++)
            assert_true(b->w[r * rank + k] == -b->w[r * rank + half + k]);
    }
    free(plain);
    free(v);
}

static void pissa_takes_the_principal_part(void **state)
{
    const struct place *p = *state;
    const struct tune tune = pissa(p);
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, &tune, whole);
    struct chain c;
    chain_open(&c, &spec);
    check_principal(p, &c, "model.layers.2.self_attn.q_proj");
    check_principal(p, &c, "model.layers.2.mlp.down_proj");
    chain_close(&c);
}

/* --- what is updated -------------------------------------------------------------------------- */

/* Values before and after some steps. */
static void two_states(const struct place *p, const struct tune *tune, float *values[2], size_t *ret_n)
{
    struct chain_spec spec = tiny_chain(p->dir.path, &p->config, tune, cuts[0]);
    struct chain c;
    struct tiny_batch batch;
    chain_open(&c, &spec);
    values[0] = chain_pack(&c, false);
    tiny_batch_init(&batch, &p->config, 9);
    chain_forward(&c, 0, &batch.mb, 1, NULL);
    chain_backward(&c, 0);
    chain_update(&c, &opt, 1);
    values[1] = chain_pack(&c, false);
    *ret_n = chain_elements(&c, false);
    chain_close(&c);
}

static int walk_fixed(void *arg, const struct param_def *def)
{
    float **at = arg;
    const size_t n = param_elements(def), rank = def->role == PARAM_A ? def->rows : def->cols;
    size_t moved = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t k = def->role == PARAM_A ? i / def->cols : i % rank;
        if (k >= rank / 2)
            assert_true(at[0][i] == at[1][i]);
        else
            moved += at[0][i] != at[1][i];
    }
    assert_true(moved > n / 2 * 9 / 10);
    at[0] += n;
    at[1] += n;
    return 0;
}

static void what_stands_for_the_weights_stays(void **state)
{
    const struct place *p = *state;
    const struct tune tune = pissa(p);
    float *values[2], *at[2];
    size_t n;
    two_states(p, &tune, values, &n);
    memcpy(at, values, sizeof at);
    for (size_t u = 0; u < LAYERS + 2; u++)
        tune_params(&tune, family_find(p->config.family), &p->config, u, walk_fixed, at);
    assert_int_equal((size_t)(at[0] - values[0]), n);
    free(values[0]);
    free(values[1]);
}

/* A first step of AdamW moves a value by the rate, whatever the gradient: by half as much a layer
 * further down, in factors that begin with zero exactly so. */
static void a_layer_learns_at_its_own_rate(void **state)
{
    const struct place *p = *state;
    float *equal[2], *less[2];
    size_t n, at = 0;
    struct tune tune = lora(p, "v_proj");
    two_states(p, &tune, equal, &n);
    tune.layer_decay = 0.5;
    two_states(p, &tune, less, &n);
    const size_t a = tune.rank * p->config.dim, b = tune.rank * p->config.kv_heads * p->config.head;
    for (size_t l = 0; l < LAYERS; l++, at += a + b)
        for (size_t i = 0; i < b; i++)
            assert_true(less[1][at + a + i] == equal[1][at + a + i] / (float)(1 << (LAYERS - 1 - l)));
    assert_int_equal(at, n);
    for (int i = 0; i < 2; i++) {
        free(equal[i]);
        free(less[i]);
    }
}

/* --- refusals --------------------------------------------------------------------------------- */

static void experts_have_no_magnitudes(void **state)
{
    const struct place *p = *state;
    struct err err;
    struct config c = p->config;
    strcpy(c.family, "qwen3_moe");
    c.moe = (struct config_moe){
        .experts = 3, .chosen = 2, .groups = 1, .groups_chosen = 1, .ffn = 7, .first = 1, .scale = 1};
    const struct family *f = family_find(c.family);
    struct tune t = {.kind = TUNE_LORA, .rank = 2, .alpha = 4, .end_layer = LAYERS, .dora = true};
    must(tune_targets(&t, f, &c, "q_proj,experts.*.up_proj", &err), &err);
    must_refuse(
        tune_check(&t, f, &c, &err), -ENOTSUP, &err,
        "DoRA has no magnitudes for routed experts, such as model.layers.1.mlp.experts.0.up_proj.weight");
    t.dora = false;
    must(tune_check(&t, f, &c, &err), &err);
    t.dora = true;
    must(tune_targets(&t, f, &c, "q_proj", &err), &err);
    must(tune_check(&t, f, &c, &err), &err);
    t.fixed = 3;
    must_refuse(tune_check(&t, f, &c, &err), -EINVAL, &err, "3 of the adapter's rank of 2 cannot be fixed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_the_same_in_every_cut),    cmocka_unit_test(each_matrix_has_its_own_draws),
        cmocka_unit_test(the_model_is_unchanged_at_first),   cmocka_unit_test(pissa_takes_the_principal_part),
        cmocka_unit_test(what_stands_for_the_weights_stays), cmocka_unit_test(a_layer_learns_at_its_own_rate),
        cmocka_unit_test(experts_have_no_magnitudes),
    };
    return cmocka_run_group_tests_name("stage_forms", tests, set_up, tear_down);
}
