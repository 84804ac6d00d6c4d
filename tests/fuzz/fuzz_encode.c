/* SPDX-License-Identifier: MIT
 *
 * Any bytes as text and as ids, through tokenizers of both kinds. The byte-level one must give the
 * text back as it was (U+FFFD for what is not UTF-8), and what its stream gives out must begin the
 * decoded whole. */
#include "tests/fuzz/lib/fuzz.h"

#include <assert.h>

#include "text/bytelevel.h"
#include "text/textbuf.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

static void add(struct textbuf *json, const char *text)
{
    textbuf_append(json, text, strlen(text));
}

static struct tokenizer *open_json(struct textbuf *json)
{
    struct tokenizer *tok = NULL;
    struct err err = {""};
    if (tokenizer_parse(&tok, json->data, json->len, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    textbuf_done(json);
    return tok;
}

/* Ids 0–255 are the bytes. */
static struct tokenizer *open_byte_level(void)
{
    struct textbuf json = {0};
    add(&json, "{\"added_tokens\":[{\"id\":300,\"content\":\"<s>\",\"special\":true}],"
               "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":"
               "\"ByteLevel\"},"
               "\"model\":{\"merges\":[\"a b\",\"ab ab\"],\"vocab\":{\"ab\":256,\"abab\":257");
    for (unsigned b = 0; b < 256; b++) {
        char entry[32];
        snprintf(entry, sizeof entry, ",\"\\u%04x\":%u", (unsigned)bytelevel_char((unsigned char)b), b);
        add(&json, entry);
    }
    add(&json, "}}}");
    return open_json(&json);
}

static struct tokenizer *open_fallback(void)
{
    struct textbuf json = {0};
    add(&json,
        "{\"added_tokens\":[{\"id\":300,\"content\":\"<s>\",\"special\":true,\"lstrip\":true,\"rstrip\":true}"
        ","
        "{\"id\":301,\"content\":\"Ab\",\"normalized\":true,\"single_word\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Prepend\","
        "\"prepend\":\"_\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
        "{\"type\":\"Strip\",\"content\":\"_\",\"start\":1,\"stop\":0}]},"
        "\"model\":{\"byte_fallback\":true,\"merges\":[[\"_\",\"a\"],[\"_a\",\"_a\"]],"
        "\"vocab\":{\"_\":256,\"a\":257,\"_a\":258,\"_a_a\":259");
    for (unsigned b = 0; b < 256; b++) {
        char entry[32];
        snprintf(entry, sizeof entry, ",\"<0x%02X>\":%u", b, b);
        add(&json, entry);
    }
    add(&json, "}}}");
    return open_json(&json);
}

/* Pushes all ids; with `whole` the pieces must begin it. */
static void check_stream(const struct tokenizer *tok, const uint32_t *ids, size_t n, const char *whole,
                         size_t len)
{
    struct tokenizer_stream *s;
    size_t at = 0;
    assert(tokenizer_stream_new(&s, tok, false, NULL) == 0);
    for (size_t i = 0; i < n; i++) {
        const char *text;
        size_t got;
        assert(tokenizer_stream_push(s, ids[i], &text, &got) == 0);
        assert(utf8_is_valid(text, got));
        if (whole)
            assert(got <= len - at && memcmp(whole + at, text, got) == 0);
        at += got;
    }
    tokenizer_stream_free(s);
}

static void check_ids(const struct tokenizer *tok, const uint32_t *ids, size_t n, bool byte_level,
                      const struct textbuf *want)
{
    char *text;
    size_t len;
    assert(tokenizer_decode(tok, ids, n, false, &text, &len, NULL) == 0);
    assert(text[len] == '\0' && utf8_is_valid(text, len));
    if (want)
        assert(want->len == len && (len == 0 || memcmp(want->data, text, len) == 0));
    check_stream(tok, ids, n, byte_level ? text : NULL, len);
    free(text);
}

static void check_text(const struct tokenizer *tok, const char *text, size_t size, bool byte_level)
{
    struct textbuf want = {0};
    uint32_t *ids;
    size_t n;
    textbuf_append_lossy(&want, text, size);
    assert(tokenizer_encode(tok, text, size, false, &ids, &n, NULL) == 0);
    check_ids(tok, ids, n, byte_level, byte_level ? &want : NULL);
    textbuf_done(&want);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *byte_level, *fallback;
    if (!byte_level) {
        byte_level = open_byte_level();
        fallback = open_fallback();
    }
    check_text(byte_level, (const char *)data, size, true);
    check_text(fallback, (const char *)data, size, false);
    uint32_t *ids = malloc((size + 1) * sizeof *ids);
    assert(ids);
    for (size_t i = 0; i < size; i++)
        ids[i] = data[i];
    check_ids(byte_level, ids, size, true, NULL);
    check_ids(fallback, ids, size, false, NULL);
    free(ids);
    return 0;
}
