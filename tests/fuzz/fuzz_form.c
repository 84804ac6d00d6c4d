/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a grammar, a schema or a pattern: refused with a sentence, or a form that can be
 * followed. Then tokens that a mask lets through fit, others do not, and a mask is never empty. The
 * first byte says what it is; behind a NUL come the choices of tokens. */
#include "tests/fuzz/lib/input.h"

#include <assert.h>

#include "text/form/form_match.h"

enum { STEPS = 12, BYTES = 256 };

static const char *const words[] = {"\",",      "\":\"",          "aa",    "a\"", "}]",  "{\"",
                                    "\xc3\xa9", "\xc3",           "\xa9z", "12",  "\\n", "ba",
                                    "  ",       "\xe2\x82\xac\"", "ab1-"};
enum { WORDS = sizeof words / sizeof *words, VOCAB = BYTES + WORDS + 1 };

static int form_of(struct form **ret, uint8_t what, const char *text, size_t n, struct err *err)
{
    json_t *schema = NULL;
    int r;
    if (what % 3 == 0)
        return form_of_grammar(ret, text, n, err);
    if (what % 3 == 1)
        schema = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    else
        schema = json_pack("{s:s%}", "pattern", text, n); /* NULL if it is not UTF-8 */
    r = schema ? form_of_schema(ret, schema, err) : err_set(err, -EINVAL, "this is no schema");
    json_decref(schema);
    return r;
}

static struct form_tokens *make_tokens(void)
{
    static char bytes[BYTES];
    struct form_token token[VOCAB];
    struct form_tokens *tokens;
    struct err err;
    const uint32_t end = VOCAB - 1;
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (char)i;
        token[i] = (struct form_token){&bytes[i], 1};
    }
    for (size_t i = 0; i < WORDS; i++)
        token[BYTES + i] = (struct form_token){words[i], strlen(words[i])};
    token[end] = (struct form_token){"", 0};
    return form_tokens_new(&tokens, token, VOCAB, &end, 1, &err) ? NULL : tokens;
}

/* One token of those that fit; STATE 0: there is none but the end. */
static form_state step(struct form_match *m, form_state at, const uint64_t *mask, uint8_t choice)
{
    form_state to, next = 0;
    uint32_t seen = 0;
    struct err err;
    for (uint32_t k = 0; k < VOCAB - 1; k++) {
        const uint32_t id = (VOCAB - 2 + choice * 7 - k) % (VOCAB - 1); /* long ones first, mostly */
        const bool is = mask[id / 64] >> id % 64 & 1;
        if (is || seen++ < 4) {
            const int r = form_match_token(m, at, id, &to, &err);
            assert(!r == is || r == -E2BIG || r == -ENOMEM);
            if (!r && !next)
                next = to;
            else if (!r)
                form_match_drop(m, to);
        }
        if (next && seen >= 4)
            break;
    }
    return next;
}

static void follow(struct form_match *m, struct input *in)
{
    struct err err = {""};
    form_state at = form_match_start(m);
    for (int i = 0; i < STEPS && at; i++) {
        uint64_t copy[VOCAB / 64 + 1] = {0};
        const uint64_t *mask;
        const int r = form_match_mask(m, at, &mask, &err);
        assert(!r || (r == -E2BIG && err.text[0]));
        if (r)
            break;
        memcpy(copy, mask, sizeof copy);
        assert((copy[(VOCAB - 1) / 64] >> (VOCAB - 1) % 64 & 1) == form_match_may_end(m, at));
        const form_state to = step(m, at, copy, input_u8(in));
        assert(to || form_match_may_end(m, at));
        form_match_drop(m, at);
        at = to;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    const uint8_t what = input_u8(&in);
    const uint8_t *nul = in.left ? memchr(in.at, 0, in.left) : NULL;
    const size_t n = nul ? (size_t)(nul - in.at) : in.left;
    struct input choices = {in.at + n, in.left - n};
    char *text = malloc(n + 1);
    struct form *form = NULL;
    struct form_match *m;
    struct err err = {""};
    if (!text)
        return 0;
    memcpy(text, in.at, n);
    text[n] = '\0';
    if (form_of(&form, what, text, n, &err))
        assert(err.text[0] && memchr(err.text, '\0', sizeof err.text));
    struct form_tokens *tokens = form ? make_tokens() : NULL;
    input_u8(&choices);
    if (tokens && !form_match_new(&m, form, tokens, &err)) {
        follow(m, &choices);
        form_match_free(m);
    }
    form_tokens_free(tokens);
    form_free(form);
    free(text);
    return 0;
}
