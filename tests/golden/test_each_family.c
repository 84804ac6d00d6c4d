/* SPDX-License-Identifier: MIT
 *
 * What every family can do, of each the golden case or, where none was recorded, random weights
 * for a config of tests/data/families. Training has the bits of one stage in a chain: of an adapter
 * on stored and quantized weights, and of the whole model. What was trained loads again, an adapter
 * from both of its forms. Merged it computes what model and adapter do, and a model that was
 * converted computes what it did. tests/system/each.sh asks the programs for the rest. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/write/convert.h"
#include "model/write/merge.h"
#include "tests/lib/chain.h"
#include "tests/lib/golden.h"
#include "tests/lib/known_families.h"
#include "tests/lib/near.h"
#include "tests/lib/place.h"

enum { MOST = 64, RANK = 2, TOKENS = 12 };
enum { END = SIZE_MAX >> 1 }; /* of a cut: the last layer, whichever that is */

static const struct chain_cut one_stage = {1, {END}}, cuts[] = {{2, {1, END}}, {3, {0, 2, END}}};

static struct {
    char name[32], model[128]; /* the latter without weights where those are made */
    bool is_recorded;
} models[MOST];
static size_t n_models;

static void list_models(const char *folder, const char *sub, bool is_recorded)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        assert_true(n_models < MOST);
        snprintf(models[n_models].name, sizeof models->name, "%.31s", e->d_name);
        snprintf(models[n_models].model, sizeof models->model, "%s/%.31s%s", folder, e->d_name, sub);
        models[n_models++].is_recorded = is_recorded;
    }
    closedir(d);
}

/* --- one model -------------------------------------------------------------------------------- */

struct each {
    struct place place; /* its `model` is the recorded one, or in its folder */
    const char *name;   /* borrowed */
    char kept[160];     /* of weights that are quantized */
};

static void each_open(struct each *e, size_t i)
{
    struct err err;
    struct place *p = &e->place;
    e->name = models[i].name;
    *p = (struct place){.dir = temp_dir_new()};
    snprintf(p->out, sizeof p->out, "%s/out", p->dir.path);
    snprintf(p->model, sizeof p->model, "%s", models[i].is_recorded ? models[i].model : p->dir.path);
    snprintf(e->kept, sizeof e->kept, "%s/kept", p->dir.path);
    must(config_read(&p->config, models[i].model, &err), &err);
    p->family = family_find(p->config.family);
    if (models[i].is_recorded)
        return;
    size_t n;
    char *config = read_file(models[i].model, "config.json", &n);
    write_file(p->model, "config.json", config);
    model_write(p->model, &p->config);
    free(config);
}

static void each_close(struct each *e)
{
    place_free(&e->place);
}

/* On all linears, also those of experts. */
static struct tune lora(const struct each *e)
{
    struct err err;
    struct tune t = {
        .kind = TUNE_LORA, .rank = RANK, .alpha = 2 * RANK, .end_layer = e->place.config.layers, .seed = 3};
    must(tune_targets(&t, e->place.family, &e->place.config, "all-linear", &err), &err);
    return t;
}

static struct chain_spec chain_of(const struct each *e, const char *model, const struct config *c,
                                  const struct tune *tune, size_t bits)
{
    struct chain_spec spec = tiny_chain(model, c, tune, one_stage);
    spec.weight_bits = bits;
    spec.cache_dir = e->kept;
    return spec;
}

/* w, m, v of every unit, small enough for an adapter to be one; the caller frees. */
static float *random_values(const struct each *e, const struct tune *tune, float size)
{
    size_t n;
    float *values = place_random(&e->place, tune, &n);
    for (size_t i = 0; i < n; i++)
        values[i] *= size;
    return values;
}

static void write_out(const struct each *e, const struct tune *tune, const float *values)
{
    struct err err;
    const struct adapter_out_request req = place_request(&e->place, tune, 1);
    must(place_write(&req, values, &err), &err);
}

/* --- training --------------------------------------------------------------------------------- */

static struct chain_result train(const struct chain_spec *spec)
{
    static const struct adamw opt = {0.01f, 0.9f, 0.999f, 1e-8f, 0.01f};
    struct chain_result r = {0};
    struct tiny_batch batch;
    struct chain c;
    chain_open(&c, spec);
    for (size_t step = 0; step < CHAIN_STEPS; step++) {
        tiny_batch_init(&batch, &spec->config, 20 + step);
        r.loss[step] = chain_forward(&c, 0, &batch.mb, 1.0f / TINY_TOKENS, NULL);
        chain_backward(&c, 0);
        chain_tie(&c);
        r.norm[step] = chain_norm(&c);
        chain_update(&c, &opt, step + 1);
    }
    r.n = 3 * chain_elements(&c, false);
    r.state = chain_pack(&c, true);
    chain_close(&c);
    return r;
}

/* Whole backwards on one stage, halved ones in a chain. */
static void check_cuts(struct chain_spec spec, size_t n)
{
    struct chain_result one = train(&spec);
    assert_true(one.loss[1] != one.loss[0] && isfinite(one.norm[1]));
    spec.split_backward = true;
    for (size_t i = 0; i < n; i++) {
        spec.cut = cuts[i];
        struct chain_result more = train(&spec);
        assert_memory_equal(more.loss, one.loss, sizeof one.loss);
        assert_memory_equal(more.norm, one.norm, sizeof one.norm);
        assert_same_bits(more.state, one.state, one.n, "values and moments against one stage");
        free(more.state);
    }
    free(one.state);
}

static void check_training(const struct each *e)
{
    const struct config *c = &e->place.config;
    const struct tune adapter = lora(e), full = {.kind = TUNE_FULL, .end_layer = c->layers};
    for (size_t bits = 0; bits <= 8; bits += 4)
        check_cuts(chain_of(e, e->place.model, c, &adapter, bits), bits ? 1 : 2);
    if (!c->experts_fp4)
        check_cuts(chain_of(e, e->place.model, c, &full, 0), 2);
}

/* --- what it leaves --------------------------------------------------------------------------- */

/* Logits [TOKENS, vocab] after each token, of two stages; `adapter` may be NULL. The caller
 * frees. */
static float *logits_of(const struct each *e, const char *model, size_t bits, const struct tune *tune,
                        const char *adapter)
{
    struct err err;
    struct config c;
    struct chain chain;
    struct tiny_batch b;
    must(config_read(&c, model, &err), &err);
    const struct tune none = {.end_layer = c.layers};
    struct chain_spec spec = chain_of(e, model, &c, adapter ? tune : &none, bits);
    spec.training = false;
    spec.kv = true;
    spec.cut = cuts[0];
    tiny_batch_init(&b, &c, 5);
    chain_open(&chain, &spec);
    if (adapter) {
        struct adapter_in *in;
        must(adapter_in_open(&in, adapter, tune, chain.family, &c, &err), &err);
        chain_load(&chain, in);
        adapter_in_close(in);
    }
    float *all = calloc(TOKENS * c.vocab, sizeof *all);
    assert_non_null(all);
    for (size_t t = 0; t < TOKENS; t++)
        memcpy(all + t * c.vocab, chain_decode(&chain, b.ids + t, 1, t), c.vocab * sizeof *all);
    chain_close(&chain);
    return all;
}

static void drop(const struct each *e, const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", e->place.out, file);
    assert_int_equal(remove(path), 0);
}

/* mlx-lm calls experts' linears alike in all families, whatever their own files call them. */
static void check_stacks(const struct each *e, const char *dir, const char *file)
{
    size_t n;
    uint64_t head;
    char *bytes = read_file(dir, file, &n);
    assert_non_null(bytes);
    memcpy(&head, bytes, sizeof head);
    bytes[8 + head] = 0;
    if (e->place.config.moe.experts && !strstr(bytes + 8, ".switch_mlp.gate_proj.") &&
        !strstr(bytes + 8, ".mlp.experts.gate_proj."))
        fail_msg("%s: %s/%s has no stack of gate_proj", e->name, dir, file);
    free(bytes);
}

/* The adapter is read as PEFT has it, and then as mlx-lm. */
static void check_forms(const struct each *e, const struct tune *tune, const float *values)
{
    const struct place *p = &e->place;
    check_stacks(e, p->out, "adapters.safetensors");
    for (int form = 0; form < 2; form++) {
        struct tune back = {.seed = 3};
        struct adapter_in *in;
        struct err err;
        must(adapter_read_config(&back, p->out, p->family, &p->config, &err), &err);
        assert_int_equal(tune_param_count(&back, p->family, &p->config, 1),
                         tune_param_count(tune, p->family, &p->config, 1));
        must(adapter_in_open(&in, p->out, &back, p->family, &p->config, &err), &err);
        place_check(in, p, tune, values);
        adapter_in_close(in);
        if (form)
            break;
        size_t n;
        char *text = read_file(p->out, "adapter_config.json", &n);
        json_t *o = json_loadb(text, n, 0, NULL);
        free(text);
        assert_int_equal(json_object_del(o, "peft_type"), 0);
        text = json_dumps(o, 0);
        write_file(p->out, "adapter_config.json", text);
        drop(e, "adapter_model.safetensors");
        free(text);
        json_decref(o);
    }
}

/* All factors are as large as in an adapter that was trained for long. */
static void check_adapter(const struct each *e)
{
    struct err err;
    struct rewrite_result done;
    char merged[160];
    const struct place *p = &e->place;
    const struct tune tune = lora(e);
    const size_t n = TOKENS * p->config.vocab;
    float *values = random_values(e, &tune, 0.02f);
    write_out(e, &tune, values);
    float *bare = logits_of(e, p->model, 0, NULL, NULL), *apart = logits_of(e, p->model, 0, &tune, p->out);
    snprintf(merged, sizeof merged, "%s/merged", p->dir.path);
    const struct merge_request req = {
        .model = p->model, .adapter = p->out, .out = merged, .dtype = DTYPE_F32};
    must(merge_run(&req, &done, &err), &err);
    float *together = logits_of(e, merged, 0, NULL, NULL);
    assert_near_max(together, apart, n, 1e-4, "the merged model against model and adapter");
    assert_true(near_difference(bare, apart, n) > 1e-2 * near_max(apart, n));
    check_forms(e, &tune, values);
    free(values), free(bare), free(apart), free(together);
}

/* A whole model that was trained, in the type that its files have. */
static void check_full(const struct each *e)
{
    struct err err;
    struct config config;
    struct chain chain;
    const struct place *p = &e->place;
    const struct tune full = {.kind = TUNE_FULL, .end_layer = p->config.layers};
    float *values = random_values(e, &full, 1);
    write_out(e, &full, values);
    must(config_read(&config, p->out, &err), &err);
    const struct chain_spec spec = chain_of(e, p->out, &config, &full, 0);
    chain_open(&chain, &spec);
    float *got = chain_pack(&chain, false);
    const float *is = got, *want = values;
    for (size_t u = 0; u < config.layers + 2; u++) {
        const size_t n = place_elements(p, &full, u);
        assert_near_max(is, want, n, config.dtype == DTYPE_BF16 ? 1.0 / 256 : 0, "a model that was written");
        is += n;
        want += 3 * n;
    }
    chain_close(&chain);
    free(values), free(got);
}

/* --- converted -------------------------------------------------------------------------------- */

static void convert(const char *from, const char *to, enum dtype dtype, size_t bits)
{
    struct err err;
    struct rewrite_result done;
    const struct convert_request req = {.model = from, .out = to, .dtype = dtype, .bits = bits, .group = 32};
    must(convert_run(&req, &done, &err), &err);
}

/* In 8 bits as mlx-lm has it, and from there in f32: but for the rounding of what few rows are
 * multiplied with, both compute the same. */
static void check_converted(const struct each *e)
{
    const struct place *p = &e->place;
    const size_t n = TOKENS * p->config.vocab;
    char plain[160], few[160], back[160];
    snprintf(plain, sizeof plain, "%s/plain", p->dir.path);
    snprintf(few, sizeof few, "%s/few", p->dir.path);
    snprintf(back, sizeof back, "%s/back", p->dir.path);
    convert(p->model, plain, DTYPE_F32, 0);
    convert(p->model, few, DTYPE_COUNT, 8);
    convert(few, back, DTYPE_F32, 0);
    check_stacks(e, few, "model.safetensors");
    float *stored = logits_of(e, p->model, 0, NULL, NULL), *same = logits_of(e, plain, 0, NULL, NULL),
          *quantized = logits_of(e, few, 0, NULL, NULL), *dense = logits_of(e, back, 0, NULL, NULL);
    assert_near_max(same, stored, n, 1e-4, "f32 of the model");
    assert_near_max(dense, quantized, n, 1e-2, "f32 of 8 bits");
    assert_true(near_difference(quantized, stored, n) > 0);
    free(stored), free(same), free(quantized), free(dense);
}

/* --- all -------------------------------------------------------------------------------------- */

static void run(void **state)
{
    struct each e;
    each_open(&e, *(const size_t *)*state);
    check_training(&e);
    check_adapter(&e);
    check_converted(&e);
    each_close(&e);
    each_open(&e, *(const size_t *)*state); /* another folder for its result */
    if (!e.place.config.experts_fp4)        /* they are not trained */
        check_full(&e);
    each_close(&e);
}

static bool has_model(const void *of, const char *family)
{
    struct config c;
    struct err err;
    (void)of;
    for (size_t i = 0; i < n_models; i++) {
        must(config_read(&c, models[i].model, &err), &err);
        if (!strcmp(c.family, family))
            return true;
    }
    return false;
}

/* A family without a model here would be seen by nobody. */
static void none_is_left_out(void **state)
{
    (void)state;
    known_families_all(has_model, NULL, "has no model here");
}

int main(void)
{
    static size_t index[MOST];
    struct CMUnitTest tests[MOST + 1] = {cmocka_unit_test(none_is_left_out)};
    list_models("tests/data/cases", "/model", true);
    list_models("tests/data/families", "", false);
    for (size_t i = 0; i < n_models; i++) {
        index[i] = i;
        tests[i + 1] = (struct CMUnitTest){models[i].name, run, NULL, NULL, &index[i]};
    }
    return _cmocka_run_group_tests("each family", tests, n_models + 1, NULL, NULL);
}
