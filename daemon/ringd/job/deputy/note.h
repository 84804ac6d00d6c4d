/* SPDX-License-Identifier: MIT
 *
 * Notes of the store about jobs of other heads: a JSON object under a word and the head and number
 * of a job. Loop thread. */
#ifndef DAEMON_NOTE_H
#define DAEMON_NOTE_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/ringd/job/deputy/origin.h"

struct store;

/* Takes the note's reference; NULL: what is there goes. */
void note_put(struct store *store, const char *word, const struct origin *of, json_t *note);
/* The note of a row of store_notes that stands under this word; NULL: it stands under another. */
const json_t *note_of_row(const json_t *row, const char *word);
/* It cannot be read: it goes. */
void note_drop_row(struct store *store, const json_t *row);

#endif
