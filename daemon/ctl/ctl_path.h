/* SPDX-License-Identifier: MIT
 *
 * Paths as the daemon gets them: it has another working directory than ringctl. */
#ifndef DAEMON_CTL_PATH_H
#define DAEMON_CTL_PATH_H

#include <stdbool.h>

/* Is a model meant by its name, as ORG/NAME? A folder that is there comes first. */
bool ctl_model_is_name(const char *text);
/* The resolved path if the file exists, else its place under the working directory. The caller
 * frees. */
char *ctl_absolute_path(const char *path);

#endif
