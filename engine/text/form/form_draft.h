/* SPDX-License-Identifier: MIT
 *
 * A form as rules and expressions, before it is compiled: what the readers of grammars, schemas
 * and patterns write. One thread.
 *
 * The first failure is kept in the draft, and everything after it does nothing, so a reader asks
 * once, at its end. An expression is part of one other expression at most: what is needed twice is
 * a rule. */
#ifndef TEXT_FORM_DRAFT_H
#define TEXT_FORM_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "text/arena.h"
#include "text/form/form.h"
#include "text/vocab.h"

#define FORM_ENDLESS UINT32_MAX

/* Bounds: brackets within brackets, rules, steps of the automaton, ranges of a class. */
enum { FORM_NEST_MAX = 64, FORM_RULES_MAX = 1 << 16, FORM_OPS_MAX = 1 << 18, FORM_RANGES_MAX = 1 << 10 };

struct form_range {
    uint32_t from, to; /* code points, both included */
};

enum form_expr_kind { EXPR_LITERAL, EXPR_CLASS, EXPR_SEQ, EXPR_ALT, EXPR_REPEAT, EXPR_RULE };

struct form_expr {
    enum form_expr_kind kind;
    const char *text; /* LITERAL: n bytes */
    size_t n;
    const struct form_range *ranges; /* CLASS: n of them, in order, apart, without surrogates */
    struct form_expr *last;          /* SEQ, ALT: the last part, NULL: none; REPEAT: what is repeated */
    struct form_expr *before;        /* the part before this one */
    uint32_t min, max;               /* REPEAT; max FORM_ENDLESS: no end */
    uint32_t rule;                   /* RULE */
};

struct form_rule {
    const char *name;     /* in the arena: for messages */
    struct form_expr *is; /* NULL: not defined yet */
    const char *first;    /* borrowed, while a grammar is read: where it was first named in it */
};

struct form_draft {
    struct arena arena;
    struct vocab names;      /* of rules, as numbers */
    struct form_rule *rules; /* owned [nrules] */
    size_t nrules, rules_cap;
    struct form_expr nothing; /* what a failed call returns */
    int failed;               /* 0, or what went wrong first, */
    struct err *err;          /* borrowed: as a sentence */
};

/* err: where failures go. */
void form_draft_init(struct form_draft *d, struct err *err);
void form_draft_done(struct form_draft *d);
/* Keeps the first failure; returns it. */
int form_draft_fail(struct form_draft *d, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Expressions; never NULL. Bytes are copied. */
struct form_expr *form_literal(struct form_draft *d, const char *text, size_t n);
struct form_expr *form_text(struct form_draft *d, const char *text);
/* Any order, also overlapping; `negated`: all others. */
struct form_expr *form_class(struct form_draft *d, const struct form_range *ranges, size_t n, bool negated);
struct form_expr *form_seq(struct form_draft *d);
struct form_expr *form_alt(struct form_draft *d);
/* Adds a part to a sequence, or an alternative. */
void form_add(struct form_expr *to, struct form_expr *part);
struct form_expr *form_repeat(struct form_draft *d, struct form_expr *of, uint32_t min, uint32_t max);
struct form_expr *form_call(struct form_draft *d, uint32_t rule);

/* Puts ranges in order and joins those that touch; takes surrogates out. Returns how many are
 * left. ret [2n + 2] */
size_t form_ranges_tidy(struct form_range *ret, const struct form_range *ranges, size_t n, bool negated);

/* The rule of that name, made where there is none yet. */
uint32_t form_rule_named(struct form_draft *d, const char *name, size_t n);
/* A rule that no other name finds; `name` is for messages. */
uint32_t form_rule_new(struct form_draft *d, const char *name);
void form_rule_is(struct form_draft *d, uint32_t rule, struct form_expr *is);

/* Adds the rules of a grammar. The draft's failure names the place. */
void form_grammar_read(struct form_draft *d, const char *text, size_t n);

/* Compiles the rule and all that it needs. */
int form_draft_compile(struct form **ret, struct form_draft *d, uint32_t root, struct err *err);

#endif
