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
    bool *units;                 /* [layers + 3] owned */
};
int share_want_init(struct share_want *ret, const struct job_plan *plan, const struct config *config,
                    uint32_t rank, struct err *err);
void share_want_done(struct share_want *w);
bool share_wants(void *want, const char *name); /* a tensor of that name */

/* The blocks of 4 MiB that tensors touch which are wanted and away, each once: a list of [file,
 * first block, the one after the last], by file and block. want: NULL: all are wanted. heads: of
 * st_open_heads. Pure. The caller owns it. */
json_t *share_blocks(const struct st *heads, bool (*want)(void *arg, const char *name), void *arg);
/* The same of wanted tensors that are here, too. */
json_t *share_touched(const struct st *heads, bool (*want)(void *arg, const char *name), void *arg);
/* {file: bytes}: of all files that have a tensor. The caller owns it. */
json_t *share_sizes(const struct st *heads);

/* What is missing of a model for that, of the files as they are now: an empty list: nothing is, as
 * of all models without a name. The caller owns it. */
int share_lacks(json_t **ret, const char *model, bool (*want)(void *arg, const char *name), void *arg,
                struct err *err);

#endif
