/* SPDX-License-Identifier: MIT
 *
 * A file of JSON objects, one a line, or all in one array, or each on several lines; read one after
 * the other in bounded memory. */
#ifndef TRAIN_JSONL_H
#define TRAIN_JSONL_H

#include <stddef.h>

#include <jansson.h>

#include "err.h"

struct jsonl;

int jsonl_open(struct jsonl **ret, const char *path, struct err *err);
void jsonl_close(struct jsonl *in);

/* The next object, a new reference for the caller; 1, or 0 at the end. Blank lines are passed over.
 * Errors name file and line. */
int jsonl_next(struct jsonl *in, json_t **ret, struct err *err);
size_t jsonl_line(const struct jsonl *in); /* where the object returned last begins, from 1 */

#endif
