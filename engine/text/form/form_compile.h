/* SPDX-License-Identifier: MIT
 *
 * The steps of an automaton while it is made. For the files that compile a form. */
#ifndef TEXT_FORM_COMPILE_H
#define TEXT_FORM_COMPILE_H

#include "text/form/form_draft.h"
#include "text/form/form_impl.h"

struct form_maker {
    struct form_draft *d;
    struct form *form; /* grows */
    size_t ops_cap, edges_cap;
    size_t rule; /* the one that is compiled now */
};

/* A step, or 0 once the draft has failed. */
uint32_t form_op_add(struct form_maker *m, enum form_op_kind kind, uint32_t next, uint32_t other);
/* One byte from edges [n], which are copied. */
uint32_t form_bytes_add(struct form_maker *m, const struct form_edge *edges, size_t n);
/* One character of a class, as UTF-8; then `next`. */
uint32_t form_class_compile(struct form_maker *m, const struct form_expr *class, uint32_t next);

/* Fills in `alive`. −EINVAL: the rule `root` has no text, or a rule begins with itself. entry
 * [d->nrules]: where each begins. */
int form_check(struct form *form, const struct form_draft *d, const uint32_t *entry, uint32_t root,
               struct err *err);

#endif
