/* SPDX-License-Identifier: MIT
 *
 * A JSON schema while it becomes a form: for form_schema.c and the files of single types. */
#ifndef TEXT_FORM_SCHEMA_H
#define TEXT_FORM_SCHEMA_H

#include <jansson.h>

#include "text/form/form_json.h"

/* A schema, and the document that its references begin at. */
struct schema_at {
    const json_t *schema, *document; /* borrowed */
};

struct schema_ref {
    struct schema_at at;
    uint32_t rule;
    char *path; /* in the arena */
};

struct schema_reader {
    struct form_draft *d;
    struct schema_ref *refs; /* owned [nrefs]: schemas that are rules, those from `done` on not read yet */
    size_t nrefs, refs_cap, done;
    char path[256]; /* where the reader is: "#/properties/a" */
    size_t nest, steps;
};

/* The form of values that are valid. */
struct form_expr *schema_read(struct schema_reader *r, struct schema_at at);
/* Of one below the one that is read: its key or number is part of the path meanwhile. */
struct form_expr *schema_read_below(struct schema_reader *r, struct schema_at at, const char *key);
/* Of an object or an array that "type" or its keywords say it is. */
struct form_expr *schema_read_object(struct schema_reader *r, struct schema_at at);
struct form_expr *schema_read_array(struct schema_reader *r, struct schema_at at);

/* The schema that "$ref" names; schema NULL and the draft's failure where there is none. */
struct schema_at schema_find(struct schema_reader *r, struct schema_at at, const char *ref);

/* A complaint about the place that is read; "" and a sentence that names the keyword. */
void schema_complain(struct schema_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A keyword's whole number that is not negative; `missing` where it is not there. */
uint32_t schema_count(struct schema_reader *r, const json_t *schema, const char *key, uint32_t missing);
/* Puts a key behind the path, and returns the length to go back to. */
size_t schema_enter(struct schema_reader *r, const char *key);
void schema_leave(struct schema_reader *r, size_t length);
/* Complains of the first of these keywords that is there; ends with NULL. */
bool schema_refuses(struct schema_reader *r, const json_t *schema, const char *const *keys, const char *why);

/* Complains of a keyword that would let values through that are not valid. */
bool schema_is_supported(struct schema_reader *r, const json_t *schema);
/* Do its keywords say that it is no object? */
bool schema_is_about_others(const json_t *schema);

#endif
