/* SPDX-License-Identifier: MIT
 *
 * Reading fields of tokenizer.json with a sentence for what is wrong. `where` names the object:
 * "normalizer Replace". */
#ifndef TEXT_TOK_JSON_H
#define TEXT_TOK_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"

/* Absent and null count as `fallback`. −EINVAL for another type. */
int tok_json_bool(const json_t *obj, const char *where, const char *key, bool fallback, bool *ret,
                  struct err *err);
int tok_json_count(const json_t *obj, const char *where, const char *key, size_t limit, size_t *ret,
                   struct err *err);
int tok_json_string(const json_t *obj, const char *where, const char *key, const char **ret, struct err *err);
/* Absent and null give NULL. */
int tok_json_optional(const json_t *obj, const char *where, const char *key, const char **ret,
                      struct err *err);
int tok_json_id(const json_t *value, const char *where, uint32_t *ret, struct err *err);

/* Calls `parse` for the component, or in order for all components below `list_key` when it is a
 * Sequence, at most TOK_JSON_DEPTH deep. */
enum { TOK_JSON_DEPTH = 8 };
int tok_json_each(const json_t *component, const char *where, const char *list_key, size_t depth,
                  int (*parse)(void *owner, const char *type, const json_t *component, struct err *err),
                  void *owner, struct err *err);

#endif
