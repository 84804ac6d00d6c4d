/* SPDX-License-Identifier: MIT
 *
 * JSON as a form: values, strings, whole numbers. For the readers of schemas and patterns. */
#ifndef TEXT_FORM_JSON_H
#define TEXT_FORM_JSON_H

#include <jansson.h>

#include "text/form/form_draft.h"

/* Adds the rules of JSON: json-value, json-object, json-array, json-string, json-char,
 * json-integer, json-number, json-space, json-date, json-time, json-date-time, json-uuid,
 * json-ipv4. `loose`: with line breaks and indents. */
void form_json_rules(struct form_draft *d, bool loose);
/* One of them. */
struct form_expr *form_json(struct form_draft *d, const char *rule);

/* A value as jansson writes it, without spaces. */
struct form_expr *form_json_literal(struct form_draft *d, const json_t *value);
/* Characters inside a string, each written in one way: as it is, or, where it must be, with a
 * backslash. No character 0. */
struct form_expr *form_json_chars(struct form_draft *d, const struct form_range *ranges, size_t n,
                                  bool negated);
/* All whole numbers from `from` to `to`, and no other; from ≤ to. */
struct form_expr *form_json_integers(struct form_draft *d, int64_t from, int64_t to);

/* A regular expression (ECMA-262 without what is not regular) for what stands in a string, with its
 * quotes. The draft's failure names what is not supported. */
struct form_expr *form_pattern(struct form_draft *d, const char *pattern);

#endif
