/* SPDX-License-Identifier: MIT
 *
 * What can be said of a form before any text: from which steps the end can be reached, and which
 * rules begin with themselves, which would never take a byte. Both in time that grows as the form
 * does. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/form/form_compile.h"

/* --- which steps reach the end ---------------------------------------------------------------- */

/* Who asks for each step: `asks` from[i] … from[i + 1] − 1. */
struct askers {
    uint32_t *from, *asks; /* owned */
};

/* The steps that one depends on, at most 256; a call needs both of its own, all others one. */
static size_t needs_of(const struct form *f, size_t i, bool takes_bytes, uint32_t ret[256])
{
    const struct form_op *op = &f->ops[i];
    size_t n = 0;
    if (op->kind == FORM_SPLIT || op->kind == FORM_CALL) {
        ret[n++] = op->next;
        ret[n++] = op->other;
    }
    if (op->kind == FORM_BYTES && takes_bytes)
        for (size_t e = 0; e < op->other; e++)
            ret[n++] = f->edges[op->next + e].next;
    return n;
}

static int ask(struct askers *a, const struct form *f, bool takes_bytes)
{
    uint32_t needs[256];
    size_t sum = 0;
    a->from = calloc(f->nops + 2, sizeof *a->from);
    a->asks = calloc(2 * f->nops + f->nedges + 1, sizeof *a->asks);
    if (!a->from || !a->asks)
        return -ENOMEM;
    for (size_t i = 0; i < f->nops; i++)
        for (size_t k = needs_of(f, i, takes_bytes, needs); k--;)
            a->from[needs[k] + 2]++;
    for (size_t i = 2; i < f->nops + 2; i++)
        a->from[i] = (uint32_t)(sum += a->from[i]);
    for (size_t i = 0; i < f->nops; i++)
        for (size_t k = needs_of(f, i, takes_bytes, needs); k--;)
            a->asks[a->from[needs[k] + 1]++] = (uint32_t)i;
    return 0;
}

/* Which steps reach the end of their rule, with bytes or without: ret [nops], all false. */
static int reach(bool *ret, const struct form *f, bool takes_bytes)
{
    struct askers a = {0};
    uint32_t *todo = calloc(f->nops + 1, sizeof *todo);
    uint8_t *missing = calloc(f->nops + 1, 1);
    int r = todo && missing ? ask(&a, f, takes_bytes) : -ENOMEM;
    size_t n = 0;
    for (size_t i = 0; i < f->nops && !r; i++)
        missing[i] = f->ops[i].kind == FORM_CALL ? 2 : 1;
    if (!r) {
        todo[n++] = 0;
        ret[0] = true;
    }
    while (n) {
        const uint32_t at = todo[--n];
        for (uint32_t k = a.from[at]; k < a.from[at + 1]; k++) {
            const uint32_t who = a.asks[k];
            if (!ret[who] && !--missing[who]) {
                ret[who] = true;
                todo[n++] = who;
            }
        }
    }
    free(a.from);
    free(a.asks);
    free(todo);
    free(missing);
    return r;
}

/* --- rules that begin with themselves --------------------------------------------------------- */

/* Which rules may be called before a rule has taken a byte: those of rule i are to[from[i]] …
 * to[from[i + 1] − 1]. */
struct beginnings {
    const struct form *f;
    const bool *empty; /* steps that reach the end of their rule without a byte */
    size_t nrules;
    uint32_t *rule_at; /* owned [nops]: the rule that begins at a step */
    uint32_t *from;    /* owned [nrules + 1] */
    uint32_t *to;      /* owned [nops]: a step calls once */
};

/* The steps of one rule that take no byte. seen [nops]: which rule has come by; todo [nops]. */
static void follow_rule(struct beginnings *b, uint32_t rule, uint32_t entry, uint32_t *seen, uint32_t *todo)
{
    size_t n = 0;
    uint32_t made = b->from[rule];
    todo[n++] = entry;
    while (n) {
        const uint32_t at = todo[--n];
        const struct form_op *op = &b->f->ops[at];
        if (!at || seen[at] == rule + 1)
            continue;
        seen[at] = rule + 1;
        if (op->kind == FORM_CALL)
            b->to[made++] = b->rule_at[op->other];
        if (op->kind == FORM_SPLIT)
            todo[n++] = op->other;
        if (op->kind == FORM_SPLIT || (op->kind == FORM_CALL && b->empty[op->other]))
            todo[n++] = op->next;
    }
    b->from[rule + 1] = made;
}

enum { FRESH, OPEN, DONE };

/* Returns a rule on a circle, plus 1; 0: there is none. state, next, path [nrules], all zero. */
static uint32_t circle(const struct beginnings *b, uint8_t *state, uint32_t *next, uint32_t *path)
{
    for (uint32_t start = 0; start < b->nrules; start++) {
        size_t depth = 0;
        if (state[start] == FRESH)
            path[depth++] = start;
        while (depth) {
            const uint32_t at = path[depth - 1];
            if (state[at] == FRESH) {
                state[at] = OPEN;
                next[at] = b->from[at];
            }
            if (next[at] == b->from[at + 1]) {
                state[at] = DONE;
                depth--;
                continue;
            }
            const uint32_t to = b->to[next[at]++];
            if (state[to] == OPEN)
                return to + 1;
            if (state[to] == FRESH)
                path[depth++] = to;
        }
    }
    return 0;
}

static int find_circle(uint32_t *ret, struct beginnings *b, const uint32_t *entry)
{
    uint32_t *seen = calloc(b->f->nops, sizeof *seen), *todo = calloc(2 * b->f->nops + 1, sizeof *todo),
             *next = calloc(b->nrules + 1, sizeof *next), *path = calloc(b->nrules + 1, sizeof *path);
    uint8_t *state = calloc(b->nrules + 1, 1);
    const bool ok = seen && todo && next && path && state;
    for (uint32_t i = 0; ok && i < b->nrules; i++)
        follow_rule(b, i, entry[i], seen, todo);
    *ret = ok ? circle(b, state, next, path) : 0;
    free(seen);
    free(todo);
    free(next);
    free(path);
    free(state);
    return ok ? 0 : -ENOMEM;
}

static int check_beginnings(const struct form *f, const struct form_draft *d, const uint32_t *entry,
                            const bool *empty, struct err *err)
{
    struct beginnings b = {.f = f,
                           .empty = empty,
                           .nrules = d->nrules,
                           .rule_at = calloc(f->nops, sizeof *b.rule_at),
                           .from = calloc(d->nrules + 1, sizeof *b.from),
                           .to = calloc(f->nops, sizeof *b.to)};
    uint32_t rule = 0;
    int r = b.rule_at && b.from && b.to ? 0 : -ENOMEM;
    for (uint32_t i = 0; !r && i < d->nrules; i++)
        b.rule_at[entry[i]] = i;
    if (!r)
        r = find_circle(&rule, &b, entry);
    free(b.rule_at);
    free(b.from);
    free(b.to);
    if (r)
        return err_set(err, r, "no memory for the form");
    return rule ? err_set(err, -EINVAL,
                          "the rule \"%.100s\" begins with itself: let it begin with something else (left "
                          "recursion is not supported)",
                          d->rules[rule - 1].name)
                : 0;
}

int form_check(struct form *f, const struct form_draft *d, const uint32_t *entry, uint32_t root,
               struct err *err)
{
    bool *empty = calloc(f->nops, sizeof *empty);
    f->alive = calloc(f->nops, sizeof *f->alive);
    int r = empty && f->alive ? reach(f->alive, f, true) : -ENOMEM;
    if (!r)
        r = reach(empty, f, false);
    if (r)
        err_set(err, r, "no memory for the form");
    if (!r)
        r = check_beginnings(f, d, entry, empty, err);
    if (!r && !f->alive[entry[root]])
        r = err_set(err, -EINVAL, "no text has this form: the rule \"%.100s\" never comes to an end",
                    d->rules[root].name);
    free(empty);
    return r;
}
