/* SPDX-License-Identifier: MIT
 *
 * The name of a model on a hub: ORG/NAME, or ORG/NAME@REVISION. With a whole commit as its revision
 * a name is exact: it means the same files everywhere, and is the path of their folder below a
 * node's folder of models. Names come from users, from other nodes and from the hub, so no name can
 * lead out of that folder. Pure: any thread. */
#ifndef DAEMON_MODEL_NAME_H
#define DAEMON_MODEL_NAME_H

#include <stdbool.h>

#include "engine/err.h"

enum {
    MODEL_PART = 96,                                 /* bytes of ORG and of NAME, at most */
    MODEL_REVISION = 128,                            /* of a revision */
    MODEL_COMMIT = 40,                               /* hexadecimal digits of a whole one */
    MODEL_CONTENT = 64,                              /* of the hash that says which files a model is */
    MODEL_NAME = 2 * MODEL_PART + MODEL_REVISION + 3 /* of all of it, with its end */
};

struct model_name {
    char org[MODEL_PART + 1], name[MODEL_PART + 1];
    char revision[MODEL_REVISION + 1]; /* "main" where none was given */
};

/* Could this be meant as a name rather than as a path? ORG/NAME has one slash, and does not begin
 * with one, a dot or a tilde. */
bool model_name_is(const char *text);
/* −EINVAL and a sentence that says what a name looks like. */
int model_name_read(struct model_name *ret, const char *text, struct err *err);
/* ORG/NAME@REVISION. */
void model_name_write(char ret[MODEL_NAME], const struct model_name *name);
/* A whole commit: no hub has to be asked what it means. */
bool model_commit_is(const char *revision);
bool model_name_is_exact(const char *text);
/* MODEL_CONTENT hexadecimal digits in lower case; NULL has none. */
bool model_content_is(const char *text);

#endif
