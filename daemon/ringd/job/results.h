/* SPDX-License-Identifier: MIT
 *
 * Results of training that lie with the daemon: where, what is in them, and their files. Two kinds
 * of folder below STATE/results hold one: that of a job whose --adapter-out the daemon cannot
 * write, which is the same for the same --adapter-out so that --resume finds it, and that of a job
 * whose result found no room where it was asked for. Called by coord.c, intake.c and api_files.c.
 * Any thread; what looks at a disk may wait for it. */
#ifndef DAEMON_RESULTS_H
#define DAEMON_RESULTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/common/job_spec.h"
#include "engine/err.h"

/* The folder that stands for this --adapter-out; the caller frees. */
char *results_folder(const char *state_dir, const char *adapter_out);
/* The folder of a job that found no room; the caller frees. */
char *results_rescue(const char *state_dir, uint64_t job);

/* The spec as the stage gets it: with the folders that it writes to, and the one that is not a
 * job's; the stage makes that folder, for in its cell it could not. No disk is looked at. The
 * caller owns it. */
json_t *results_stage_spec(const char *state_dir, uint64_t job, const struct job_spec *asked);
/* Makes STATE/results, should it not be there. */
void results_make(const char *state_dir);
/* Where the result of that job lies, if it lies with the daemon: the caller frees. NULL: it does
 * not. */
char *results_of(const char *state_dir, uint64_t job, const struct job_spec *asked);

/* [{"name", "bytes"}…] by name: regular files of the folder and of the folders in it (one for each
 * adapter of a sweep), but for unfinished ones. The caller owns it; NULL with a sentence if the
 * folder cannot be read. */
json_t *results_list(const char *folder, struct err *err);
/* May results_list name a file like this? */
bool results_is_name(const char *name);
/* A file that results_list has named, open for reading, and its bytes. −ENOENT for any other name,
 * and −errno. */
int results_open(const char *folder, const char *name, int *ret_fd, uint64_t *ret_bytes);

#endif
