/* SPDX-License-Identifier: MIT
 *
 * A form with a small vocabulary, and texts that it lets through or not. Included after
 * cmocka.h. */
#ifndef TESTS_FORM_WORLD_H
#define TESTS_FORM_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/rng.h"
#include "text/form/form_match.h"

/* Every byte is a token; behind them come those of a test, and last the one that ends answers. */
struct form_world {
    struct form *form;
    struct form_tokens *tokens;
    struct form_match *match;
    char bytes[256];
    struct form_token token[1024];
    size_t vocab;
    uint32_t end;
};

static inline void world_open(struct form_world *w, struct form *form, const char *const *texts)
{
    struct err err = {""};
    *w = (struct form_world){.form = form};
    for (size_t b = 0; b < 256; b++) {
        w->bytes[b] = (char)b;
        w->token[w->vocab++] = (struct form_token){&w->bytes[b], 1};
    }
    for (; texts && *texts; texts++)
        w->token[w->vocab++] = (struct form_token){*texts, strlen(*texts)};
    w->end = (uint32_t)w->vocab;
    w->token[w->vocab++] = (struct form_token){"</s>", 4};
    if (form_tokens_new(&w->tokens, w->token, w->vocab, &w->end, 1, &err) ||
        form_match_new(&w->match, form, w->tokens, &err))
        fail_msg("%s", err.text);
}

static inline void world_close(struct form_world *w)
{
    form_match_free(w->match);
    form_tokens_free(w->tokens);
    form_free(w->form);
}

static inline bool accepts_bytes(struct form_world *w, const char *text, size_t n)
{
    struct err err = {""};
    const form_state start = form_match_start(w->match);
    form_state end;
    const int r = form_match_bytes(w->match, start, text, n, &end, &err);
    const bool is = !r && form_match_may_end(w->match, end);
    if (!r)
        form_match_drop(w->match, end);
    else
        assert_int_not_equal(err.text[0], '\0');
    form_match_drop(w->match, start);
    return is;
}

static inline bool accepts(struct form_world *w, const char *text)
{
    return accepts_bytes(w, text, strlen(text));
}

static inline struct form *grammar(const char *text)
{
    struct err err = {""};
    struct form *form = NULL;
    if (form_of_grammar(&form, text, strlen(text), &err))
        fail_msg("%s\n%s", err.text, text);
    return form;
}

static inline bool is_allowed(const uint64_t *mask, uint32_t id)
{
    return mask[id / 64] >> id % 64 & 1;
}

#endif
