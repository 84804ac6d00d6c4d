/* SPDX-License-Identifier: MIT
 *
 * Tokenizers against what other implementations say of them: every row of expected.jsonl of every
 * tokenizer in tests/data/tokenizers, and of the real ones in the shared data where that is there,
 * in all its fields. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "text/tiktoken.h"
#include "text/tokenizer.h"

#define BUILT "tests/data/tokenizers"

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool same_ids(const json_t *row, const char *field, const uint32_t *ids, size_t n)
{
    const json_t *want = json_object_get(row, field);
    if (json_array_size(want) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(want, i)) != (json_int_t)ids[i])
            return false;
    return true;
}

static bool same_text(const json_t *want, const char *text, size_t n)
{
    return json_string_length(want) == n && memcmp(json_string_value(want), text, n) == 0;
}

static bool check_encode(const struct tokenizer *tok, const json_t *row, const char *field, bool special)
{
    const json_t *text = json_object_get(row, "text");
    uint32_t *ids;
    size_t n;
    struct err err;
    if (tokenizer_encode(tok, json_string_value(text), json_string_length(text), special, &ids, &n, &err)) {
        print_message("%s\n", err.text);
        return false;
    }
    bool same = same_ids(row, field, ids, n);
    free(ids);
    return same;
}

/* The ids of a field, for decoding. */
static uint32_t *ids_of(const json_t *row, const char *field, size_t *ret_n)
{
    const json_t *list = json_object_get(row, field);
    *ret_n = json_array_size(list);
    uint32_t *ids = calloc(*ret_n + 1, sizeof *ids);
    for (size_t i = 0; i < *ret_n; i++)
        ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static bool check_decode(const struct tokenizer *tok, const json_t *row, const char *ids_field,
                         const char *text_field, bool skip_special)
{
    size_t n, len;
    uint32_t *ids = ids_of(row, ids_field, &n);
    char *text;
    bool same = tokenizer_decode(tok, ids, n, skip_special, &text, &len, NULL) == 0;
    if (same) {
        same = same_text(json_object_get(row, text_field), text, len) && text[len] == '\0';
        free(text);
    }
    free(ids);
    return same;
}

static bool check_stream(const struct tokenizer *tok, const json_t *row)
{
    size_t n;
    uint32_t *ids = ids_of(row, "ids", &n);
    const json_t *chunks = json_object_get(row, "stream");
    struct tokenizer_stream *stream;
    assert_int_equal(tokenizer_stream_new(&stream, tok, false, NULL), 0);
    bool same = json_array_size(chunks) == n;
    for (size_t i = 0; same && i < n; i++) {
        const json_t *want = json_array_get(chunks, i);
        const char *text;
        size_t len;
        same = tokenizer_stream_push(stream, ids[i], &text, &len) == 0 &&
               (json_is_null(want) ? len == 0 : same_text(want, text, len));
    }
    tokenizer_stream_free(stream);
    free(ids);
    return same;
}

static size_t check_row(const struct tokenizer *tok, const json_t *row, const char *name, size_t number)
{
    const struct {
        const char *what;
        bool same;
    } results[] = {
        {"ids", check_encode(tok, row, "ids", false)},
        {"ids_with_special", check_encode(tok, row, "ids_with_special", true)},
        {"decoded", check_decode(tok, row, "ids", "decoded", false)},
        {"decoded_skip_special", check_decode(tok, row, "ids", "decoded_skip_special", true)},
        {"stream", check_stream(tok, row)},
    };
    size_t wrong = 0;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (!results[i].same) {
            print_message("%s, row %zu: %s differs for '%.60s'\n", name, number, results[i].what,
                          json_string_value(json_object_get(row, "text")));
            wrong++;
        }
    return wrong;
}

static void check_rows(const struct tokenizer *tok, const char *path, const char *name)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *line = NULL;
    size_t cap = 0, rows = 0, wrong = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, file)) > 0) {
        json_t *row = json_loadb(line, (size_t)len, JSON_ALLOW_NUL, NULL);
        assert_non_null(row);
        wrong += check_row(tok, row, name, ++rows);
        json_decref(row);
    }
    free(line);
    fclose(file);
    print_message("%s: %zu rows\n", name, rows);
    assert_true(rows > 100);
    assert_int_equal(wrong, 0);
}

/* Checks the tokenizer in one folder; returns whether there was one. */
static bool check_tokenizer(const char *root, const char *name)
{
    char dir[600], path[700];
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    snprintf(path, sizeof path, "%s/expected.jsonl", dir);
    if (access(path, F_OK) != 0)
        return false;
    struct tokenizer *tok;
    struct err err = {""};
    double started = now_s();
    int r = tokenizer_open(&tok, dir, &err);
    print_message("%s: opened in %.0f ms\n", name, (now_s() - started) * 1e3);
    if (r)
        fail_msg("%s", err.text);
    check_rows(tok, path, name);
    tokenizer_close(tok);
    return true;
}

/* The number of tokenizers in a folder; 0 where the folder is missing. */
static size_t check_folder(const char *root)
{
    DIR *dir = opendir(root);
    size_t checked = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        checked += entry->d_name[0] != '.' && check_tokenizer(root, entry->d_name);
    if (dir)
        closedir(dir);
    return checked;
}

static void test_expected(void **state)
{
    (void)state;
    assert_int_equal(check_folder(BUILT), 9);
}

static void test_bad_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *ranks, *class, *says;
    } cases[] = {
        {"IQ== 0\n", "tokenization_other.Tokenizer", "put a tokenizer.json beside it"},
        {"IQ== 0\nIg==1\n", NULL, "line 2 is not a token in base64"},
        {"IQ== 0\n\nI-== 1\n", NULL, "line 3 is not a token in base64"},
        {"IQ== -1\n", NULL, "line 1 is not a token in base64"},
        {"IQ== 12345678901234567\n", NULL, "line 1 is not a token in base64"},
        {"== 0\n", NULL, "line 1 is not a token in base64"},
        {"IQ== 99999999\n", NULL, "line 1: rank 99999999 is too large"},
        {"IQ== 0\nIQ== 1\n", NULL, "line 2: this token was there before"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *config = json_pack("{s:{s:[s]}}", "auto_map", "AutoTokenizer",
                                   cases[i].class ? cases[i].class : "tokenization_kimi.TikTokenTokenizer"),
               *json = NULL;
        struct err err = {""};
        assert_true(tiktoken_parse(&json, cases[i].ranks, strlen(cases[i].ranks), config, &err) < 0);
        if (!strstr(err.text, cases[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].says);
        json_decref(config);
    }
}

#define VOCAB(tokens) "{\"model\":{\"type\":\"BPE\",\"ranks\":\"ids\",\"vocab\":{" tokens "}}}"

/* Each way to split them would be looked at: one long token may be, but not two that are longer. */
static void test_long_tokens(void **state)
{
    (void)state;
    enum { LONG = 17000 };
    static char text[3 * LONG];
    struct tokenizer *tok;
    struct err err = {""};
    snprintf(text, sizeof text, VOCAB("\"%0*d\":5"), LONG / 5, 1);
    assert_int_equal(tokenizer_parse(&tok, text, strlen(text), &err), 0);
    tokenizer_close(tok);
    snprintf(text, sizeof text, VOCAB("\"%0*d\":5,\"%0*d\":6"), LONG, 1, LONG, 2);
    assert_int_equal(tokenizer_parse(&tok, text, strlen(text), &err), -EINVAL);
    assert_non_null(strstr(err.text, "its first 2 tokens are too long"));
}

/* Real vocabularies are other people's and lie outside the repository. */
static void test_real_ones(void **state)
{
    (void)state;
    const char *shared = getenv("RINGD_SHARED");
    char root[512];
    snprintf(root, sizeof root, "%s/tokenizers", shared ? shared : "../shared/data");
    print_message("%zu tokenizers in %s\n", check_folder(root), root);
}

/* A megabyte that the pre-tokenizer cannot cut, in the two kinds of tokenizer. */
static void test_megabyte_without_a_space(void **state)
{
    const char *name = *state;
    char dir[512];
    snprintf(dir, sizeof dir, "%s/%s", BUILT, name);
    struct tokenizer *tok;
    assert_int_equal(tokenizer_open(&tok, dir, NULL), 0);
    const size_t n = 1 << 20;
    char *text = malloc(n);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < n; i++)
            text[i] = kind == 0 ? 'a' : kind == 1 ? ' ' : (char)('a' + (i * i + i / 7) % 26);
        uint32_t *ids;
        size_t count, len;
        char *back;
        double started = now_s();
        assert_int_equal(tokenizer_encode(tok, text, n, false, &ids, &count, NULL),
                         0); /* quadratic time would be hours */
        print_message("%s: a megabyte in %.2f s, %zu ids\n", name, now_s() - started, count);
        assert_int_equal(tokenizer_decode(tok, ids, count, false, &back, &len, NULL), 0);
        assert_int_equal(len, n);
        assert_memory_equal(back, text, n);
        free(back);
        free(ids);
    }
    free(text);
    tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_bad_ranks),
        cmocka_unit_test(test_long_tokens),
        cmocka_unit_test(test_real_ones),
        cmocka_unit_test_prestate(test_megabyte_without_a_space, "qwen2"),
        cmocka_unit_test_prestate(test_megabyte_without_a_space, "llama2"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
