/* SPDX-License-Identifier: MIT
 *
 * The parts of a tokenizer one by one: normalizers, pre-tokenizers, decoders, the dialect of
 * regular expressions, UTF-8, and merging against a plain quadratic twin. */
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

#include <cmocka.h>

#include "num/rng.h"
#include "text/bpe.h"
#include "text/bytelevel.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pattern.h"
#include "text/pretok.h"
#include "text/regex.h"
#include "text/utf8.h"

static json_t *json_of(const char *text)
{
    json_error_t fault;
    json_t *json = json_loads(text, JSON_DECODE_ANY, &fault);
    if (!json)
        fail_msg("%s: %s", text, fault.text);
    return json;
}

static struct pattern_scratch *scratch_new(void)
{
    struct pattern_scratch *scratch;
    assert_int_equal(pattern_scratch_new(&scratch, NULL), 0);
    return scratch;
}

static void check_text(const char *what, const struct textbuf *got, const char *want)
{
    if (got->len != strlen(want) || memcmp(got->data, want, got->len) != 0)
        fail_msg("%s: got '%.*s', wanted '%s'", what, (int)got->len, got->data, want);
}

static void test_normalizers(void **state)
{
    (void)state;
    static const struct {
        const char *json, *in, *out;
    } cases[] = {
        {"null", "A b", "A b"},
        {"{\"type\":\"NFC\"}", "e\u0301 \u1112\u1161\u11ab", "\u00e9 \ud55c"},
        {"{\"type\":\"NFD\"}", "\u00e9\ud55c", "e\u0301\u1112\u1161\u11ab"},
        {"{\"type\":\"NFKC\"}", "\ufb01\u2460\uff21", "fi1A"},
        {"{\"type\":\"NFKD\"}", "\ufb01\u00e9", "fie\u0301"},
        /* marks of classes 230, 220, 230: stable order by class */
        {"{\"type\":\"NFD\"}", "a\u0301\u0323\u0300", "a\u0323\u0301\u0300"},
        {"{\"type\":\"Lowercase\"}", "\u00c4\u0130\u03a3x", "\u00e4i\u0307\u03c3x"},
        {"{\"type\":\"Prepend\",\"prepend\":\"_\"}", "a", "_a"},
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}", " \u3000a \n", "a \n"},
        {"{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}", " a \xc2\x85", " a"},
        {"{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", " \t ", ""},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"__\"}", " a  ", "__a____"},
        {"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[ab]+\"},\"content\":\"$1\"}", "xabbay", "x$1y"},
        {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"B\"},"
         "{\"type\":\"Lowercase\"}]}",
         "A", "ba"},
    };
    struct pattern_scratch *scratch = scratch_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct normalizer norm;
        struct textbuf text = {0}, spare = {0};
        json_t *json = json_of(cases[i].json);
        assert_int_equal(normalizer_parse(&norm, json, NULL), 0);
        textbuf_append(&text, cases[i].in, strlen(cases[i].in));
        assert_int_equal(normalizer_apply(&norm, scratch, &text, &spare, NULL), 0);
        check_text(cases[i].json, &text, cases[i].out);
        json_decref(json);
        normalizer_done(&norm);
        textbuf_done(&text);
        textbuf_done(&spare);
    }
    pattern_scratch_free(scratch);
}

/* Alternating classes, highest first: exchanging neighbours would take 10^11 steps. */
static void test_a_megabyte_of_marks(void **state)
{
    (void)state;
    struct pattern_scratch *scratch = scratch_new();
    struct normalizer norm;
    struct textbuf text = {0}, spare = {0};
    json_t *json = json_of("{\"type\":\"NFC\"}");
    assert_int_equal(normalizer_parse(&norm, json, NULL), 0);
    textbuf_append(&text, "q", 1);
    for (size_t i = 0; i < 262144; i++)
        textbuf_append(&text, "\u0301\u0323", 4);
    size_t n = text.len;
    assert_int_equal(normalizer_apply(&norm, scratch, &text, &spare, NULL), 0);
    assert_int_equal(text.len, n);
    assert_memory_equal(text.data, "q\u0323\u0323", 5);
    json_decref(json);
    normalizer_done(&norm);
    textbuf_done(&text);
    textbuf_done(&spare);
    pattern_scratch_free(scratch);
}

#define SPLIT(pattern, behaviour)                                                                            \
    "{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behaviour "\",\"invert\":false}"
#define DASH "{\"String\":\"-\"}"

static const struct {
    const char *json, *in, *out; /* words with a bar behind each */
} pretok_cases[] = {
    {"null", "a b", "a b|"},
    {SPLIT(DASH, "Removed"), "-a--b", "a|b|"},
    {SPLIT(DASH, "Isolated"), "-a--b", "-|a|-|-|b|"},
    {SPLIT(DASH, "Contiguous"), "-a--b", "-|a|--|b|"},
    {SPLIT(DASH, "MergedWithPrevious"), "-a--b", "-|a-|-|b|"},
    {SPLIT(DASH, "MergedWithNext"), "-a--b-", "-a|-|-b|-|"},
    {SPLIT("{\"Regex\":\"\"}", "Isolated"), "a\u00e9b", "a|\u00e9|b|"},
    {SPLIT("{\"Regex\":\"x*\"}", "Removed"), "axxb", "a|b|"},
    {SPLIT("{\"String\":\"\"}", "Isolated"), "ab", "ab|"},
    {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z]+\"},\"behavior\":\"Removed\",\"invert\":true}",
     "1ab2c", "ab|c|"},
    {"{\"type\":\"Digits\",\"individual_digits\":true}", "a12\u0663\u00bdb", "a|1|2|\u0663|\u00bd|b|"},
    {"{\"type\":\"Digits\",\"individual_digits\":false}", "a12b3", "a|12|b|3|"},
    {"{\"type\":\"Punctuation\"}", "a,$b\u3002", "a|,|$|b|\u3002|"},
    {"{\"type\":\"Whitespace\"}", "ab, c\u0301d !?", "ab|,|c\u0301d|!?|"},
    {"{\"type\":\"WhitespaceSplit\"}", " a\u2003b,\nc", "a|b,|c|"},
    {"{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}", "it's 1\u00e9",
     "\u0120it|'s|\u01201|\u00c3\u00a9|"},
    {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}", "a \x7f\u00ad",
     "a\u0120\u0121\u00c2\u0143|"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}", "a  b", "_a|_|_b|"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}", " a", "_a|"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false,\"split\":false}", "a b",
     "a_b|"},
    {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\","
     "\"replacement\":\"_\",\"prepend_scheme\":\"first\"}]}",
     "a b c", "_a|b|c|"},
};

static void test_pre_tokenizers(void **state)
{
    (void)state;
    struct pattern_scratch *scratch = scratch_new();
    for (size_t i = 0; i < sizeof pretok_cases / sizeof *pretok_cases; i++) {
        struct pretok pre;
        struct pieces words = {0}, spare = {0};
        struct textbuf got = {0};
        struct err err = {""};
        json_t *json = json_of(pretok_cases[i].json);
        if (pretok_parse(&pre, json, &err))
            fail_msg("%s", err.text);
        pieces_append(&words, pretok_cases[i].in, strlen(pretok_cases[i].in), true);
        assert_int_equal(pretok_apply(&pre, scratch, &words, &spare, NULL), 0);
        for (size_t w = 0; w < words.n; w++) {
            textbuf_append(&got, words.text.data + words.at[w].start, words.at[w].len);
            textbuf_append(&got, "|", 1);
        }
        check_text(pretok_cases[i].json, &got, pretok_cases[i].out);
        json_decref(json);
        pretok_done(&pre);
        pieces_done(&words);
        pieces_done(&spare);
        textbuf_done(&got);
    }
    pattern_scratch_free(scratch);
}

static const struct {
    const char *json;
    const char *tokens[6];
    const char *out;
} decoder_cases[] = {
    {"null", {"a", "b"}, "a b"},
    {"{\"type\":\"Sequence\",\"decoders\":[]}", {"a", "b"}, "ab"},
    {"{\"type\":\"Fuse\"}", {"a", "b"}, "ab"},
    {"{\"type\":\"ByteLevel\"}", {"\u00c3", "\u00a9\u0120x", "\u4f60"}, "\u00e9 x\u4f60"},
    {"{\"type\":\"ByteLevel\"}", {"\u00e2\u0124", "a", "\u00ff"}, "\ufffda\ufffd"},
    {"{\"type\":\"ByteFallback\"}", {"<0xE4>", "<0xbd>", "<0xA0>", "x"}, "\u4f60x"},
    {"{\"type\":\"ByteFallback\"}", {"<0xE4>", "<0xBD>", "x", "<0x41>"}, "\ufffd\ufffdxA"},
    {"{\"type\":\"ByteFallback\"}", {"<0xZZ>", "<0x4>"}, "<0xZZ><0x4>"},
    {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}", {"_a_", "_"}, " a  "},
    {"{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}", {"  a ", " b"}, " a b"},
    {"{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":2}", {"a   ", " "}, "a "},
    {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}", {"_a_", "_b"}, "a b"},
    {"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\"}", {"_a", "_b"}, " a b"},
    {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\"a\","
     "\"start\":9,"
     "\"stop\":9}]}",
     {"aa", "ab", "a"},
     "b"},
};

static void test_decoders(void **state)
{
    (void)state;
    struct pattern_scratch *scratch = scratch_new();
    for (size_t i = 0; i < sizeof decoder_cases / sizeof *decoder_cases; i++) {
        struct decoder dec;
        struct pieces tokens = {0}, spare = {0};
        struct err err = {""};
        json_t *json = json_of(decoder_cases[i].json);
        if (decoder_parse(&dec, json, &err))
            fail_msg("%s", err.text);
        for (size_t t = 0; t < 6 && decoder_cases[i].tokens[t]; t++)
            pieces_append(&tokens, decoder_cases[i].tokens[t], strlen(decoder_cases[i].tokens[t]), false);
        assert_int_equal(decoder_apply(&dec, scratch, &tokens, &spare, NULL), 0);
        check_text(decoder_cases[i].json, &tokens.text, decoder_cases[i].out);
        json_decref(json);
        decoder_done(&dec);
        pieces_done(&tokens);
        pieces_done(&spare);
    }
    pattern_scratch_free(scratch);
}

static void test_regex_dialect(void **state)
{
    (void)state;
    static const struct {
        const char *regex, *text;
        bool matches; /* all of the text */
    } cases[] = {
        {"\\s", "\xc2\x85", true},
        {"\\s", "\u180e", false},
        {"[\\s]", "\u180e", false},
        {"\\S", "\u180e", true},
        {"[\\S]", "\u180e", true},
        {"[^\\s]", "\u3000", false},
        {"\\w+", "e\u0301_\u0663", true},
        {"\\w", "\u24b6", true},
        {"\\w", "\u00bd", false},
        {"\\h+", "fF0", true},
        {"\\h", " ", false},
        {"[\\h]+", "beef", true},
        {"(?m).", "\n", true},
        {".", "\n", false},
        {"(?i:'S)", "'s", true},
        {"(?mi:A.)", "a\n", true},
        {"\\u4f60", "\u4f60", true},
        {"\\d", "\u0663", true},
        {"[[:alpha:]]", "\u00e9", true},
        {"[^\\]]\\[", "a[", true},
        {"(?!b)a", "a", true},
        {"a{2}", "aa", true},
        {"\\W", "\u0301", false},
    };
    struct pattern_scratch *scratch = scratch_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pattern *p;
        struct err err = {""};
        if (pattern_new_regex(&p, cases[i].regex, &err))
            fail_msg("%s", err.text);
        struct pattern_walk walk = PATTERN_WALK;
        struct pattern_hit hit = {1, 0};
        size_t n = strlen(cases[i].text);
        bool found = pattern_next(p, scratch, cases[i].text, n, &walk, &hit, NULL) == 1;
        if ((found && hit.start == 0 && hit.end == n) != cases[i].matches)
            fail_msg("%s on '%s': %d", cases[i].regex, cases[i].text, found);
        pattern_free(p);
    }
    pattern_scratch_free(scratch);
    static const char *const refused[] = {"[a[b]]", "[a&&b]", "a{1,3}+", "(*FAIL)", "a\\",
                                          "[a",     "[\\W]",  "(a",      "[[:x",    "\\C"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct pattern *p;
        struct err err = {""};
        assert_int_equal(pattern_new_regex(&p, refused[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, refused[i]));
    }
}

/* Exponential backtracking ends in a sentence, not in hours. */
static void test_regex_gives_up(void **state)
{
    (void)state;
    struct pattern *p;
    struct pattern_scratch *scratch = scratch_new();
    struct err err = {""};
    assert_int_equal(pattern_new_regex(&p, "(?:a|aa|aaa)+(?=b)", NULL), 0);
    char text[4000];
    memset(text, 'a', sizeof text);
    struct pattern_walk walk = PATTERN_WALK;
    struct pattern_hit hit;
    assert_int_equal(pattern_next(p, scratch, text, sizeof text, &walk, &hit, &err), -E2BIG);
    assert_non_null(strstr(err.text, "gave up"));
    pattern_free(p);
    pattern_scratch_free(scratch);
}

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"a\u00e9\u4f60\U0001f600", "a\u00e9\u4f60\U0001f600"},
        {"\x80", "\ufffd"},
        {"\xc0\xaf", "\ufffd\ufffd"},                     /* overlong */
        {"\xe0\x80\x80", "\ufffd\ufffd\ufffd"},           /* overlong */
        {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},           /* surrogate */
        {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"}, /* beyond U+10FFFF */
        {"\xe4\xbd"
         "a",
         "\ufffd"
         "a"}, /* the longest start is one */
        {"\xf0\x9f\x98", "\ufffd"},
        {"\xf0\x9f\xf0\x9f\x98\x80", "\ufffd\U0001f600"},
        {"\xff\xfe", "\ufffd\ufffd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct textbuf out = {0};
        textbuf_append_lossy(&out, cases[i].in, strlen(cases[i].in));
        check_text("lossy", &out, cases[i].out);
        assert_int_equal(utf8_is_valid(cases[i].in, strlen(cases[i].in)), i == 0);
        textbuf_done(&out);
    }
    for (unsigned b = 0; b < 256; b++)
        assert_int_equal(bytelevel_byte(bytelevel_char((unsigned char)b)), b);
    assert_int_equal(bytelevel_char(' '), 0x120);
    assert_int_equal(bytelevel_char(0xAD), 0x143);
    assert_int_equal(bytelevel_byte(0xAD), -1);
    assert_int_equal(bytelevel_byte(0x144), -1);
}

/* --- merging against a twin that looks at all pairs every time -------------------------------- */

enum { TOKENS = 60, LETTERS = 3 };

/* A random vocabulary over a, b, c: every new token joins two older ones. */
static json_t *random_model(struct rng *rng)
{
    json_t *vocab = json_object(), *merges = json_array();
    char texts[TOKENS][64];
    for (int i = 0; i < LETTERS; i++) {
        snprintf(texts[i], sizeof texts[i], "%c", 'a' + i);
        json_object_set_new(vocab, texts[i], json_integer(i));
    }
    for (size_t n = LETTERS; n < TOKENS;) {
        size_t left = (size_t)rng_below(rng, n), right = (size_t)rng_below(rng, n);
        if (strlen(texts[left]) + strlen(texts[right]) > 12)
            continue;
        char joined[64];
        strcpy(joined, texts[left]);
        strcat(joined, texts[right]);
        json_array_append_new(merges, json_pack("[s,s]", texts[left], texts[right]));
        if (json_object_get(vocab,
                            joined)) /* another way to a known token; once more every pair may come twice */
            continue;
        json_object_set_new(vocab, joined, json_integer((json_int_t)n));
        strcpy(texts[n++], joined);
    }
    return json_pack("{s:s,s:o,s:o}", "type", "BPE", "vocab", vocab, "merges", merges);
}

static size_t merge_plainly(const struct bpe *bpe, uint32_t *ids, size_t n)
{
    for (;;) {
        const struct bpe_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct bpe_merge *m = bpe_find_merge(bpe, ids[i], ids[i + 1]);
            if (m && (!best || m->rank < best->rank)) {
                best = m;
                at = i;
            }
        }
        if (!best)
            return n;
        ids[at] = best->id;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void test_merging_against_a_plain_twin(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rng rng = rng_for(seed, "test/bpe");
        json_t *model = random_model(&rng);
        struct bpe bpe;
        struct bpe_scratch scratch = {0};
        struct err err = {""};
        if (bpe_parse(&bpe, model, &err))
            fail_msg("seed %d: %s", (int)seed, err.text);
        for (int round = 0; round < 20; round++) {
            char word[200];
            uint32_t want[200];
            size_t n = (size_t)rng_below(&rng, sizeof word);
            for (size_t i = 0; i < n; i++)
                want[i] = (uint32_t)(word[i] = (char)('a' + rng_below(&rng, LETTERS))) - 'a';
            struct idbuf got = {0};
            assert_int_equal(bpe_encode(&bpe, &scratch, word, n, &got, NULL), 0);
            size_t wanted = merge_plainly(&bpe, want, n);
            if (got.n != wanted || (wanted && memcmp(got.at, want, wanted * sizeof *want) != 0))
                fail_msg("seed %d, round %d: %zu ids instead of %zu", (int)seed, round, got.n, wanted);
            free(got.at);
        }
        bpe_scratch_done(&scratch);
        bpe_done(&bpe);
        json_decref(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normalizers),    cmocka_unit_test(test_a_megabyte_of_marks),
        cmocka_unit_test(test_pre_tokenizers), cmocka_unit_test(test_decoders),
        cmocka_unit_test(test_regex_dialect),  cmocka_unit_test(test_regex_gives_up),
        cmocka_unit_test(test_utf8),           cmocka_unit_test(test_merging_against_a_plain_twin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
