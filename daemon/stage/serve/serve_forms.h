/* SPDX-License-Identifier: MIT
 *
 * Forms that answers must have (docs/FORMS.md), as a request's "form" has them:
 *   {"json": true}                                    any JSON object
 *   {"values": [{"schema", "before", "after"}, …]}    one of JSON schemas, with texts around it
 *   {"grammar": "…"}                                  GBNF
 * and perhaps "opens" and "closes", as "<think>" and "</think>": a prompt that ends with the first
 * leaves the answer free until it has said the second; it does not end before. The last forms are
 * kept, since requests of a program ask for the same ones. Main thread of rank 0. */
#ifndef DAEMON_SERVE_FORMS_H
#define DAEMON_SERVE_FORMS_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/text/form/form_match.h"
#include "engine/text/tokenizer.h"

struct serve_form {
    struct serve_form *next;
    char *key;         /* owned: what it was made of */
    struct form *form; /* owned, as the next two */
    struct form_match *match;
    uint64_t *unended; /* [words]: all tokens that do not end an answer */
    size_t words;
    size_t users; /* requests */
};

struct serve_forms {
    const struct tokenizer *tok; /* borrowed; NULL: the model has none, and no form can be had */
    size_t vocab;
    uint32_t *ends; /* owned [nends]: tokens that end an answer */
    size_t nends;
    struct form_tokens *tokens; /* owned: made for the first form */
    struct serve_form *forms;   /* owned: the one used last is the first */
};

void serve_forms_done(struct serve_forms *all);

/* The caller is a user of it until serve_form_drop, which accepts NULL. −EINVAL names what is
 * wrong or not supported; −E2BIG, −ENOMEM. */
int serve_form_take(struct serve_form **ret, struct serve_forms *all, const json_t *how, struct err *err);
void serve_form_drop(struct serve_form *form);

/* Where one answer is in its form. All zero: it has none. */
struct form_at {
    struct serve_form *form; /* borrowed: held by the request */
    form_state state;        /* held */
    bool is_free;            /* it says something else before: */
    const char *closes;      /* borrowed: until this */
    char heard[32];          /* the end of what it has said */
};

enum { FORM_CLOSES_MAX = sizeof((struct form_at *)NULL)->heard - 1 };

/* Before the first token. `tail`: the end of the prompt's text, or NULL; borrows `how`. */
void form_at_begin(struct form_at *at, struct serve_form *form, const json_t *how, const char *tail);
void form_at_done(struct form_at *at);
/* A copy that holds its own state. */
struct form_at form_at_copy(const struct form_at *at);
/* The answer has this token, whose text is [n] bytes. −EPROTO: it does not fit. */
int form_at_token(struct form_at *at, uint32_t token, const char *text, size_t n, struct err *err);
/* It is complete, and nothing but its end can come: a model need not say that. */
bool form_at_is_over(const struct form_at *at);
/* Which tokens may come next, as form_match_mask; *ret NULL: all may. */
int form_at_mask(const struct form_at *at, const uint64_t **ret, struct err *err);

#endif
