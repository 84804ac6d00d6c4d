/* SPDX-License-Identifier: MIT
 *
 * The input taken apart: bytes for choices, texts, and JSON values built from bytes, so that no run
 * is spent on what the parser of JSON refuses anyway. What runs out reads as zeros. */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <jansson.h>

#include "tests/fuzz/lib/fuzz.h"

struct input {
    const uint8_t *at;
    size_t left;
};

static inline uint8_t input_u8(struct input *in)
{
    if (!in->left)
        return 0;
    in->left--;
    return *in->at++;
}

static inline size_t input_bytes(struct input *in, void *to, size_t n)
{
    n = n < in->left ? n : in->left;
    if (n > 0)
        memcpy(to, in->at, n);
    in->at += n;
    in->left -= n;
    return n;
}

/* What members are called, and texts that mean something; both end with NULL. */
struct input_words {
    const char *const *keys, *const *texts;
};

enum { INPUT_DEEP = 5, INPUT_WIDE = 16, INPUT_TEXT = 64 };

static inline json_t *input_text(struct input *in)
{
    char text[INPUT_TEXT];
    const size_t n = input_bytes(in, text, input_u8(in) % INPUT_TEXT);
    json_t *json = json_stringn(text, n); /* NULL if it is not UTF-8 */
    return json ? json : json_string("\xc3\xa9");
}

static inline const char *input_word(struct input *in, const char *const *words)
{
    size_t n = 0;
    while (words[n])
        n++;
    return n ? words[input_u8(in) % n] : "";
}

static inline json_t *input_number(struct input *in)
{
    int64_t v = 0;
    input_bytes(in, &v, sizeof v);
    return json_integer(v);
}

static inline json_t *input_real(struct input *in)
{
    double v = 0;
    input_bytes(in, &v, sizeof v);
    json_t *json = json_real(v); /* NULL if it is not finite */
    return json ? json : json_real(1e308);
}

static inline json_t *input_json(struct input *in, const struct input_words *words, int deep);

static inline json_t *input_array(struct input *in, const struct input_words *words, int deep)
{
    json_t *list = json_array();
    for (size_t n = input_u8(in) % INPUT_WIDE; n > 0 && in->left; n--)
        json_array_append_new(list, input_json(in, words, deep + 1));
    return list;
}

static inline json_t *input_object(struct input *in, const struct input_words *words, int deep)
{
    json_t *object = json_object();
    for (size_t n = input_u8(in) % INPUT_WIDE; n > 0 && in->left; n--) {
        const char *key = input_word(in, words->keys);
        json_object_set_new(object, key, input_json(in, words, deep + 1));
    }
    return object;
}

static inline json_t *input_json(struct input *in, const struct input_words *words, int deep)
{
    switch (input_u8(in) % (deep < INPUT_DEEP ? 10 : 8)) {
    case 0: return json_null();
    case 1: return json_true();
    case 2: return json_integer(input_u8(in));
    case 3: return json_integer((int8_t)input_u8(in));
    case 4: return input_number(in);
    case 5: return input_real(in);
    case 6: return input_text(in);
    case 7: return json_string(input_word(in, words->texts));
    case 8: return input_array(in, words, deep);
    default: return input_object(in, words, deep);
    }
}

#endif
