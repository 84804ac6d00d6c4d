/* SPDX-License-Identifier: MIT
 *
 * Token texts and their ids, both ways. Built once, then read by any number of threads. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "text/textbuf.h"

#define VOCAB_NONE UINT32_MAX
#define VOCAB_ID_LIMIT (1u << 22) /* ids below this; the largest vocabularies have a sixteenth of it */

struct vocab_entry {
    size_t text; /* offset into arena, NUL-terminated there */
    uint32_t len, id;
};

struct vocab {
    struct textbuf arena;
    struct vocab_entry *entries; /* owned, n of them */
    size_t n, cap;
    uint32_t *slots; /* owned: open addressing, entry index + 1, 0 = empty */
    size_t slot_count;
    uint32_t *by_id; /* owned: entry index + 1, 0 = no such id */
    size_t ids;      /* highest id + 1 */
    size_t by_id_cap;
    uint64_t salt; /* so that nobody can choose texts that collide */
};

int vocab_init(struct vocab *v, struct err *err);
void vocab_done(struct vocab *v);
/* −EEXIST when text or id is taken, −EINVAL when the id is out of range. */
int vocab_add(struct vocab *v, const char *text, size_t n, uint32_t id, struct err *err);
uint32_t vocab_find(const struct vocab *v, const char *text, size_t n);    /* VOCAB_NONE if absent */
const char *vocab_text(const struct vocab *v, uint32_t id, size_t *ret_n); /* NULL if absent */

#endif
