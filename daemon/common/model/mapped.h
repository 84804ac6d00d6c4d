/* SPDX-License-Identifier: MIT
 *
 * What a rank maps of a model's files, and what the ranks of several jobs on a node map together.
 * The kernel has a page of a file once, however many processes map it: so bytes that two of them
 * map count once. Pure: any thread. */
#ifndef DAEMON_MAPPED_H
#define DAEMON_MAPPED_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_plan.h"

struct mapped {
    uint64_t key;    /* what has the same has the same units of the same bytes; 0: nothing is mapped */
    size_t n;        /* units of the model, as in split.h */
    uint64_t *bytes; /* owned: [n] bytes of a unit that the rank maps, 0 of another */
};

/* Of a model and the form its weights are kept in: its path, its fingerprint, the type of its
 * weights and the bytes of its units. 0: nothing is mapped. */
uint64_t mapped_key(const struct job_plan *plan);
enum { MAPPED_KEY_TEXT = 17 };
void mapped_key_text(char ret[MAPPED_KEY_TEXT], uint64_t key); /* 16 hexadecimal digits */
int mapped_key_parse(uint64_t *ret, const char *text);         /* −EBADMSG */

int mapped_of_plan(struct mapped *ret, const struct job_plan *plan, size_t rank); /* −ENOMEM */
void mapped_done(struct mapped *m);

uint64_t mapped_sum(const struct mapped *m); /* bytes */
/* Bytes of all n together: a unit of two that have the same key counts once. */
uint64_t mapped_union(const struct mapped *const *at, size_t n);

#endif
