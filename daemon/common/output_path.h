/* SPDX-License-Identifier: MIT
 *
 * Files and folders that a job names and the daemon's user writes or reads. A client chooses the
 * name, so it must not lead to what is the daemon's own: its keys, its token, its history. Of the
 * state directory only results/ and models/ are for jobs. Of a path that is written, no symbolic
 * link is followed in the last part; one further up is, and the place it leads to is looked at. Any
 * thread. */
#ifndef DAEMON_OUTPUT_PATH_H
#define DAEMON_OUTPUT_PATH_H

#include <stdbool.h>
#include <stdio.h>

#include "engine/err.h"

/* Is it nobody's but the daemon's? Both are without symbolic links; state, the state directory,
 * NULL or "": nothing is. */
bool output_path_is_own(const char *state, const char *real);
/* May a job read there? −EPERM and a sentence where it leads to the daemon's own. What cannot be
 * found is no matter of this. */
int output_path_check_input(const char *state_dir, const char *option, const char *path, struct err *err);
/* May a job write there? The path need not exist yet. `option` names it in the sentence. state_dir
 * NULL: no daemon is involved, and only links are refused. */
int output_path_check(const char *state_dir, const char *option, const char *path, struct err *err);
/* Opens a file for a job, and makes it if need be, in the folder that was looked at, whatever
 * becomes of the path meanwhile. Without `append` it is emptied; with it, it can be read too. The
 * caller closes it. */
int output_path_open(const char *state_dir, const char *option, const char *path, bool append, FILE **ret,
                     struct err *err);

#endif
