/* SPDX-License-Identifier: MIT
 *
 * From rules and expressions to steps. An expression is compiled from its end, because each step
 * says what follows it. */
#include "text/form/form_compile.h"

#include <errno.h>
#include <stdlib.h>

/* --- expressions ------------------------------------------------------------------------------ */

static uint32_t compile(struct form_maker *m, const struct form_expr *e, uint32_t next);

static uint32_t literal(struct form_maker *m, const struct form_expr *e, uint32_t next)
{
    for (size_t i = e->n; i-- && !m->d->failed;) {
        const struct form_edge edge = {(uint8_t)e->text[i], (uint8_t)e->text[i], next};
        next = form_bytes_add(m, &edge, 1);
    }
    return next;
}

static uint32_t alternatives(struct form_maker *m, const struct form_expr *e, uint32_t next)
{
    if (!e->last)
        return form_bytes_add(m, NULL, 0);
    uint32_t at = compile(m, e->last, next);
    for (const struct form_expr *part = e->last->before; part && !m->d->failed; part = part->before)
        at = form_op_add(m, FORM_SPLIT, compile(m, part, next), at);
    return at;
}

/* What is repeated more than once is a rule, so that a repetition is one step and not a copy. */
static struct form_expr rule_of(struct form_maker *m, struct form_expr *e)
{
    if (e->kind == EXPR_RULE || (e->kind == EXPR_LITERAL && e->n < 2))
        return *e;
    const uint32_t rule = form_rule_new(m->d, m->d->failed ? "" : m->d->rules[m->rule].name);
    form_rule_is(m->d, rule, e);
    return (struct form_expr){.kind = EXPR_RULE, .rule = rule};
}

/* e again and again, at least once, then `next`. */
static uint32_t loop(struct form_maker *m, const struct form_expr *e, bool at_least_once, uint32_t next)
{
    const uint32_t split = form_op_add(m, FORM_SPLIT, 0, next);
    const uint32_t begin = compile(m, e, split);
    if (m->d->failed)
        return 0;
    m->form->ops[split].next = begin;
    return at_least_once ? begin : split;
}

static uint32_t repeat(struct form_maker *m, const struct form_expr *e, uint32_t next)
{
    const uint32_t min = e->min, max = e->max;
    if (max == FORM_ENDLESS && min < 2)
        return loop(m, e->last, min == 1, next);
    if (max < 2)
        return !max  ? next
               : min ? compile(m, e->last, next)
                     : form_op_add(m, FORM_SPLIT, compile(m, e->last, next), next);
    const struct form_expr one = rule_of(m, e->last);
    uint32_t at = max == FORM_ENDLESS ? loop(m, &one, true, next) : next;
    for (uint32_t i = min; max != FORM_ENDLESS && i < max && !m->d->failed; i++)
        at = form_op_add(m, FORM_SPLIT, compile(m, &one, at), next);
    for (uint32_t i = max == FORM_ENDLESS; i < min && !m->d->failed; i++)
        at = compile(m, &one, at);
    return at;
}

static uint32_t compile(struct form_maker *m, const struct form_expr *e, uint32_t next)
{
    switch (m->d->failed ? EXPR_RULE : e->kind) {
    case EXPR_LITERAL: return literal(m, e, next);
    case EXPR_CLASS: return form_class_compile(m, e, next);
    case EXPR_ALT: return alternatives(m, e, next);
    case EXPR_REPEAT: return repeat(m, e, next);
    case EXPR_RULE: return form_op_add(m, FORM_CALL, next, e->rule);
    case EXPR_SEQ: break;
    }
    for (const struct form_expr *part = e->last; part && !m->d->failed; part = part->before)
        next = compile(m, part, next);
    return next;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* entry [FORM_RULES_MAX]: where each rule begins. Repetitions add rules on the way. */
static void compile_rules(struct form_maker *m, uint32_t *entry)
{
    struct form *f = m->form;
    form_op_add(m, FORM_END, 0, 0);
    for (m->rule = 0; m->rule < m->d->nrules && !m->d->failed; m->rule++)
        entry[m->rule] = compile(m, m->d->rules[m->rule].is, 0);
    for (size_t i = 0; i < f->nops && !m->d->failed; i++)
        if (f->ops[i].kind == FORM_CALL)
            f->ops[i].other = entry[f->ops[i].other];
}

static void make_classes(struct form *f)
{
    bool begins[257] = {true};
    for (size_t i = 0; i < f->nedges; i++)
        begins[f->edges[i].from] = begins[f->edges[i].to + 1] = true;
    for (size_t b = 0; b < 256; b++) {
        if (begins[b])
            f->example[f->nclasses++] = (uint8_t)b;
        f->class_of[b] = (uint8_t)(f->nclasses - 1);
    }
}

int form_draft_compile(struct form **ret, struct form_draft *d, uint32_t root, struct err *err)
{
    struct form *f = calloc(1, sizeof *f);
    uint32_t *entry = calloc(FORM_RULES_MAX, sizeof *entry);
    struct form_maker m = {.d = d, .form = f};
    if (!f || !entry)
        form_draft_fail(d, -ENOMEM, "no memory for the form");
    if (!d->failed)
        compile_rules(&m, entry);
    int r = d->failed;
    if (!r) {
        make_classes(f);
        f->start = entry[root];
        r = form_check(f, d, entry, root, err);
    }
    free(entry);
    if (r)
        form_free(f);
    else
        *ret = f;
    return r;
}

void form_free(struct form *f)
{
    if (!f)
        return;
    free(f->ops);
    free(f->edges);
    free(f->alive);
    free(f);
}
