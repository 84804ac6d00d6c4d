/* SPDX-License-Identifier: MIT
 *
 * Models and adapters that this node has, found by the names that users give. One thread. */
#ifndef DAEMON_CTL_MODEL_FIND_H
#define DAEMON_CTL_MODEL_FIND_H

#include <jansson.h>

#include "daemon/common/model/model_name.h"

struct ctl;

/* Of an answer of GET /v1/store: ORG/NAME stands for the commit that the node means by it, ORG/NAME
 * and ORG/NAME@bcd for the one that is here, if there is one. NULL: it has been said why. Borrowed
 * from the answer. */
const json_t *models_find(const json_t *answer, const char *given);

/* Asks the daemon for one that is whole: its exact name, and its folder, which the caller frees;
 * NULL: that is no matter. CTL_OK, or what was said. */
int model_find_whole(const struct ctl *ctl, const char *given, char ret[MODEL_NAME], char **ret_folder);
/* The folder of what an option names: a path as it is, or a name that is looked up here. The caller
 * frees. CTL_OK, or what was said. */
int model_find_folder(const struct ctl *ctl, const char *given, char **ret);

#endif
