/* SPDX-License-Identifier: MIT
 *
 * Data sets as a job's options describe them: opened for the head of a job and for ringctl data
 * check. */
#ifndef DAEMON_STAGE_DATA_H
#define DAEMON_STAGE_DATA_H

#include "daemon/common/job_spec.h"
#include "engine/file/config.h"
#include "engine/text/tokenizer.h"
#include "engine/train/data.h"

struct stage_data {
    struct data *data;        /* owned, or NULL */
    struct data_packs *packs; /* owned */
};

/* Opens PATH (its SPLIT, of a directory) as the options say. `tok` may be NULL: a set of ready
 * token ids needs none. */
int stage_data_open(struct stage_data *ret, const struct job_spec *spec, const struct config *config,
                    const struct tokenizer *tok, const char *path, const char *split, struct err *err);
void stage_data_done(struct stage_data *d);

/* One line of what was read, and what was dropped or cut of it. */
enum { STAGE_DATA_LINE = 700 };
void stage_data_describe(char ret[STAGE_DATA_LINE], const struct stage_data *d, const struct job_spec *spec);

/* ringd-stage as ringctl data check starts it: SPEC as JSON, "json" or "text", and whether in
 * colour. */
int stage_data_main(int argc, char **argv);

#endif
