/* SPDX-License-Identifier: MIT
 *
 * The form that an answer must have, compiled once: from a grammar as llama-server writes them
 * (GBNF), from a JSON schema, or any JSON object. What follows a form byte by byte and token by
 * token is form_match.h. A compiled form is read-only; any thread.
 *
 * What is compiled is one automaton over bytes with a stack, for rules that call rules. Whatever
 * it has begun it can also end: parts from which no text leads to the end are left out. */
#ifndef TEXT_FORM_H
#define TEXT_FORM_H

#include <jansson.h>
#include <stddef.h>

#include "err.h"

struct form;

/* What a JSON schema describes, and bytes of text that stand around it, such as the marks of a
 * tool's call. All are borrowed. */
struct form_value {
    const json_t *schema;
    const char *before, *after; /* NULL: nothing */
};

/* GBNF, n bytes of UTF-8, at most FORM_GRAMMAR_MAX. The answer is the rule `root`. −EINVAL names
 * line and column, or the rule: one that is missing, begins with itself (left recursion) or never
 * ends. −E2BIG: larger than the bounds of form_draft.h. */
enum { FORM_GRAMMAR_MAX = 1 << 18 };
int form_of_grammar(struct form **ret, const char *text, size_t n, struct err *err);

/* One of n values, each of a JSON schema, of which docs/FORMS.md says what is supported. −EINVAL
 * names the place ("#/properties/a") and the keyword that is wrong or not supported. Whatever the
 * form lets through is valid; it does not let through all that is valid: an object's properties
 * come in the order of the schema, and there is at most one space between two signs. */
int form_of_schemas(struct form **ret, const struct form_value *values, size_t n, struct err *err);
/* The same of one schema, and nothing around it. */
int form_of_schema(struct form **ret, const json_t *schema, struct err *err);

/* Any JSON object, with line breaks and indents or without. */
int form_of_json_object(struct form **ret, struct err *err);

void form_free(struct form *form);

#endif
