/* SPDX-License-Identifier: MIT
 *
 * What a hub answers about a model at a revision: which commit that is, and its files. The answer
 * is hostile input: names that lead out of a folder, sizes that no disk has, files without end.
 * Pure: any thread. */
#ifndef DAEMON_HUB_LISTING_H
#define DAEMON_HUB_LISTING_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/model/model_name.h"
#include "engine/err.h"

enum {
    HUB_ANSWER_MAX = 16 << 20, /* bytes of an answer that is not a file of the model's */
    HUB_FILE_NAME = 200,       /* bytes of a file's name */
    HUB_FILES_MAX = 4096       /* files that are wanted of one model */
};
#define HUB_BYTES_MAX (UINT64_C(1) << 44) /* 16 TiB, of one model */

enum hub_hash {
    HUB_HASH_UNKNOWN,
    HUB_HASH_SHA256,
    HUB_HASH_GIT /* sha1 of "blob SIZE", a NUL and the bytes */
};

struct hub_file {
    char name[HUB_FILE_NAME + 1];
    bool has_size;
    uint64_t size;
    enum hub_hash kind;
    char hash[65]; /* hexadecimal digits */
};

struct hub_listing {
    char commit[MODEL_COMMIT + 1];
    struct hub_file *files; /* owned: those that are wanted */
    size_t n;
    bool has_pickles; /* weights that are programs, which nobody here runs */
};

/* −EBADMSG and a sentence: this is no such answer, or none that is harmless. */
int hub_listing_read(struct hub_listing *ret, const char *text, size_t size, struct err *err);
void hub_listing_done(struct hub_listing *listing);
const struct hub_file *hub_listing_find(const struct hub_listing *listing, const char *name);

/* What of the weights is needed. index: model.safetensors.index.json, as it was downloaded; NULL:
 * there is none. Others leave the listing. −EBADMSG and a sentence: the index is unreadable, or
 * names what is not there; −ENOENT: there are no weights that can be read. */
int hub_listing_choose(struct hub_listing *listing, const char *index, size_t size, struct err *err);

/* Is it the name of a file that a model here has? Such a name leads nowhere out of its folder, and
 * deceives nobody who reads it. */
bool hub_file_is_wanted(const char *name);

/* As hub headers have them, perhaps in quotes: the hash of a file. False: it is none that is
 * known. */
bool hub_hash_read(struct hub_file *to, const char *etag);

#endif
