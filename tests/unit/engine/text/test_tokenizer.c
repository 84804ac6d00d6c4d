/* SPDX-License-Identifier: MIT
 *
 * Whole tokenizers, small enough to follow by hand: added tokens, byte fallback, unknown
 * characters, templates, streams; and everything tokenizer.json can have wrong with it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "num/rng.h"
#include "text/textbuf.h"
#include "text/tokenizer.h"

/* Letters, marks and two merges; <b> is looked for in the text as written, "qu" in lower case. */
#define MODEL(options)                                                                                       \
    "\"model\":{\"type\":\"BPE\"," options                                                                   \
    "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"c\":3,\"_\":4,\"ab\":5,\"abc\":6,"                             \
    "\"<0xC3>\":7,\"<0xA9>\":8},\"merges\":[\"a b\",[\"ab\",\"c\"]]}"
#define FLAGS(l, r, w, n, s)                                                                                 \
    "\"lstrip\":" l ",\"rstrip\":" r ",\"single_word\":" w ",\"normalized\":" n ",\"special\":" s "}"
#define ADDED                                                                                                \
    "\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\"," FLAGS(                                              \
        "false", "false", "false", "false",                                                                  \
        "true") ","                                                                                          \
                "{\"id\":10,\"content\":\"<b>\"," FLAGS(                                                     \
                    "false", "false", "false", "false",                                                      \
                    "true") ","                                                                              \
                            "{\"id\":11,\"content\":\"<m>\"," FLAGS(                                         \
                                "true", "true", "false", "false",                                            \
                                "true") ","                                                                  \
                                        "{\"id\":12,\"content\":\"QU\"," FLAGS(                              \
                                            "false", "false", "true", "true",                                \
                                            "false") ","                                                     \
                                                     "{\"id\":13,\"content\":\"<bb>\"," FLAGS(               \
                                                         "false", "false", "false", "false", "false") "]"
#define TEMPLATE                                                                                             \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<b>\","     \
    "\"type_id\":0}},"                                                                                       \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"<m>\",\"type_id\":0}}],"        \
    "\"special_tokens\":{\"<b>\":{\"id\":\"<b>\",\"ids\":[10]},\"<m>\":{\"id\":\"<m>\",\"ids\":[11,1]}}}"
#define LOWER "\"normalizer\":{\"type\":\"Lowercase\"}"
#define PLAIN                                                                                                \
    "{" MODEL("\"unk_token\":\"<unk>\",") "," ADDED "," TEMPLATE "," LOWER ",\"decoder\":{\"type\":"         \
                                          "\"Fuse\"}}"

static struct tokenizer *open_text(const char *json)
{
    struct tokenizer *tok;
    struct err err = {""};
    if (tokenizer_parse(&tok, json, strlen(json), &err))
        fail_msg("%s", err.text);
    return tok;
}

/* ids as "1 2 3" */
static void check_ids(const struct tokenizer *tok, const char *text, size_t n, bool special, const char *want)
{
    uint32_t *ids;
    size_t count;
    struct err err = {""};
    if (tokenizer_encode(tok, text, n, special, &ids, &count, &err))
        fail_msg("'%s': %s", text, err.text);
    char got[512] = "";
    for (size_t i = 0; i < count; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), i ? " %u" : "%u", ids[i]);
    free(ids);
    if (strcmp(got, want) != 0)
        fail_msg("'%s': got %s, wanted %s", text, got, want);
}

static void check(const struct tokenizer *tok, const char *text, const char *want)
{
    check_ids(tok, text, strlen(text), false, want);
}

static void test_words_and_added_tokens(void **state)
{
    (void)state;
    struct tokenizer *tok = open_text(PLAIN);
    check(tok, "", "");
    check(tok, "abcab", "6 5");
    check(tok, "ABc", "6");
    check(tok, "a<b>b", "1 10 2");
    check(tok, "<B>", "0 2 0");              /* looked for before the normalizer */
    check(tok, "<bb><b", "13 0 2");          /* the longest, and not a start of one */
    check(tok, "a \t<m>\u2003 b", "1 11 2"); /* swallows the white space on both sides */
    check(tok, " <m> <m>", "11 11");
    check(tok, "qu QU", "12 0 12"); /* looked for in the normal form */
    check(tok, "aqu", "1 0 0");     /* a word character before it */
    check(tok, "quc", "0 0 3");
    check(tok, "<b>qu<b>", "10 12 10");
    check_ids(tok, "ab", 2, true, "10 5 11 1");
    check_ids(tok, "", 0, true, "10 11 1");
    check_ids(tok, "a\0b", 3, false, "1 0 2");
    tokenizer_close(tok);
}

static void test_unknown_characters(void **state)
{
    (void)state;
    static const struct {
        const char *json, *text, *ids;
    } cases[] = {
        {"{" MODEL("\"unk_token\":\"<unk>\",") "}", "xya", "0 0 1"},
        {"{" MODEL("\"unk_token\":\"<unk>\",\"fuse_unk\":true,") "}", "xyaz", "0 1 0"},
        {"{" MODEL("") "}", "xay", "1"},
        {"{" MODEL("\"byte_fallback\":true,\"unk_token\":\"<unk>\",") "}", "\u00e9", "7 8"},
        /* one byte of this character has no token, so none is used */
        {"{" MODEL("\"byte_fallback\":true,\"unk_token\":\"<unk>\",") "}", "\u00e8", "0"},
        {"{" MODEL("\"ignore_merges\":true,") "}", "<unk>", "0"},
        {"{" MODEL("\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"_\",") "}", "ab", "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *tok = open_text(cases[i].json);
        check(tok, cases[i].text, cases[i].ids);
        tokenizer_close(tok);
    }
    struct tokenizer *tok = open_text("{" MODEL("\"unk_token\":\"<none>\",") "}");
    uint32_t *ids;
    size_t n;
    struct err err = {""};
    check(tok, "ab", "5");
    assert_int_equal(tokenizer_encode(tok, "x", 1, false, &ids, &n, &err), -EINVAL);
    assert_non_null(strstr(err.text, "unk_token"));
    tokenizer_close(tok);
}

/* What has merged may merge with what stands before it as well as with what follows, the earliest
 * rule first. */
static void test_merges_go_both_ways(void **state)
{
    (void)state;
    struct tokenizer *tok = open_text("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,"
                                      "\"bc\":3,\"abc\":4,\"abca\":5,\"ca\":6},"
                                      "\"merges\":[\"b c\",\"a bc\",\"abc a\",\"c a\"]}}");
    check(tok, "abc", "4");
    check(tok, "abca", "5");
    check(tok, "bca", "3 0");
    check(tok, "aca", "0 6");
    tokenizer_close(tok);
}

static void test_prefix_and_suffix(void **state)
{
    (void)state;
    struct tokenizer *tok =
        open_text("{\"model\":{\"type\":\"BPE\",\"continuing_subword_prefix\":\"#\",\"end_of_word_suffix\":"
                  "\"/\",\"vocab\":{\"a\":0,"
                  "\"#b\":1,\"#c/\":2,\"ab\":3,\"abc/\":4,\"a/\":5},\"merges\":[\"a #b\",\"ab #c/\"]}}");
    check(tok, "abc", "4");
    check(tok, "a", "5");
    check(tok, "ab", "0"); /* "#b/" is not known */
    tokenizer_close(tok);
}

static void test_names_and_ids(void **state)
{
    (void)state;
    struct tokenizer *tok = open_text(PLAIN);
    uint32_t id = 99;
    assert_int_equal(tokenizer_id(tok, "abc", &id), 0);
    assert_int_equal(id, 6);
    assert_int_equal(tokenizer_id(tok, "<bb>", &id), 0);
    assert_int_equal(id, 13);
    assert_int_equal(tokenizer_id(tok, "abca", &id), -ENOENT);
    assert_true(tokenizer_is_special(tok, 10));
    assert_false(tokenizer_is_special(tok, 13));
    assert_false(tokenizer_is_special(tok, 6));
    assert_false(tokenizer_is_special(tok, UINT32_MAX));
    const uint32_t ids[] = {10, 6, 9, UINT32_MAX, 13, 11};
    char *text;
    size_t n;
    assert_int_equal(tokenizer_decode(tok, ids, 6, false, &text, &n, NULL), 0);
    assert_string_equal(text, "<b>abc<bb><m>");
    assert_int_equal(n, 13);
    free(text);
    assert_int_equal(tokenizer_decode(tok, ids, 6, true, &text, &n, NULL), 0);
    assert_string_equal(text, "abc<bb>");
    free(text);
    assert_int_equal(tokenizer_decode(tok, ids, 0, true, &text, &n, NULL), 0);
    assert_string_equal(text, "");
    free(text);
    tokenizer_close(tok);
}

static void test_invalid_utf8(void **state)
{
    (void)state;
    struct tokenizer *tok = open_text("{\"model\":{\"vocab\":{\"a\":0,\"\ufffd\":1},\"merges\":[]}}");
    check(tok,
          "a\xff\xe4\xbd"
          "a",
          "0 1 1 0");
    check(tok, "\xed\xa0\x80", "1 1 1");
    tokenizer_close(tok);
}

/* --- streams ---------------------------------------------------------------------------------- */

/* All 256 bytes and a merge in the middle of a character. */
static struct tokenizer *open_bytes(bool fallback)
{
    char json[16384];
    size_t n = (size_t)snprintf(json, sizeof json,
                                "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{");
    for (unsigned b = 0; b < 256; b++) {
        unsigned cp = b < 0x21 ? 0x100 + b : b >= 0x7f && b < 0xa1 ? 0x121 + b - 0x7f : b == 0xad ? 0x143 : b;
        n += (size_t)snprintf(json + n, sizeof json - n, fallback ? "\"<0x%02X>\":%u," : "\"\\u%04x\":%u,",
                              fallback ? b : cp, b);
    }
    n += (size_t)snprintf(
        json + n, sizeof json - n, "\" x\":256,\"%s\":257},\"merges\":[%s]},%s}",
        fallback ? "y" : "\\u00bd\\u0142", fallback ? "" : "[\"\\u00bd\",\"\\u0142\"]",
        fallback ? "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":"
                   "\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
                 : "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                   "\"decoder\":{\"type\":\"ByteLevel\"}");
    return open_text(json);
}

static void push(struct tokenizer_stream *s, uint32_t id, struct textbuf *out)
{
    const char *text;
    size_t n;
    assert_int_equal(tokenizer_stream_push(s, id, &text, &n), 0);
    assert_int_equal(text[n], '\0');
    textbuf_append(out, text, n);
}

static void stream_all(const struct tokenizer *tok, const uint32_t *ids, size_t n, struct textbuf *out)
{
    struct tokenizer_stream *s;
    assert_int_equal(tokenizer_stream_new(&s, tok, false, NULL), 0);
    for (size_t i = 0; i < n; i++)
        push(s, ids[i], out);
    tokenizer_stream_free(s);
}

static void test_stream_never_halves_a_character(void **state)
{
    (void)state;
    struct tokenizer *tok = open_bytes(false);
    const uint32_t ids[] = {'a', 0xE4, 257, 0xF0, 0x9F, 0x98, 0x80, 300, 'z'};
    static const char *const want[] = {"a", "", "\u4f60", "", "", "", "\U0001f600", "", "z"};
    struct tokenizer_stream *s;
    assert_int_equal(tokenizer_stream_new(&s, tok, true, NULL), 0);
    check(tok, "\u4f60", "228 257");
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const char *text;
        size_t n;
        assert_int_equal(tokenizer_stream_push(s, ids[i], &text, &n), 0);
        assert_string_equal(text, want[i]);
    }
    tokenizer_stream_free(s);
    tokenizer_close(tok);
}

/* A byte that goes nowhere spoils, decoded as a whole, the run of good ones before it; these have
 * been given out. */
static void test_stream_keeps_what_it_said(void **state)
{
    (void)state;
    struct tokenizer *tok = open_bytes(true);
    const uint32_t ids[] = {257, 0xE4, 0xBD, 0xA0, 0xE5, 257};
    struct textbuf out = {0};
    stream_all(tok, ids, sizeof ids / sizeof *ids, &out);
    textbuf_append(&out, "", 1);
    assert_string_equal(out.data, "y\u4f60\ufffdy");
    textbuf_done(&out);
    tokenizer_close(tok);
}

/* What is not UTF-8 comes out sooner or later, and a stream of it costs no more than any other. */
static void test_stream_of_garbage(void **state)
{
    (void)state;
    for (int fallback = 0; fallback < 2; fallback++) {
        struct tokenizer *tok = open_bytes(fallback);
        struct tokenizer_stream *s;
        struct textbuf out = {0};
        assert_int_equal(tokenizer_stream_new(&s, tok, true, NULL), 0);
        for (int i = 0; i < 3000; i++)
            push(s, 0xFF, &out);
        assert_true(out.len >= 3 * 2900 && out.len <= 3 * 3000);
        out.len = 0;
        push(s, fallback ? 257 : 'y', &out); /* no byte: it ends the run */
        assert_true(out.len > 0 && out.data[out.len - 1] == 'y');
        tokenizer_stream_free(s);
        textbuf_done(&out);
        tokenizer_close(tok);
    }
}

static void test_stream_equals_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct tokenizer *tok = open_bytes(seed % 2);
        struct rng rng = rng_for(seed, "test/stream");
        uint32_t *ids;
        size_t n, len;
        struct textbuf text = {0}, out = {0};
        for (size_t i = 0, chars = (size_t)rng_below(&rng, 30); i < chars; i++) {
            unsigned cp = (unsigned)rng_below(&rng, (uint64_t)1 << (7 + 3 * rng_below(&rng, 4)));
            textbuf_append_char(&text, cp >= 0xD800 && cp < 0xE000 ? ' ' : cp);
        }
        assert_int_equal(tokenizer_encode(tok, text.data, text.len, false, &ids, &n, NULL), 0);
        stream_all(tok, ids, n, &out);
        char *whole;
        assert_int_equal(tokenizer_decode(tok, ids, n, false, &whole, &len, NULL), 0);
        if (out.len != len || (len && memcmp(out.data, whole, len) != 0))
            fail_msg("seed %d: the stream's '%.*s' is not '%s'", (int)seed, (int)out.len, out.data, whole);
        if (seed % 2 == 0 && (len != text.len || (len && memcmp(whole, text.data, len) != 0)))
            fail_msg("seed %d: '%s' comes back otherwise", (int)seed, whole);
        free(whole);
        free(ids);
        textbuf_done(&text);
        textbuf_done(&out);
        tokenizer_close(tok);
    }
}

/* --- what is refused -------------------------------------------------------------------------- */

#define EMPTY "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}"
#define BPE(vocab, merges) "{\"model\":{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges "}}"
#define SINGLE(items)                                                                                        \
    "{" EMPTY ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" items                      \
    "],\"special_tokens\":{}}}"

static const struct {
    const char *json, *says;
} refusals[] = {
    {"", "damaged"},
    {"[1,2]", "tokenizer.json"},
    {"7", "tokenizer.json"},
    {"{}", "\"model\" is missing"},
    {"{\"model\":{\"type\":\"Unigram\"}}", "'Unigram'"},
    {"{\"model\":{\"type\":\"BPE\"}}", "\"vocab\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", "\"merges\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\ud800\":0},\"merges\":[]}}", "line 1"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xff\":0},\"merges\":[]}}", "line 1"},
    {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}", "dropout"},
    {"{\"model\":{\"type\":\"BPE\",\"fuse_unk\":1,\"vocab\":{},\"merges\":[]}}", "\"fuse_unk\""},
    {"{\"model\":{\"type\":\"BPE\",\"unk_token\":1,\"vocab\":{},\"merges\":[]}}", "\"unk_token\""},
    {BPE("{\"a\":0,\"a\":1}", "[]"), "uplicate"},
    {BPE("{\"a\":0,\"b\":0}", "[]"), "id 0 is given"},
    {BPE("{\"a\":-1}", "[]"), "whole number"},
    {BPE("{\"a\":1.5}", "[]"), "whole number"},
    {BPE("{\"a\":4194304}", "[]"), "whole number"},
    {BPE("{\"a\":99999999999999999999}", "[]"), "line 1"},
    {BPE("{\"a\":0}", "[\"a b\"]"), "merge 0 joins 'b'"},
    {BPE("{\"a\":0,\"b\":1}", "[\"a b\"]"), "merge 0 makes 'ab'"},
    {BPE("{\"a\":0}", "[\"a\"]"), "merge 0 is neither"},
    {BPE("{\"a\":0}", "[\"a a a\"]"), "merge 0 is neither"},
    {BPE("{\"a\":0}", "[[\"a\"]]"), "merge 0 is neither"},
    {BPE("{\"a\":0}", "[[\"a\",7]]"), "merge 0 is neither"},
    {BPE("{\"a\":0,\"\":1}", "[[\"a\",\"\"]]"), "joins nothing"},
    {BPE("{\"a\":0,\"\":1}", "[[\"\",\"a\"]]"), "joins nothing"},
    {"{" EMPTY ",\"added_tokens\":{}}", "must be a list"},
    {"{" EMPTY ",\"added_tokens\":[{\"id\":3}]}", "\"content\" is missing"},
    {"{" EMPTY ",\"added_tokens\":[{\"content\":\"x\"}]}", "'x': the id"},
    {"{" EMPTY ",\"added_tokens\":[{\"content\":\"x\",\"id\":3},{\"content\":\"y\",\"id\":3}]}",
     "id 3 is given"},
    {"{" EMPTY ",\"added_tokens\":[{\"content\":\"x\",\"id\":3},{\"content\":\"x\",\"id\":4}]}",
     "listed twice"},
    {"{" EMPTY ",\"normalizer\":7}", "normalizer must be an object"},
    {"{" EMPTY ",\"normalizer\":{\"type\":\"BertNormalizer\"}}", "'BertNormalizer'"},
    {"{" EMPTY ",\"normalizer\":{\"type\":\"Sequence\"}}", "\"normalizers\", a list"},
    {"{" EMPTY ",\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regexp\":\"a\"}}}",
     "\"pattern\" must"},
    {"{" EMPTY ",\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"(a\"}}}",
     "'(a'"},
    {"{" EMPTY ",\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}", "'BertPreTokenizer'"},
    {"{" EMPTY
     ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Merged\"}}",
     "'Merged'"},
    {"{" EMPTY ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}}", "one character"},
    {"{" EMPTY ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"x\"}}",
     "'x'"},
    {"{" EMPTY ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":\"no\"}}", "\"use_regex\""},
    {"{" EMPTY ",\"post_processor\":{\"type\":\"BertProcessing\"}}", "'BertProcessing'"},
    {SINGLE("{\"Sequence\":{\"id\":\"B\"}}"), "Sequence A"},
    {SINGLE(""), "Sequence A once"},
    {SINGLE("{\"SpecialToken\":{\"id\":\"x\"}}"), "no ids for 'x'"},
    {"{" EMPTY ",\"decoder\":{\"type\":\"WordPiece\"}}", "'WordPiece'"},
    {"{" EMPTY ",\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}}", "\"start\""},
    {"{" EMPTY ",\"decoder\":{\"type\":\"Strip\",\"content\":\"\",\"start\":1,\"stop\":0}}", "one character"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct tokenizer *tok = NULL;
        struct err err = {""};
        int r = tokenizer_parse(&tok, refusals[i].json, strlen(refusals[i].json), &err);
        if (r >= 0 || tok || !strstr(err.text, refusals[i].says))
            fail_msg("%s: %d, '%s' does not say '%s'", refusals[i].json, r, err.text, refusals[i].says);
    }
}

static void test_deep_sequences(void **state)
{
    (void)state;
    struct textbuf json = {0};
    static const char head[] = "{" EMPTY ",\"normalizer\":",
                      open[] = "{\"type\":\"Sequence\",\"normalizers\":[";
    textbuf_append(&json, head, sizeof head - 1);
    for (int i = 0; i < 100; i++)
        textbuf_append(&json, open, sizeof open - 1);
    textbuf_append(&json, "{\"type\":\"NFC\"}", 14);
    for (int i = 0; i < 100; i++)
        textbuf_append(&json, "]}", 2);
    textbuf_append(&json, "}", 1);
    struct tokenizer *tok;
    struct err err = {""};
    assert_int_equal(tokenizer_parse(&tok, json.data, json.len, &err), -EINVAL);
    assert_non_null(strstr(err.text, "nested"));
    textbuf_done(&json);
}

static void test_every_truncation(void **state)
{
    (void)state;
    const char *whole = PLAIN;
    for (size_t n = 0; n < strlen(whole); n++) {
        struct tokenizer *tok;
        struct err err = {""};
        if (tokenizer_parse(&tok, whole, n, &err) != -EBADMSG || !strstr(err.text, "damaged"))
            fail_msg("%zu bytes: %s", n, err.text);
    }
}

static void test_folder(void **state)
{
    (void)state;
    char dir[] = "/tmp/ringd-tokenizer-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    struct tokenizer *tok;
    struct err err = {""};
    assert_int_equal(tokenizer_open(&tok, dir, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(mkfifo(path, 0600), 0); /* is not waited for */
    assert_int_equal(tokenizer_open(&tok, dir, &err), -EINVAL);
    assert_non_null(strstr(err.text, "is not a regular file"));
    unlink(path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs("{\"model\": {", file);
    fclose(file);
    assert_int_equal(tokenizer_open(&tok, dir, &err), -EBADMSG);
    assert_non_null(strstr(err.text, path));
    file = fopen(path, "we");
    assert_non_null(file);
    fputs(PLAIN, file);
    fclose(file);
    assert_int_equal(tokenizer_open(&tok, dir, &err), 0);
    check(tok, "abc", "6");
    tokenizer_close(tok);
    tokenizer_close(NULL);
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_and_added_tokens),
        cmocka_unit_test(test_unknown_characters),
        cmocka_unit_test(test_merges_go_both_ways),
        cmocka_unit_test(test_prefix_and_suffix),
        cmocka_unit_test(test_names_and_ids),
        cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_stream_never_halves_a_character),
        cmocka_unit_test(test_stream_keeps_what_it_said),
        cmocka_unit_test(test_stream_of_garbage),
        cmocka_unit_test(test_stream_equals_whole),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_deep_sequences),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
