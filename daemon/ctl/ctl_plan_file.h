/* SPDX-License-Identifier: MIT
 *
 * Plans as files: what of a plan a user may want to keep, change, and have run. Called by ringctl
 * plan and train; one thread. */
#ifndef DAEMON_CTL_PLAN_FILE_H
#define DAEMON_CTL_PLAN_FILE_H

#include <jansson.h>

/* Both return CTL_OK, or another status after having said why. plan: as the API has it. */
int plan_file_write(const char *path, const json_t *plan);
/* Puts into the spec of a job what the file says. */
int plan_file_read(const char *path, json_t *spec);

#endif
