/* SPDX-License-Identifier: MIT
 *
 * A template's text cut into tokens: what stands between tags, with whitespace control done; and
 * within tags names, numbers, texts, operators. */
#ifndef TEXT_JINJA_LEX_H
#define TEXT_JINJA_LEX_H

#include <stdint.h>

#include "err.h"
#include "text/arena.h"
#include "text/jinja/jinja_value.h"

enum jinja_token_kind {
    TOKEN_END, /* of the template */
    TOKEN_TEXT,
    TOKEN_BLOCK,     /* {% */
    TOKEN_BLOCK_END, /* %} */
    TOKEN_PRINT,     /* {{ */
    TOKEN_PRINT_END, /* }} */
    TOKEN_NAME,
    TOKEN_STRING, /* text: what it means, escapes resolved */
    TOKEN_INT,    /* text: as written, without underscores */
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
};

struct jinja_token {
    enum jinja_token_kind kind;
    uint32_t line;
    struct jinja_text text;
};

struct jinja_tokens {
    struct jinja_token *at; /* owned; ends with TOKEN_END */
    size_t n, cap;
};

/* `text` is valid UTF-8. Texts of tokens live in the arena. */
int jinja_lex(struct jinja_tokens *ret, struct arena *arena, const char *text, size_t n, struct err *err);
void jinja_tokens_done(struct jinja_tokens *tokens);

#endif
