/* SPDX-License-Identifier: MIT
 *
 * A model from a hub into the folder of models: which commit a revision is, which files that needs,
 * whether there is room, the files, and its name once it is whole. What is whole is never touched.
 * A folder of a user's gets a name in the same way, without a hub. One thread. */
#ifndef DAEMON_PULL_H
#define DAEMON_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/common/model/model_name.h"
#include "daemon/fetch/hub_http.h"
#include "engine/err.h"

struct hub_pull_setup { /* all borrowed */
    struct hub *hub;
    const char *endpoint;
    int dir;           /* the folder of models (models_dir.h) */
    const char *cache; /* Hugging Face's; NULL: none */
    bool is_offline;   /* no hub is asked */
    void *owner;
    /* The model, by its exact name. */
    void (*resolved)(void *owner, const char *model);
    /* So many bytes are missing on the disk: 0 when there is room, else an error and a sentence. */
    int (*room)(void *owner, uint64_t bytes, struct err *err);
    void (*progress)(void *owner, uint64_t done, uint64_t total, const char *file);
    /* Of hub_pull_list: which model it is (manifest.h). */
    void (*listed)(void *owner, const char *content);
};

/* The commit of name's revision, in ret. −ENOENT, −EACCES … and a sentence. */
int hub_pull_resolve(const struct hub_pull_setup *setup, const struct model_name *name,
                     char ret[MODEL_COMMIT + 1], struct err *err);
/* 0: the model is there, whole. −ECANCELED: nobody wants it any more; an error and a sentence. What
 * has come stays, for another time. */
int hub_pull(const struct hub_pull_setup *setup, const struct model_name *name, struct err *err);

/* The same for who brings it in parts: which files it has. The list of its blocks is where that of
 * a model lies, with no hash of a block. A model that is here, or in the cache, is left or linked
 * as above, and nothing is said to be listed. */
int hub_pull_list(const struct hub_pull_setup *setup, const struct model_name *name, struct err *err);

/* The files of `folder` get the name where they lie. Its revision becomes the first MODEL_COMMIT
 * digits of their content (manifest.h), and what an earlier revision had there loses its name. Who
 * asks for "main" from then on gets that, and no hub is asked. −EACCES, −ENOENT … and a
 * sentence. */
int hub_add(const struct hub_pull_setup *setup, const struct model_name *name, const char *folder,
            struct err *err);

#endif
