/* SPDX-License-Identifier: MIT
 *
 * What a config alone says of a model's size: for golden cases the bytes that their files hold,
 * unit for unit, and for released models the number of parameters that their makers publish. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <jansson.h>

#include "file/weights.h"
#include "model/stage.h"
#include "tests/lib/known_families.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

#define CASES "tests/data/cases"
#define RELEASED "tests/data/released.json"

enum { PATH = 512, UNITS = CONFIG_MAX_LAYERS + 2 };

/* --- golden cases ----------------------------------------------------------------------------- */

/* Matrices are what is mapped: no vectors, also none of several experts in one tensor, and no taps
 * of convolutions. */
static bool is_mapped(const struct st_tensor *t)
{
    const size_t n = strlen(t->name);
    return t->ndim > 1 && strcmp(t->name + n - 4, "bias") != 0 && !strstr(t->name, "conv1d");
}

static void check_case(const char *name)
{
    struct temp_dir bare = temp_dir_new();
    char dir[PATH], path[PATH];
    size_t n, want[UNITS] = {0}, got[UNITS] = {0};
    struct config c, alone;
    struct st *st;
    struct err err;
    snprintf(dir, sizeof dir, CASES "/%s/model", name);
    snprintf(path, sizeof path, "%s/config.json", dir);
    char *json = read_file(dir, "config.json", &n);
    write_file(bare.path, "config.json", json);
    free(json);
    assert_false(st_dir_lists(bare.path));
    assert_true(st_dir_lists(dir));
    must(config_read(&c, dir, &err), &err);
    must(config_read(&alone, bare.path, &err), &err);
    must(st_open_heads(&st, dir, &err), &err);
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        const size_t unit = weights_unit(t->name, c.layers);
        if (is_mapped(t) && unit < c.layers + 2 && strncmp(t->name, "mtp.", 4) != 0)
            want[unit] += t->bytes;
    }
    st_close(st);
    const struct stage_spec spec = tiny_whole(bare.path, &alone, 1);
    must(stage_measure_units(got, &spec, &err), &err);
    for (size_t u = 0; u < c.layers + 2; u++)
        if (got[u] != want[u])
            fail_msg("%s: unit %zu has %zu bytes by its config, and %zu in its files", name, u, got[u],
                     want[u]);
    temp_dir_free(&bare);
}

static void configs_say_what_files_hold(void **state)
{
    DIR *d = opendir(CASES);
    size_t n = 0;
    (void)state;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            check_case(e->d_name);
            n++;
        }
    closedir(d);
    assert_in_range(n, 20, 100);
}

/* --- released models -------------------------------------------------------------------------- */

struct sum {
    double all, matrices;
};

static int add_one(void *arg, const struct tensor_def *def)
{
    struct sum *s = arg;
    const double n = (double)def->rows * (double)(def->cols ? def->cols : 1);
    s->all += n;
    s->matrices += def->cols ? n : 0;
    return 0;
}

/* Four stages share the model out: none of it twice, and nothing of it lost. */
static void check_split(const char *name, const char *dir, const struct config *c, double bytes)
{
    enum { STAGES = 4 };
    double sum = 0;
    for (size_t s = 0; s < STAGES; s++) {
        struct stage_spec spec = tiny_whole(dir, c, 1);
        struct stage_bytes is, trained;
        struct err err;
        spec.first_layer = s * c->layers / STAGES;
        spec.end_layer = (s + 1) * c->layers / STAGES;
        spec.embed = s == 0;
        spec.head = s + 1 == STAGES;
        spec.kv = true;
        spec.positions = 4096;
        must(stage_measure(&is, &spec, &err), &err);
        sum += (double)is.mapped;
        spec.kv = false;
        spec.training = true;
        spec.tokens = 512;
        spec.tune = (struct tune){.kind = TUNE_LORA, .rank = 8, .alpha = 16, .end_layer = c->layers};
        must(tune_targets(&spec.tune, family_find(c->family), c, "all-linear", &err), &err);
        must(stage_measure(&trained, &spec, &err), &err);
        assert_true(trained.params > 0 && trained.slots > 0 && trained.total > is.mapped);
    }
    if (c->tied) /* the head's stage has the embedding once more */
        sum -= (double)c->vocab * (double)c->dim * 2;
    if (sum != bytes)
        fail_msg("%s: four stages hold %.0f bytes, and one %.0f", name, sum, bytes);
}

/* published_bytes: of the files, where they are quantized matrix by matrix; else 0. */
static void check_released(const char *name, const char *dir, double published, double published_bytes)
{
    struct config c;
    struct err err;
    struct sum sum = {0};
    size_t units[UNITS] = {0};
    double bytes = 0;
    must(config_read(&c, dir, &err), &err);
    const struct family *f = family_find(c.family);
    for (size_t u = 0; u < c.layers + 2; u++)
        family_tensors(f, &c, u, add_one, &sum);
    if (!(sum.all > 0.99 * published && sum.all < 1.01 * published))
        fail_msg("%s has %.4g parameters by its config, and %.4g are published", name, sum.all, published);
    const struct stage_spec spec = tiny_whole(dir, &c, 1);
    must(stage_measure_units(units, &spec, &err), &err);
    for (size_t u = 0; u < c.layers + 2; u++)
        bytes += (double)units[u];
    assert_true(bytes <= 2 * sum.matrices);
    if (!c.fp8 && !c.experts_fp4 && !c.compressed)
        assert_true(bytes == 2 * sum.matrices);
    if (published_bytes && !(bytes > 0.99 * published_bytes && bytes < 1.01 * published_bytes))
        fail_msg("%s has %.4g bytes by its config, and %.4g are published", name, bytes, published_bytes);
    check_split(name, dir, &c, bytes);
}

static bool is_listed(const void *all, const char *family)
{
    const json_t *one;
    bool is_there = false;
    size_t i;
    json_array_foreach ((const json_t *)all, i, one) {
        const json_t *type = json_object_get(json_object_get(one, "config"), "model_type");
        is_there |= !strcmp(json_string_value(type), family);
    }
    return is_there;
}

static void released_models_have_their_size(void **state)
{
    json_error_t where;
    json_t *all = json_load_file(RELEASED, 0, &where), *one;
    size_t i;
    (void)state;
    assert_non_null(all);
    json_array_foreach (all, i, one) {
        struct temp_dir dir = temp_dir_new();
        char *json = json_dumps(json_object_get(one, "config"), 0);
        write_file(dir.path, "config.json", json);
        free(json);
        check_released(json_string_value(json_object_get(one, "name")), dir.path,
                       json_number_value(json_object_get(one, "parameters")),
                       json_number_value(json_object_get(one, "bytes")));
        temp_dir_free(&dir);
    }
    assert_in_range(json_array_size(all), 20, 100);
    known_families_all(is_listed, all, "has no released model in the list");
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_say_what_files_hold),
        cmocka_unit_test(released_models_have_their_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
