/* SPDX-License-Identifier: MIT
 *
 * Hugging Face's cache on this machine, which is read in place: models--ORG--NAME has refs, blobs,
 * and snapshots, one for each commit. Nothing is written there. One thread. */
#ifndef DAEMON_HUB_CACHE_H
#define DAEMON_HUB_CACHE_H

#include <stdbool.h>

#include "daemon/common/model/model_name.h"
#include "daemon/fetch/hub_listing.h"

/* Its folder, by HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME or HOME; NULL: there is none. The caller
 * frees. */
char *hub_cache_folder(void);
/* The commit of the revision when it was last asked for. */
bool hub_cache_ref(const char *folder, const struct model_name *name, char ret[MODEL_COMMIT + 1]);
/* The snapshot of that commit, if all that a model needs is in it; NULL: it is not. The caller
 * frees. */
char *hub_cache_snapshot(const char *folder, const struct model_name *name, const char *commit);
/* The files of a snapshot, an open directory, that a model may need. A file's hash is the name of
 * the blob that it links to; HUB_HASH_UNKNOWN: it is no such link. −EBADMSG … and a sentence. */
int hub_cache_list(int snapshot, struct hub_listing *ret, struct err *err);

#endif
