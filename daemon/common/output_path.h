/* SPDX-License-Identifier: MIT
 *
 * Files and folders that a job names and the daemon's user writes. A client chooses the name, so it
 * must not lead to what is the daemon's own: its keys, its token, its history. Of the state
 * directory only results/ and models/ are for jobs. No symbolic link is followed in the last part
 * of a path; one further up is, and the place it leads to is looked at. Any thread. */
#ifndef DAEMON_OUTPUT_PATH_H
#define DAEMON_OUTPUT_PATH_H

#include <stdbool.h>
#include <stdio.h>

#include "engine/err.h"

/* May a job write there? The path need not exist yet. `option` names it in the sentence. state_dir
 * NULL: no daemon is involved, and only links are refused. */
int output_path_check(const char *state_dir, const char *option, const char *path, struct err *err);
/* Opens a file for a job, and makes it if need be: what is opened is looked at once more before a
 * byte of it changes. Without `append` it is emptied. The caller closes it. */
int output_path_open(const char *state_dir, const char *option, const char *path, bool append, FILE **ret,
                     struct err *err);

#endif
