/* SPDX-License-Identifier: MIT
 *
 * GGUF files made here: what is refused and in which words, the config, the tokenizers and the chat
 * template that their metadata make. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>

#include "file/config.h"
#include "file/gguf.h"
#include "file/gguf_path.h"
#include "file/model_file.h"
#include "file/st.h"
#include "tests/lib/gguf.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct place {
    struct temp_dir dir;
    char path[128];
};

static struct place place_new(void)
{
    struct place p = {.dir = temp_dir_new()};
    snprintf(p.path, sizeof p.path, "%s/model.gguf", p.dir.path);
    return p;
}

static void place_free(struct place *p)
{
    temp_dir_free(&p->dir);
}

/* --- the container ---------------------------------------------------------------------------- */

static void put_two(struct gguf_out *o)
{
    static const float x[64] = {1};
    static const size_t extent[2] = {32, 2};
    gguf_put_text(o, "general.architecture", "llama");
    gguf_put_whole(o, "general.file_type", 0);
    gguf_put_tensor(o, "a", 0, 2, extent, x, sizeof x);
    gguf_put_tensor(o, "b", 0, 1, extent, x, 128);
}

/* A file that ends anywhere is refused, and says so; what is behind the last tensor does not
 * count. */
static void ends_are_checked(void **state)
{
    (void)state;
    struct place p = place_new();
    struct gguf_out o;
    struct gguf *g;
    struct err err;
    size_t n;
    gguf_begin(&o);
    put_two(&o);
    gguf_end(&o, p.path);
    char *bytes = read_file(p.dir.path, "model.gguf", &n);
    for (size_t end = 0; end < n; end++) {
        err.text[0] = 0;
        g = NULL;
        assert_true(gguf_parse(&g, bytes, end, end, &err) < 0);
        assert_null(g);
        assert_true(strlen(err.text) > 10);
    }
    must(gguf_parse(&g, bytes, n, n, &err), &err);
    assert_int_equal(gguf_tensors(g), 2);
    assert_int_equal(gguf_find(g, "b")->bytes, 128);
    assert_int_equal(gguf_find(g, "b")->at % 32, 0);
    gguf_close(g);
    must(gguf_parse(&g, bytes, n, n + 77, &err), &err);
    gguf_close(g);
    assert_int_equal(gguf_parse(&g, bytes, 40, n, &err), -ENODATA); /* there is more of the file */
    free(bytes);
    place_free(&p);
}

static const struct bad {
    const char *part;
    unsigned type;
    size_t cols;
    const char *first, *second;
} bads[] = {
    {"no multiple of Q8_0's blocks", 8, 48, "a", "b"},
    {"is stored as Q4_2, which was given up", 4, 32, "a", "b"},
    {"is stored as a type of a fork (type 133)", 133, 32, "a", "b"},
    {"tensor a is there twice", 0, 32, "a", "a"},
};

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    struct place p = place_new();
    static const uint8_t zeros[4096];
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        const size_t extent[2] = {bads[i].cols, 2};
        struct gguf_out o;
        struct gguf *g;
        struct err err;
        gguf_begin(&o);
        gguf_put_text(&o, "general.architecture", "llama");
        gguf_put_tensor(&o, bads[i].first, bads[i].type, 2, extent, zeros, 1024);
        gguf_put_tensor(&o, bads[i].second, 0, 1, extent, zeros, 4 * bads[i].cols);
        gguf_end(&o, p.path);
        const int r = gguf_open(&g, p.path, &err);
        must_refuse(r, r, &err, bads[i].part);
        assert_true(r < 0);
        assert_non_null(strstr(err.text, p.path));
    }
    place_free(&p);
}

static void parts_are_named(void **state)
{
    (void)state;
    assert_true(gguf_is_path("/a/b.gguf"));
    assert_false(gguf_is_path("/a/gguf"));
    assert_int_equal(gguf_path_parts("/a/b.gguf"), 1);
    assert_int_equal(gguf_path_parts("/a/b-00001-of-00012.gguf"), 12);
    assert_int_equal(gguf_path_parts("/a/b-00013-of-00012.gguf"), 1);
    assert_int_equal(gguf_path_number("/a/b-00003-of-00012.gguf"), 2);
    char *part = gguf_path_part("/a/b-00001-of-00012.gguf", 11);
    assert_string_equal(part, "/a/b-00012-of-00012.gguf");
    free(part);
}

/* --- the config ------------------------------------------------------------------------------- */

static void put_llama(struct gguf_out *o)
{
    gguf_put_text(o, "general.architecture", "llama");
    gguf_put_whole(o, "llama.block_count", 1);
    gguf_put_whole(o, "llama.context_length", 512);
    gguf_put_whole(o, "llama.embedding_length", 64);
    gguf_put_whole(o, "llama.feed_forward_length", 96);
    gguf_put_whole(o, "llama.attention.head_count", 2);
    gguf_put_whole(o, "llama.vocab_size", 40);
    gguf_put_real(o, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gguf_put_real(o, "llama.rope.freq_base", 500000);
}

/* Factors of a rule of Llama 3's: the rule is found again. */
static void check_rule(double factor, double low, double high, double original)
{
    enum { HALF = 16 };
    struct place p = place_new();
    struct gguf_out o;
    struct config c, want;
    struct err err;
    float divisor[HALF];
    double is[HALF], expected[HALF];
    const size_t extent[1] = {HALF};
    char json[800];
    snprintf(
        json, sizeof json,
        "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":64,\"intermediate_size\":96,"
        "\"num_attention_heads\":2,\"vocab_size\":40,\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":"
        "\"llama3\",\"factor\":%g,\"low_freq_factor\":%g,\"high_freq_factor\":%g,"
        "\"original_max_position_embeddings\":%g}}",
        factor, low, high, original);
    must(config_parse(&want, json, strlen(json), &err), &err);
    config_inv_freq(&want, expected);
    for (size_t i = 0; i < HALF; i++)
        divisor[i] = (float)(pow(500000, -2.0 * (double)i / 32) / expected[i]);
    gguf_begin(&o);
    put_llama(&o);
    gguf_put_tensor(&o, "rope_freqs.weight", 0, 1, extent, divisor, sizeof divisor);
    gguf_end(&o, p.path);
    must(config_read(&c, p.path, &err), &err);
    assert_int_equal(c.rope, ROPE_LLAMA3);
    config_inv_freq(&c, is);
    for (size_t i = 0; i < HALF; i++)
        if (!(fabs(is[i] / expected[i] - 1) <= 2e-5))
            fail_msg("pair %zu turns by %g, not by %g", i, is[i], expected[i]);
    place_free(&p);
}

static void stretched_positions_are_understood(void **state)
{
    (void)state;
    check_rule(8, 1, 4, 8192);
    check_rule(32, 1, 4, 8192);
    check_rule(16, 2, 5, 4096);
}

static void config_is_made_of_metadata(void **state)
{
    (void)state;
    struct place p = place_new();
    struct gguf_out o;
    struct config c;
    struct err err;
    gguf_begin(&o);
    put_llama(&o);
    gguf_put_text(&o, "llama.rope.scaling.type", "linear");
    gguf_put_real(&o, "llama.rope.scaling.factor", 4);
    gguf_end(&o, p.path);
    must(config_read(&c, p.path, &err), &err);
    assert_string_equal(c.family, "llama");
    assert_int_equal(c.heads, 2);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head, 32);
    assert_int_equal(c.rope, ROPE_LINEAR);
    assert_true(c.rope_factor == 4 && c.rope_theta == 500000 && c.tied && c.mixed);
    gguf_begin(&o);
    put_llama(&o);
    gguf_put_whole(&o, "llama.rope.dimension_count", 16);
    gguf_end(&o, p.path);
    must_refuse(config_read(&c, p.path, &err), -ENOTSUP, &err, "rotating a part of a head is not supported");
    place_free(&p);
}

enum { LAYERS = 4 };

/* form: flags, whole numbers, a text, or one number. */
static void put_olmo(struct gguf_out *o, char form, size_t n)
{
    static const char key[] = "olmo2.attention.sliding_window_pattern";
    gguf_put_text(o, "general.architecture", "olmo2");
    gguf_put_whole(o, "olmo2.block_count", LAYERS);
    gguf_put_whole(o, "olmo2.context_length", 512);
    gguf_put_whole(o, "olmo2.embedding_length", 64);
    gguf_put_whole(o, "olmo2.feed_forward_length", 96);
    gguf_put_whole(o, "olmo2.attention.head_count", 2);
    gguf_put_whole(o, "olmo2.attention.sliding_window", 32);
    gguf_put_whole(o, "olmo2.vocab_size", 40);
    if (form == 'f')
        gguf_put_flags(o, key, (uint8_t[]){1, 0, 1, 1, 1}, n);
    else if (form == 'i')
        gguf_put_wholes(o, key, (int32_t[]){1, 0, 1, 1}, n);
    else if (form == 't')
        gguf_put_text(o, key, "1011");
    else
        gguf_put_whole(o, key, (uint32_t)n);
}

static void windows_are_those_of_the_key(void **state)
{
    (void)state;
    static const struct {
        char form;
        size_t n;
        const char *has; /* a window; NULL: refused */
    } keys[] = {{'f', LAYERS, "1011"},   {'n', 4, "1110"},        {'n', 2, "1010"},    {'n', 0, "0000"},
                {'f', LAYERS - 1, NULL}, {'f', LAYERS + 1, NULL}, {'i', LAYERS, NULL}, {'t', 0, NULL}};
    struct place p = place_new();
    struct gguf_out o;
    struct config c;
    struct err err;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        gguf_begin(&o);
        put_olmo(&o, keys[i].form, keys[i].n);
        gguf_end(&o, p.path);
        const int r = config_read(&c, p.path, &err);
        if (!keys[i].has) {
            must_refuse(r, -EBADMSG, &err,
                        "sliding_window_pattern is neither a count nor one flag for each of the 4 layers");
            continue;
        }
        must(r, &err);
        for (size_t l = 0; l < LAYERS; l++)
            assert_int_equal(config_layer(&c, l).window, keys[i].has[l] == '1' ? 32 : 0);
    }
    place_free(&p);
}

/* Short factors alone are half of a rule. */
static void half_of_longrope_is_refused(void **state)
{
    (void)state;
    enum { HALF = 16 };
    static const float factor[HALF] = {1};
    const size_t extent[1] = {HALF};
    struct place p = place_new();
    struct gguf_out o;
    struct config c;
    struct err err;
    gguf_begin(&o);
    put_llama(&o);
    gguf_put_tensor(&o, "rope_factors_short.weight", 0, 1, extent, factor, sizeof factor);
    gguf_end(&o, p.path);
    must_refuse(config_read(&c, p.path, &err), -EBADMSG, &err,
                "rope_factors_long.weight is no list of 16 F32");
    place_free(&p);
}

/* Norms without their 1 lie in memory, which has no copy on the disk to be read again. */
static void norms_stay_when_pages_are_let_go(void **state)
{
    (void)state;
    enum { WIDTH = 8 << 10 };
    static float stored[WIDTH];
    const size_t extent[1] = {WIDTH};
    struct place p = place_new();
    struct gguf_out o;
    struct st *st;
    struct err err;
    for (size_t i = 0; i < WIDTH; i++)
        stored[i] = 1 + (float)(i % 7 + 1) / 8;
    gguf_begin(&o);
    gguf_put_text(&o, "general.architecture", "gemma2");
    gguf_put_tensor(&o, "blk.0.attn_norm.weight", 0, 1, extent, stored, sizeof stored);
    gguf_end(&o, p.path);
    must(st_open_dir(&st, p.path, NULL, NULL, &err), &err);
    const struct st_tensor *t = st_find(st, "model.layers.0.input_layernorm.weight");
    assert_non_null(t);
    st_willneed(st, t);
    st_dontneed(st, t);
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(((const float *)t->data)[i] == stored[i] - 1);
    st_close(st);
    place_free(&p);
}

/* --- tokenizers ------------------------------------------------------------------------------- */

static void check_ids(const struct tokenizer *tok, const char *text, bool special, const char *want)
{
    uint32_t *ids;
    size_t n;
    struct err err;
    char is[256] = "";
    must(tokenizer_encode(tok, text, strlen(text), special, &ids, &n, &err), &err);
    for (size_t i = 0; i < n; i++)
        snprintf(is + strlen(is), sizeof is - strlen(is), "%s%u", i ? " " : "", ids[i]);
    free(ids);
    assert_string_equal(is, want);
}

static void check_text(const struct tokenizer *tok, const uint32_t *ids, size_t n, const char *want)
{
    char *text;
    size_t len;
    struct err err;
    must(tokenizer_decode(tok, ids, n, false, &text, &len, &err), &err);
    assert_string_equal(text, want);
    free(text);
}

/* "aa" and "ab" have one score: the leftmost pair is merged, whatever its place in the list. */
static void scores_merge_from_the_left(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "<0x21>", "\xe2\x96\x81", "a",
                                         "b",     "ab",  "ba",   "aba",    "<tool>"};
    static const float scores[] = {0, 0, 0, 0, -9, -8, -8, -2, -2, -1, 0};
    static const int32_t types[] = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 4};
    struct place p = place_new();
    struct gguf_out o;
    struct tokenizer *tok;
    struct chat_template *tpl;
    struct err err;
    gguf_begin(&o);
    put_llama(&o);
    gguf_put_text(&o, "tokenizer.ggml.model", "llama");
    gguf_put_texts(&o, "tokenizer.ggml.tokens", tokens, 11);
    gguf_put_reals(&o, "tokenizer.ggml.scores", scores, 11);
    gguf_put_wholes(&o, "tokenizer.ggml.token_type", types, 11);
    gguf_put_whole(&o, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_whole(&o, "tokenizer.ggml.eos_token_id", 2);
    gguf_put_text(&o, "tokenizer.chat_template", "{{ bos_token }}hello");
    gguf_end(&o, p.path);
    must(tokenizer_open(&tok, p.path, &err), &err);
    check_ids(tok, "bab", false, "4 8 6");  /* ba, b: the left one of two pairs */
    check_ids(tok, "abab", false, "4 9 6"); /* ab, then with the a behind it */
    check_ids(tok, "b!", true, "1 4 6 3");  /* BOS; what is no token are bytes */
    check_ids(tok, "b<tool>b", false, "4 6 10 4 6");
    check_text(tok, (uint32_t[]){4, 7, 3}, 3, "ab!");
    tokenizer_close(tok);
    must(chat_template_open(&tpl, p.path, &err), &err);
    assert_string_equal(chat_template_token(tpl, "bos_token"), "<s>");
    chat_template_close(tpl);
    place_free(&p);
}

static void byte_level_is_cut_as_it_says(void **state)
{
    (void)state;
    static const char blank_a[] = "\xc4\xa0"
                                  "a";
    static const char *const tokens[] = {"1", "2", "12", "a", "\xc4\xa0", blank_a, "<|end|>", "aa1"};
    static const char *const merges[] = {"1 2", "\xc4\xa0 a"};
    static const int32_t types[] = {1, 1, 1, 1, 1, 1, 3, 1};
    static const struct {
        const char *pre, *ids;
    } cuts[] = {{"llama-bpe", "2 5 6"},  {"qwen2", "0 1 5 6"},  {"gpt-4o", "2 5 6"},
                {"refact", "0 1 5 6"},   {"glm4", "2 5 6"},     {"dbrx", "2 5 6"},
                {"minimax-m2", "2 5 6"}, {"tekken", "0 1 5 6"}, {"qwen35", "0 1 5 6"}};
    enum { CUTS = sizeof cuts / sizeof *cuts };
    struct place p = place_new();
    struct gguf_out o;
    struct tokenizer *tok;
    struct err err;
    for (size_t i = 0; i <= CUTS; i++) {
        gguf_begin(&o);
        put_llama(&o);
        gguf_put_text(&o, "tokenizer.ggml.model", "gpt2");
        gguf_put_text(&o, "tokenizer.ggml.pre", i < CUTS ? cuts[i].pre : "unheard-of");
        gguf_put_texts(&o, "tokenizer.ggml.tokens", tokens, 8);
        gguf_put_texts(&o, "tokenizer.ggml.merges", merges, 2);
        gguf_put_wholes(&o, "tokenizer.ggml.token_type", types, 8);
        gguf_end(&o, p.path);
        if (i == CUTS) {
            must_refuse(tokenizer_open(&tok, p.path, &err), -ENOTSUP, &err,
                        "tokenizer.ggml.pre is none of llama-bpe, ");
            break;
        }
        must(tokenizer_open(&tok, p.path, &err), &err);
        check_ids(tok, "12 a<|end|>", false, cuts[i].ids);
        tokenizer_close(tok);
    }
    place_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_checked),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(parts_are_named),
        cmocka_unit_test(stretched_positions_are_understood),
        cmocka_unit_test(config_is_made_of_metadata),
        cmocka_unit_test(windows_are_those_of_the_key),
        cmocka_unit_test(half_of_longrope_is_refused),
        cmocka_unit_test(norms_stay_when_pages_are_let_go),
        cmocka_unit_test(scores_merge_from_the_left),
        cmocka_unit_test(byte_level_is_cut_as_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
