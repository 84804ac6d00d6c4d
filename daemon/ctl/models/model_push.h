/* SPDX-License-Identifier: MIT
 *
 * ringctl models push: copies a model or an adapter of this node to others. One thread. */
#ifndef DAEMON_CTL_MODEL_PUSH_H
#define DAEMON_CTL_MODEL_PUSH_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/common/model/model_name.h"

struct ctl;

/* A directory, or meant as one, and no name. */
bool model_push_is_folder(const char *given);
/* The name that a directory is pushed under: --name, or local/ and its own. CTL_OK, or what was
 * said. */
int model_push_name(const struct ctl *ctl, const char *folder, char ret[MODEL_NAME]);
/* Pushes a model that has a name here to the nodes of the command's other arguments, and says what
 * became of it on each. CTL_FAILED: one of them has failed. */
int model_push(const struct ctl *ctl, const char *model);

#endif
