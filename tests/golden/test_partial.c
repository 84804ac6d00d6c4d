/* SPDX-License-Identifier: MIT
 *
 * A stage maps the shards that hold its layers and no others, needs no others to be there, and of
 * these reads what it computes with: experts that nobody chose stay on the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/near.h"
#include "tests/lib/golden.h"
#include "tests/lib/tiny.h"

/* --- shards ----------------------------------------------------------------------------------- */

/* Which of the shards of a directory this process maps, as a set of bits by their numbers. */
static uint32_t shards_mapped(const char *dir)
{
    char line[1024];
    uint32_t set = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, dir);
        const char *name = at ? strstr(at, "model-") : NULL;
        if (name)
            set |= 1u << strtoul(name + strlen("model-"), NULL, 10);
    }
    fclose(f);
    return set;
}

/* Which shards the index gives tensors of layers first … end − 1. */
static uint32_t shards_wanted(const char *dir, size_t first, size_t end)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    json_t *root = json_load_file(path, 0, NULL), *file;
    uint32_t set = 0;
    const char *name;
    json_object_foreach (json_object_get(root, "weight_map"), name, file) {
        size_t layer;
        if (sscanf(name, "model.layers.%zu.", &layer) == 1 && layer >= first && layer < end)
            set |= 1u << strtoul(json_string_value(file) + strlen("model-"), NULL, 10);
    }
    json_decref(root);
    return set;
}

static void link_to(const struct temp_dir *dir, const char *from, const char *name)
{
    char target[1200], path[1200];
    snprintf(target, sizeof target, "%s/%s", from, name);
    snprintf(path, sizeof path, "%s/%s", dir->path, name);
    char *whole = realpath(target, NULL);
    assert_non_null(whole);
    assert_int_equal(symlink(whole, path), 0);
    free(whole);
}

static void a_stage_needs_its_own_shards(void **state)
{
    (void)state;
    static const size_t cuts[][2] = {{0, 1}, {1, 3}, {3, 5}, {4, 5}};
    struct golden g;
    struct err err;
    struct num *num;
    golden_open(&g, "deepseek_v3");
    must(num_new(&num, 1, &err), &err);
    char all[33], some[33];
    must(config_fingerprint(all, g.model_dir.text, &err), &err);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct temp_dir dir = temp_dir_new();
        const uint32_t want = shards_wanted(g.model_dir.text, cuts[i][0], cuts[i][1]);
        char *whole = realpath(g.model_dir.text, NULL);
        assert_non_null(whole);
        link_to(&dir, whole, "config.json");
        link_to(&dir, whole, "model.safetensors.index.json");
        for (unsigned s = 1; s <= 15; s++) {
            char name[64];
            snprintf(name, sizeof name, "model-%05u-of-00015.safetensors", s);
            if (want >> s & 1)
                link_to(&dir, whole, name);
        }
        struct stage *stage;
        struct stage_spec spec = {.model_dir = dir.path,
                                  .config = g.config,
                                  .first_layer = cuts[i][0],
                                  .end_layer = cuts[i][1],
                                  .slots = 1,
                                  .tokens = 4,
                                  .seqs = 1,
                                  .positions = 4};
        must(stage_open(&stage, num, &spec, &err), &err);
        assert_int_equal(shards_mapped(whole), want);
        stage_close(stage);
        assert_int_equal(shards_mapped(whole), 0);
        must(config_fingerprint(some, dir.path, &err), &err);
        assert_string_equal(some, all);
        spec.first_layer = (cuts[i][0] + 3) % 5; /* a layer whose shard is not there */
        spec.end_layer = spec.first_layer + 1;
        must_refuse(stage_open(&stage, num, &spec, &err), -2, &err, "is missing, though");
        free(whole);
        temp_dir_free(&dir);
    }
    num_free(num);
    golden_close(&g);
}

/* --- experts ---------------------------------------------------------------------------------- */

/* Bytes of the files of a directory that are in this process's page tables. */
static size_t resident(const char *dir)
{
    char line[1024];
    size_t kib, sum = 0;
    unsigned long end;
    bool ours = false;
    FILE *f = fopen("/proc/self/smaps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*x-%lx", &end) == 1) /* a mapping begins; one without a file is not ours either */
            ours = strstr(line, dir) != NULL;
        if (ours && sscanf(line, "Rss: %zu kB", &kib) == 1)
            sum += kib << 10;
    }
    fclose(f);
    return sum;
}

static void unused_experts_stay_on_the_disk(void **state)
{
    (void)state;
    enum { DIM = 256, FFN = 512, EXPERTS = 16, CHOSEN = 2, EXPERT = 3 * DIM * FFN * sizeof(float) };
    struct err err;
    struct config c;
    struct temp_dir dir = temp_dir_new();
    write_file(
        dir.path, "config.json",
        "{\"model_type\":\"qwen3_moe\",\"hidden_size\":256,\"intermediate_size\":16,\"head_dim\":8,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"vocab_size\":32,"
        "\"num_experts\":16,\"num_experts_per_tok\":2,\"moe_intermediate_size\":512}");
    must(config_read(&c, dir.path, &err), &err);
    model_write(dir.path, &c);
    const struct chain_spec spec = {.model_dir = dir.path,
                                    .config = c,
                                    .tune = {.end_layer = 1},
                                    .cut = {1, {1}},
                                    .slots = 1,
                                    .tokens = 1,
                                    .seqs = 1,
                                    .positions = 8,
                                    .kv = true};
    struct chain chain;
    chain_open(&chain, &spec);
    const size_t before = resident(dir.path);
    chain_decode(&chain, &(uint32_t){3}, 1, 0);
    const size_t after = resident(dir.path);
    chain_close(&chain);
    temp_dir_free(&dir);
    assert_true(before < EXPERT); /* opening reads norms, and the kernel brings their neighbours */
    assert_true(after >= CHOSEN * EXPERT);
    assert_true(after < (CHOSEN + 2) * EXPERT);
}

/* Of a file that has all layers only the stage's own are read. */
static void other_layers_stay_on_the_disk(void **state)
{
    (void)state;
    enum { DIM = 512, FFN = 1024, LAYER = 3 * DIM * FFN * sizeof(float) };
    struct err err;
    struct config c;
    struct temp_dir dir = temp_dir_new();
    write_file(
        dir.path, "config.json",
        "{\"model_type\":\"qwen3\",\"hidden_size\":512,\"intermediate_size\":1024,\"head_dim\":8,"
        "\"num_hidden_layers\":6,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"vocab_size\":32}");
    must(config_read(&c, dir.path, &err), &err);
    model_write(dir.path, &c);
    struct num *num;
    struct stage *stage;
    struct stage_spec spec = {.model_dir = dir.path,
                              .config = c,
                              .first_layer = 2,
                              .end_layer = 4,
                              .slots = 1,
                              .tokens = 1,
                              .seqs = 1,
                              .positions = 4,
                              .kv = true};
    static const float x[DIM] = {1};
    static float y[DIM];
    must(num_new(&num, 1, &err), &err);
    must(stage_open(&stage, num, &spec, &err), &err);
    must(stage_decode(stage, NULL, x, y, 1, 0, &err), &err);
    const size_t after = resident(dir.path);
    stage_close(stage);
    num_free(num);
    temp_dir_free(&dir);
    assert_true(after >= 2 * LAYER);
    assert_true(after < 3 * LAYER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_needs_its_own_shards),
        cmocka_unit_test(other_layers_stay_on_the_disk),
        cmocka_unit_test(unused_experts_stay_on_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
