/* SPDX-License-Identifier: MIT
 *
 * The file of --log: one line of JSON for each step, evaluation and sample. A run that goes on
 * after an interruption does some steps again, and finds their lines in the file: they are not
 * written twice. So the file has each line once, whatever was lost with the daemon that had
 * started the run. Owned by stage_train.c; main thread. */
#ifndef DAEMON_STAGE_LOG_H
#define DAEMON_STAGE_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/common/job_spec.h"
#include "engine/err.h"

struct stage_log {
    FILE *file;       /* owned; NULL: nothing is asked for */
    const char *path; /* borrowed */
    uint64_t said;    /* lines up to this step are in it, */
    json_t *there;    /* owned: and those of {kind: {adapter: step}}; or NULL */
};

/* A new run empties the file, one that is resumed writes behind what there is. Of one that was
 * interrupted (spec->said), the bytes up to spec->log_from hold its lines up to spec->log_step;
 * what is behind the last whole line is cut off. */
int stage_log_open(struct stage_log *ret, const struct job_spec *spec, struct err *err);
void stage_log_close(struct stage_log *log);

/* kind: "step", "valid" or "sample"; adapter: "" where there is one. Is there no file, or does it
 * hold that line? */
bool stage_log_has(const struct stage_log *log, const char *kind, const char *adapter, uint64_t step);
/* Unless it is there. */
int stage_log_write(struct stage_log *log, const char *kind, const char *adapter, uint64_t step,
                    const json_t *line, struct err *err);
uint64_t stage_log_bytes(const struct stage_log *log); /* of the file; 0 where there is none */
/* All lines are on the disk. ret: the bytes of the file; 0 where there is none. Any thread, while
 * another may write. */
int stage_log_sync(struct stage_log *log, uint64_t *ret, struct err *err);

#endif
