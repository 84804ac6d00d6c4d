/* SPDX-License-Identifier: MIT
 *
 * The list of a model's blocks: there and back, and every kind of damage refused with its
 * sentence. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/fetch/manifest.h"

#define SHA1 "0123456789abcdef0123456789abcdef01234567"
#define FILE_OF(name, size) "{\"hash\":\"" SHA1 "\",\"kind\":\"git\",\"name\":\"" name "\",\"size\":" size "}"
#define CONFIG FILE_OF("config.json", "5")

/* As bytes, with so many hashes. */
static int decode(struct manifest **m, const char *json, size_t hashes, struct err *err)
{
    uint8_t bytes[4096] = {0};
    const size_t n = strlen(json);
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(n >> 8 * i);
    memcpy(bytes + 4, json, n);
    return manifest_decode(m, bytes, 4 + n + hashes * DIGEST, err);
}

static void assert_refused(const char *json, size_t hashes, const char *sentence)
{
    struct manifest *m;
    struct err err = {""};
    assert_int_equal(decode(&m, json, hashes, &err), -EBADMSG);
    if (!strstr(err.text, sentence))
        fail_msg("\"%s\" is not in \"%s\"", sentence, err.text);
}

static void there_and_back_it_is_the_same(void **state)
{
    const struct hub_file files[] = {{"model.safetensors", true, BLOCK_BYTES + 1, HUB_HASH_GIT, SHA1},
                                     {"config.json", true, BLOCK_BYTES, HUB_HASH_GIT, SHA1}};
    struct manifest *m, *back;
    struct err err;
    size_t n, again_n;
    (void)state;
    assert_int_equal(manifest_new(&m, files, 2, &err), 0);
    assert_int_equal(m->blocks, 4);
    memset(m->hashes, 7, 4 * DIGEST);
    uint8_t *bytes = manifest_encode(m, &n);
    assert_int_equal(manifest_decode(&back, bytes, n, &err), 0);
    uint8_t *again = manifest_encode(back, &again_n);
    assert_int_equal(n, again_n);
    assert_memory_equal(bytes, again, n);
    assert_string_equal(back->files[0].name, "config.json");
    assert_int_equal(manifest_file_of(back, 0), 0);
    assert_int_equal(manifest_file_of(back, 2), 1);
    assert_int_equal(manifest_size(back, 0), BLOCK_BYTES);
    assert_int_equal(manifest_size(back, 2), 1);
    assert_int_equal(manifest_offset(back, 2), BLOCK_BYTES);
    assert_int_equal(manifest_head_of(back, 0), UINT32_MAX);
    assert_int_equal(manifest_head_of(back, 1), 3);
    assert_true(manifest_is_head(back, 3) && !manifest_is_head(back, 2));
    assert_int_equal(manifest_file_of(back, 3), 1);
    assert_int_equal(manifest_offset(back, 3), 0);
    manifest_free(back);
    assert_int_equal(manifest_decode(&back, bytes, n - 1, &err), -EBADMSG);
    free(bytes);
    free(again);
    manifest_free(m);
}

/* A length that the file cannot have is no reason to ask for more. */
static void a_head_is_as_long_as_it_says(void **state)
{
    const struct hub_file files[] = {{"a.safetensors", true, BLOCK_BYTES + 1000, HUB_HASH_GIT, SHA1},
                                     {"b.safetensors", true, BLOCK_BYTES, HUB_HASH_GIT, SHA1},
                                     {"config.json", true, 1, HUB_HASH_GIT, SHA1}};
    const struct {
        uint8_t says[HEAD_LENGTH];
        uint32_t size;
    } cases[] = {{{100}, 108},
                 {{0xe0, 0x03, 0x40}, BLOCK_BYTES + 1000},
                 {{0xe1, 0x03, 0x40}, HEAD_LENGTH},
                 {{0}, HEAD_LENGTH},
                 {{0, 0, 0, 0, 0, 0, 0, 255}, HEAD_LENGTH}};
    struct manifest *m;
    struct err err;
    (void)state;
    assert_int_equal(manifest_new(&m, files, 3, &err), 0);
    const uint32_t head = manifest_head_of(m, 0);
    assert_int_equal(manifest_head_of(m, 1), UINT32_MAX); /* a small file, which comes whole */
    assert_int_equal(manifest_size(m, head), HEAD_LENGTH);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manifest_set_head(m, head, cases[i].says);
        assert_int_equal(manifest_size(m, head), cases[i].size);
    }
    manifest_free(m);
}

static void damage_is_refused_with_its_sentence(void **state)
{
    struct manifest *m;
    struct err err;
    (void)state;
    assert_int_equal(decode(&m, "{\"files\":[" CONFIG "]}", 1, &err), 0);
    manifest_free(m);
    assert_refused("{\"files\":[" CONFIG "]}", 2, "bytes of hashes");
    assert_refused("{\"files\":[" CONFIG "]}", 0, "bytes of hashes");
    assert_refused("{\"files\":[" CONFIG "] }", 1, "canonical");
    assert_refused("{\"files\":[" FILE_OF("vocab.json", "5") "," CONFIG "]}", 2, "canonical");
    assert_refused("nonsense", 1, "not JSON");
    assert_refused("{\"files\":[]}", 1, "no files");
    assert_refused("{\"files\":[" CONFIG "," CONFIG "]}", 2, "twice");
    assert_refused("{\"files\":[" CONFIG "," FILE_OF("../x.safetensors", "5") "]}", 2, "no model here has");
    assert_refused("{\"files\":[" CONFIG "," FILE_OF("x.sh", "5") "]}", 2, "no model here has");
    assert_refused("{\"files\":[" FILE_OF("vocab.json", "5") "]}", 1, "no config.json");
    assert_refused("{\"files\":[" FILE_OF("config.json", "-5") "]}", 1, "a size");
    assert_refused("{\"files\":[" FILE_OF("config.json", "99999999999999") "]}", 1, "a size");
    assert_refused("{\"files\":[{\"hash\":\"x\",\"kind\":\"git\",\"name\":\"config.json\",\"size\":5}]}", 1,
                   "whose hash is none");
    assert_refused(
        "{\"files\":[" FILE_OF("config.json", "17592186044416") "," FILE_OF("vocab.json", "1") "]}", 2,
        "more bytes than any model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(there_and_back_it_is_the_same),
                                       cmocka_unit_test(a_head_is_as_long_as_it_says),
                                       cmocka_unit_test(damage_is_refused_with_its_sentence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
