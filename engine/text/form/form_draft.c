/* SPDX-License-Identifier: MIT
 *
 * Owns what a draft is made of: one arena for expressions and names, one list of rules. */
#include "text/form/form_draft.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/textbuf.h"

enum { ARENA_LIMIT = 32 << 20, CODE_POINT_MAX = 0x10FFFF, SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

void form_draft_init(struct form_draft *d, struct err *err)
{
    *d = (struct form_draft){.arena.limit = ARENA_LIMIT, .nothing.kind = EXPR_ALT, .err = err};
    d->failed = vocab_init(&d->names, err);
}

void form_draft_done(struct form_draft *d)
{
    arena_done(&d->arena);
    vocab_done(&d->names);
    free(d->rules);
}

int form_draft_fail(struct form_draft *d, int code, const char *fmt, ...)
{
    char text[sizeof d->err->text];
    va_list ap;
    if (d->failed)
        return d->failed;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return d->failed = err_set(d->err, code, "%s", text);
}

static int too_large(struct form_draft *d)
{
    return form_draft_fail(d, -E2BIG, "the form is too large: make it simpler, or its repetitions shorter");
}

/* --- expressions ------------------------------------------------------------------------------ */

static struct form_expr *expr_new(struct form_draft *d, enum form_expr_kind kind)
{
    struct form_expr *e = d->failed ? NULL : arena_alloc(&d->arena, sizeof *e);
    if (!e) {
        too_large(d);
        return &d->nothing;
    }
    e->kind = kind;
    return e;
}

static const void *copy_of(struct form_draft *d, const void *from, size_t n)
{
    const void *copy = d->failed ? NULL : arena_copy(&d->arena, from, n ? n : 1);
    if (!copy)
        too_large(d);
    return copy;
}

struct form_expr *form_literal(struct form_draft *d, const char *text, size_t n)
{
    struct form_expr *e = expr_new(d, EXPR_LITERAL);
    const char *copy = copy_of(d, text, n);
    if (d->failed)
        return &d->nothing;
    e->text = copy;
    e->n = n;
    return e;
}

struct form_expr *form_text(struct form_draft *d, const char *text)
{
    return form_literal(d, text, strlen(text));
}

static int by_start(const void *a, const void *b)
{
    const struct form_range *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Without surrogates, which no text has. */
static size_t cut_surrogates(struct form_range *ret, const struct form_range *r)
{
    size_t n = 0;
    if (r->from < SURROGATE_FIRST)
        ret[n++] = (struct form_range){r->from, r->to < SURROGATE_FIRST ? r->to : SURROGATE_FIRST - 1};
    if (r->to > SURROGATE_LAST)
        ret[n++] = (struct form_range){r->from > SURROGATE_LAST ? r->from : SURROGATE_LAST + 1, r->to};
    return n;
}

static size_t invert(struct form_range *ret, const struct form_range *in, size_t n)
{
    size_t made = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (in[i].from > next)
            ret[made++] = (struct form_range){next, in[i].from - 1};
        next = in[i].to + 1;
    }
    if (next <= CODE_POINT_MAX)
        ret[made++] = (struct form_range){next, CODE_POINT_MAX};
    return made;
}

size_t form_ranges_tidy(struct form_range *ret, const struct form_range *ranges, size_t n, bool negated)
{
    struct form_range sorted[FORM_RANGES_MAX], other[FORM_RANGES_MAX + 1];
    size_t joined = 0, made = 0;
    if (n) {
        memcpy(sorted, ranges, n * sizeof *ranges);
        qsort(sorted, n, sizeof *sorted, by_start);
    }
    for (size_t i = 0; i < n; i++) {
        if (joined && sorted[i].from <= sorted[joined - 1].to + 1) {
            if (sorted[i].to > sorted[joined - 1].to)
                sorted[joined - 1].to = sorted[i].to;
        } else
            sorted[joined++] = sorted[i];
    }
    if (negated)
        joined = invert(other, sorted, joined);
    for (size_t i = 0; i < joined; i++)
        made += cut_surrogates(ret + made, negated ? &other[i] : &sorted[i]);
    return made;
}

struct form_expr *form_class(struct form_draft *d, const struct form_range *ranges, size_t n, bool negated)
{
    struct form_range tidy[2 * FORM_RANGES_MAX + 2];
    if (n > FORM_RANGES_MAX) {
        form_draft_fail(d, -E2BIG, "a class of characters has more than %d ranges: make it shorter",
                        FORM_RANGES_MAX);
        return &d->nothing;
    }
    const size_t made = form_ranges_tidy(tidy, ranges, n, negated);
    struct form_expr *e = expr_new(d, EXPR_CLASS);
    const struct form_range *copy = copy_of(d, tidy, made * sizeof *tidy);
    if (d->failed)
        return &d->nothing;
    e->ranges = copy;
    e->n = made;
    return e;
}

struct form_expr *form_seq(struct form_draft *d)
{
    return expr_new(d, EXPR_SEQ);
}

struct form_expr *form_alt(struct form_draft *d)
{
    return expr_new(d, EXPR_ALT);
}

void form_add(struct form_expr *to, struct form_expr *part)
{
    if (to == part) /* both are what a failed call returned */
        return;
    part->before = to->last;
    to->last = part;
}

struct form_expr *form_repeat(struct form_draft *d, struct form_expr *of, uint32_t min, uint32_t max)
{
    struct form_expr *e = expr_new(d, EXPR_REPEAT);
    if (d->failed)
        return &d->nothing;
    e->last = of;
    e->min = min;
    e->max = max;
    return e;
}

struct form_expr *form_call(struct form_draft *d, uint32_t rule)
{
    struct form_expr *e = expr_new(d, EXPR_RULE);
    e->rule = rule;
    return e;
}

/* --- rules ------------------------------------------------------------------------------------ */

static uint32_t rule_add(struct form_draft *d, const char *name, size_t n)
{
    void *rules = d->rules;
    char *copy = d->failed ? NULL : arena_alloc(&d->arena, n + 1);
    if (!copy || d->nrules == FORM_RULES_MAX ||
        array_reserve(&rules, &d->rules_cap, d->nrules + 1, sizeof *d->rules)) {
        too_large(d);
        return 0;
    }
    memcpy(copy, name, n);
    d->rules = rules;
    d->rules[d->nrules] = (struct form_rule){.name = copy};
    return (uint32_t)d->nrules++;
}

uint32_t form_rule_named(struct form_draft *d, const char *name, size_t n)
{
    const uint32_t known = d->failed ? VOCAB_NONE : vocab_find(&d->names, name, n);
    if (known != VOCAB_NONE)
        return known;
    const uint32_t rule = rule_add(d, name, n);
    if (!d->failed)
        d->failed = vocab_add(&d->names, name, n, rule, d->err);
    return rule;
}

uint32_t form_rule_new(struct form_draft *d, const char *name)
{
    return rule_add(d, name, strlen(name));
}

void form_rule_is(struct form_draft *d, uint32_t rule, struct form_expr *is)
{
    if (!d->failed)
        d->rules[rule].is = is;
}
