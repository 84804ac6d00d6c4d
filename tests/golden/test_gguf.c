/* SPDX-License-Identifier: MIT
 *
 * GGUF files that llama.cpp wrote, where $RINGD_SHARED (or ../shared/data) has them: every
 * tensor of every type bit for bit, logits however the rows are computed, tokens, and what is to
 * be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sodium.h>
#include <unistd.h>

#include "file/gguf.h"
#include "tests/lib/chain.h"
#include "tests/lib/golden.h"
#include "tests/lib/near.h"
#include "text/chat.h"
#include "text/tokenizer.h"

enum { TOKENS = 24, TYPE_NAME = 16 };

struct path {
    char text[1024];
};

static struct path in_root(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static struct path in_root(const char *fmt, ...)
{
    const char *shared = getenv("RINGD_SHARED");
    struct path p;
    const int n = snprintf(p.text, sizeof p.text, "%s/gguf/", shared ? shared : "../shared/data");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p.text + n, sizeof p.text - (size_t)n, fmt, ap);
    va_end(ap);
    return p;
}

static json_t *load(struct path path)
{
    json_error_t why;
    json_t *json = json_load_file(path.text, JSON_ALLOW_NUL, &why);
    if (!json)
        fail_msg("%s: %s", path.text, why.text);
    return json;
}

/* Calls for each model of the folder, by its name without ".gguf"; returns how many. */
static size_t each_file(void (*check)(const char *name))
{
    DIR *dir = opendir(in_root("expected").text);
    size_t n = 0;
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        const char *end = strstr(e->d_name, ".json");
        char name[256];
        if (!end || !strncmp(e->d_name, "tokenizer-", 10))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(end - e->d_name), e->d_name);
        check(name);
        n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* --- values ----------------------------------------------------------------------------------- */

static float *values_of(const struct path *path, const struct gguf_tensor *t, size_t *ret_n)
{
    const int fd = open(path->text, O_RDONLY);
    char *bytes = malloc(t->bytes);
    size_t n = 1;
    for (size_t d = 0; d < t->ndim; d++)
        n *= t->extent[d];
    assert_int_equal(pread(fd, bytes, t->bytes, (off_t)t->at), (ssize_t)t->bytes);
    close(fd);
    float *x = malloc(n * sizeof *x);
    const struct st_tensor as = {.dtype = t->dtype, .block = t->block, .data = bytes};
    for (size_t row = 0; row < n / t->extent[0]; row++)
        st_row(&as, row, t->extent[0], x + row * t->extent[0]);
    free(bytes);
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] + 0.0F; /* −0 becomes 0 */
    *ret_n = n;
    return x;
}

static void check_values(const char *name)
{
    const struct path path = in_root("%s.gguf", name);
    json_t *expected = load(in_root("expected/%s.json", name)), *item;
    struct gguf *g;
    struct err err;
    size_t i, n;
    must(gguf_open(&g, path.text, &err), &err);
    json_array_foreach (json_object_get(expected, "tensors"), i, item) {
        const char *tensor = json_string_value(json_object_get(item, "name"));
        const struct gguf_tensor *t = gguf_find(g, tensor);
        unsigned char hash[crypto_hash_sha256_BYTES];
        char hex[2 * sizeof hash + 1];
        assert_non_null(t);
        assert_int_equal(t->at, json_integer_value(json_object_get(item, "offset")));
        assert_int_equal(t->bytes, json_integer_value(json_object_get(item, "nbytes")));
        float *x = values_of(&path, t, &n);
        crypto_hash_sha256(hash, (const unsigned char *)x, n * sizeof *x);
        free(x);
        sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
        if (strcmp(hex, json_string_value(json_object_get(item, "sha256_f32"))) != 0)
            fail_msg("%s: %s, stored as %s, has other values", name, tensor,
                     t->block ? block_name(t->block) : dtype_name(t->dtype));
    }
    gguf_close(g);
    json_decref(expected);
}

/* Random bits in every type: each scale and nibble counts. */
static void check_blocks(void)
{
    const struct path path = in_root("blocks.gguf");
    struct st *want;
    struct gguf *g;
    struct err err;
    must(st_open_file(&want, in_root("expected/blocks.safetensors").text, &err), &err);
    must(gguf_open(&g, path.text, &err), &err);
    for (size_t i = 0; i < gguf_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor(g, i);
        char own[128];
        size_t n;
        snprintf(own, sizeof own, "deq.%s", t->name);
        const struct st_tensor *w = st_find(want, own) ? st_find(want, own) : st_find(want, t->name);
        assert_non_null(w);
        float *x = values_of(&path, t, &n);
        assert_int_equal(n, w->elements);
        for (size_t k = 0; k < n; k++) {
            float is;
            memcpy(&is, (const char *)w->data + k * sizeof is, sizeof is);
            is += 0.0F;
            if (memcmp(&is, &x[k], sizeof is) != 0)
                fail_msg("%s: value %zu is %a, not %a", t->name, k, (double)x[k], (double)is);
        }
        free(x);
    }
    gguf_close(g);
    st_close(want);
}

static void values_match(void **state)
{
    (void)state;
    const size_t n = each_file(check_values);
    if (!n)
        skip();
    check_blocks();
    print_message("values of %zu files\n", n);
}

/* --- logits ----------------------------------------------------------------------------------- */

static struct chain_spec spec_for(const struct path *path, const struct config *c, size_t stages)
{
    return (struct chain_spec){.model_dir = path->text,
                               .config = *c,
                               .tune = {.end_layer = c->layers},
                               .cut = {stages, {stages > 1 ? c->layers / 2 : SIZE_MAX >> 1, SIZE_MAX >> 1}},
                               .slots = 1,
                               .tokens = TOKENS,
                               .seqs = 1,
                               .positions = TOKENS};
}

/* Token by token, as a text is generated. */
static void check_decoded(const struct path *path, const struct config *c, const uint32_t *ids,
                          const float *want)
{
    struct chain_spec spec = spec_for(path, c, 2);
    struct chain chain;
    spec.kv = true;
    chain_open(&chain, &spec);
    for (size_t t = 0; t < TOKENS; t++)
        assert_near(chain_decode(&chain, ids + t, 1, t), want + t * c->vocab, c->vocab, 1e-4, path->text);
    chain_close(&chain);
}

/* All of them at once, as in training. */
static void check_scored(const struct path *path, const struct config *c, const uint32_t *ids,
                         const float *want)
{
    struct chain_spec spec = spec_for(path, c, 1);
    struct chain chain;
    uint32_t start[2] = {0, TOKENS};
    int32_t labels[TOKENS] = {0};
    float logprob[TOKENS];
    for (size_t t = 0; t + 1 < TOKENS; t++)
        labels[t] = (int32_t)ids[t + 1];
    chain_open(&chain, &spec);
    chain_forward(&chain, 0, &(struct microbatch){.seqs = {1, start}, .ids = ids, .labels = labels}, 0,
                  logprob);
    for (size_t t = 0; t < TOKENS; t++) {
        const float *row = want + t * c->vocab;
        double sum = 0;
        for (size_t i = 0; i < c->vocab; i++)
            sum += exp((double)row[i]);
        const float is = row[labels[t]] - (float)log(sum);
        assert_near(&logprob[t], &is, 1, 1e-4, path->text);
    }
    chain_close(&chain);
}

static void check_model(const struct path *path, const char *expected)
{
    struct config c;
    struct err err;
    struct st *st;
    uint32_t ids[TOKENS];
    json_t *json = load(in_root("expected/%s.json", expected));
    must(st_open_file(&st, in_root("expected/%s.safetensors", expected).text, &err), &err);
    must(config_read(&c, path->text, &err), &err);
    assert_int_equal(golden_ids(json_object_get(json, "ids"), ids, TOKENS), TOKENS);
    const struct st_tensor *t = st_find(st, "logits");
    assert_int_equal(t->elements, TOKENS * c.vocab);
    float *want = malloc(t->bytes);
    memcpy(want, t->data, t->bytes);
    check_decoded(path, &c, ids, want);
    check_scored(path, &c, ids, want);
    free(want);
    st_close(st);
    json_decref(json);
}

static void check_logits(const char *name)
{
    const struct path path = in_root("%s.gguf", name);
    check_model(&path, name);
}

static void logits_match(void **state)
{
    (void)state;
    if (!each_file(check_logits))
        skip();
}

/* --- tokens ----------------------------------------------------------------------------------- */

static void compare_ids(const struct tokenizer *tok, const json_t *row, bool special, const char *file)
{
    const json_t *text = json_object_get(row, "text"),
                 *want = json_object_get(row, special ? "ids_special" : "ids");
    uint32_t *ids;
    size_t n;
    struct err err;
    must(tokenizer_encode(tok, json_string_value(text), json_string_length(text), special, &ids, &n, &err),
         &err);
    bool alike = n == json_array_size(want);
    for (size_t i = 0; alike && i < n; i++)
        alike = ids[i] == (uint32_t)json_integer_value(json_array_get(want, i));
    if (!alike) {
        char *is = json_dumps(want, 0);
        for (size_t i = 0; i < n; i++)
            print_message(" %u", ids[i]);
        fail_msg("%s: %s has other ids than %s", file, json_string_value(text), is);
    }
    free(ids);
}

/* Where specials are parsed or there are none, the rows are comparable: here they always are. */
static void check_tokenizer(const char *file)
{
    json_t *json = load(in_root("expected/%s", file)), *row;
    const char *model = json_string_value(json_object_get(json, "file"));
    struct tokenizer *tok;
    struct err err;
    size_t i;
    must(tokenizer_open(&tok, in_root("%s", model).text, &err), &err);
    json_t *rows =
        json_object_get(json, "texts") ? json_object_get(json, "texts") : json_object_get(json, "rows");
    void *at = json_object_iter(json);
    for (; !json_is_array(rows) && at; at = json_object_iter_next(json, at))
        if (json_is_array(json_object_iter_value(at)))
            rows = json_object_iter_value(at);
    assert_true(json_array_size(rows) > 0);
    json_array_foreach (rows, i, row)
        compare_ids(tok, row, true, file);
    tokenizer_close(tok);
    json_decref(json);
}

static void tokens_match(void **state)
{
    (void)state;
    static const char *const files[] = {"tokenizer-tiny.json", "tokenizer-llama-k.json",
                                        "tokenizer-deepseek2-kvb.json", "tokenizer-qwen3-k.json",
                                        "tokenizer-stories260K.json"};
    if (access(in_root("README.md").text, R_OK))
        skip();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_tokenizer(files[i]);
}

/* --- odd and bad files ------------------------------------------------------------------------ */

/* As a job opens it: the sentence of the first that refuses it. */
static int open_all(const struct path *path, struct err *err)
{
    struct config c;
    struct tokenizer *tok = NULL;
    struct num *num = NULL;
    struct stage *s = NULL;
    int r = config_read(&c, path->text, err);
    if (!r)
        r = tokenizer_open(&tok, path->text, err);
    if (!r) {
        must(num_new(&num, 1, err), err);
        const struct stage_spec spec = {.model_dir = path->text,
                                        .config = c,
                                        .end_layer = c.layers,
                                        .embed = true,
                                        .head = true,
                                        .tune = {.end_layer = c.layers},
                                        .slots = 1,
                                        .tokens = 1,
                                        .seqs = 1,
                                        .positions = 8,
                                        .kv = true};
        r = stage_open(&s, num, &spec, err);
    }
    stage_close(s);
    num_free(num);
    tokenizer_close(tok);
    return r;
}

static void bad_ones_are_refused(void **state)
{
    (void)state;
    if (access(in_root("malformed/cases.json").text, R_OK))
        skip();
    json_t *cases = load(in_root("malformed/cases.json")), *item;
    size_t i;
    json_array_foreach (cases, i, item) {
        const struct path path = in_root("malformed/%s", json_string_value(json_object_get(item, "file")));
        struct err err = {.text = ""};
        const int r = open_all(&path, &err);
        if (!r)
            fail_msg("%s is taken: %s", path.text, json_string_value(json_object_get(item, "why")));
        if (!strstr(err.text, path.text) || strlen(err.text) < strlen(path.text) + 10)
            fail_msg("%s: the sentence does not say enough: %s", path.text, err.text);
        if (getenv("SHOW"))
            print_message("%s\n", err.text + strlen(path.text) - 20);
    }
    print_message("%zu files refused\n", json_array_size(cases));
    json_decref(cases);
}

static void odd_ones_are_taken(void **state)
{
    (void)state;
    if (access(in_root("accept/cases.json").text, R_OK))
        skip();
    json_t *cases = load(in_root("accept/cases.json")), *item;
    size_t i;
    json_array_foreach (cases, i, item) {
        const struct path path = in_root("accept/%s", json_string_value(json_object_get(item, "file")));
        struct err err;
        if (strstr(path.text, "split-00002")) {
            must_refuse(open_all(&path, &err), -EINVAL, &err, "split-00001-of-00002.gguf");
            continue;
        }
        must(open_all(&path, &err), &err);
        check_model(&path, "tiny-q4_0");
    }
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_match),       cmocka_unit_test(logits_match),
        cmocka_unit_test(tokens_match),       cmocka_unit_test(bad_ones_are_refused),
        cmocka_unit_test(odd_ones_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
