/* SPDX-License-Identifier: MIT
 *
 * A rank's own share of a model: which tensors it opens, and which blocks of their files it lacks,
 * where the model is on this node in part. In the stage process, before anything is mapped. */
#ifndef DAEMON_STAGE_SHARE_H
#define DAEMON_STAGE_SHARE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/common/job_plan.h"
#include "engine/file/config.h"
#include "engine/file/st.h"

/* The units of a rank, as weights_unit numbers them. */
struct share_want {
    const struct config *config; /* borrowed */
    bool *units, *lower;         /* [layers + 3] owned; lower: of ranks before it */
};
int share_want_init(struct share_want *ret, const struct job_plan *plan, const struct config *config,
                    uint32_t rank, struct err *err);
void share_want_done(struct share_want *w);
bool share_wants(void *want, const char *name); /* a tensor of that name */
bool share_wants_lower(void *want, const char *name);

/* Which tensors are wanted; want: NULL: all are. lower: those that a rank before this one wants;
 * NULL: none. */
struct share_ask {
    bool (*want)(void *arg, const char *name), (*lower)(void *arg, const char *name);
    void *arg;
};

/* The blocks of 4 MiB that tensors touch which are wanted and away, each once: a list of [file,
 * first block, the one after the last], by file and block; with a true behind it where tensors of
 * ranks before touch them too: those ask the hub for them. heads: of st_open_heads. Pure. The
 * caller owns it. */
json_t *share_blocks(const struct st *heads, const struct share_ask *ask);
/* All that wanted tensors touch, wherever it is; want: NULL: all are. */
json_t *share_touched(const struct st *heads, bool (*want)(void *arg, const char *name), void *arg);
/* The same by unit, from 0 to layers + 1, in one pass: a list of lists. */
json_t *share_units(const struct st *heads, size_t layers);
/* {file: bytes}: of all files that have a tensor. The caller owns it. */
json_t *share_sizes(const struct st *heads);

/* What is missing of a model for that, of the files as they are now: an empty list: nothing is, as
 * of all models without a name. The caller owns it. */
int share_lacks(json_t **ret, const char *model, const struct share_ask *ask, struct err *err);

#endif
