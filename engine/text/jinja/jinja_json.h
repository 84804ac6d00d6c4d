/* SPDX-License-Identifier: MIT
 *
 * From jansson's values to a template's, and tojson: Python's json.dumps. */
#ifndef TEXT_JINJA_JSON_H
#define TEXT_JINJA_JSON_H

#include <jansson.h>

#include "text/jinja/jinja_run.h"

/* Text is borrowed from the JSON. */
struct jinja_value jinja_from_json(struct jinja_run *run, const json_t *json);

/* tojson(indent, separators, sort_keys, ensure_ascii), in any order and by name. */
struct jinja_value jinja_tojson(struct jinja_run *run, const struct jinja_call *call);

#endif
