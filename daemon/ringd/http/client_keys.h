/* SPDX-License-Identifier: MIT
 *
 * Keys of clients: each opens what is served, and nothing else of a node, so often a minute. The
 * file has their hashes; a key itself is known to its client alone. All nodes of a cluster have the
 * same: they tell each other theirs, and of a name the newer counts. Not locked: http_keys.c is. */
#ifndef DAEMON_CLIENT_KEYS_H
#define DAEMON_CLIENT_KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"
#include "net/clock.h"

enum { CLIENT_NAME_ROOM = 64, CLIENT_KEY_ROOM = 80, CLIENT_HASH = 32, CLIENTS_MAX = 256, RATE_MOST = 60000 };

struct client_key {
    char name[CLIENT_NAME_ROOM];
    uint8_t hash[CLIENT_HASH]; /* SHA-256 of the key */
    unsigned rate;             /* requests a minute of one node; 0: any number */
    uint64_t changed;          /* ms since 1970: the newer of two of a name counts */
    bool is_gone;              /* it was removed; kept for nodes that have not heard of it */
    double left;               /* of them, now */
    struct instant at;         /* when that was */
};

struct client_keys {
    char *path; /* owned: the file; NULL: they last as long as the daemon */
    struct client_key *all;
    size_t n;
};

/* Takes over path, and reads the file if there is one. A sentence: it is damaged, or others can
 * read it. */
int client_keys_open(struct client_keys *ret, char *path, struct err *err);
void client_keys_done(struct client_keys *keys);

/* A copy to change: the one in use is replaced by it once the file is written. */
struct client_keys client_keys_copy(const struct client_keys *keys);
/* Both write the file, and wait for the disk. −EEXIST, −EINVAL (a name of other signs), −ENOSPC,
 * or that of the disk, with a sentence; the copy is then worth nothing. */
int client_keys_add(struct client_keys *keys, const char *name, unsigned rate, char ret_key[CLIENT_KEY_ROOM],
                    struct err *err);
/* −ENOENT: there is none of this name. */
int client_keys_remove(struct client_keys *keys, const char *name, struct err *err);
/* What another node has, as client_keys_tell gives it: the newer ones are ours too. *ret_news: the
 * file was written. −EBADMSG: it is no such list. */
int client_keys_merge(struct client_keys *keys, const json_t *list, bool *ret_news, struct err *err);
/* [{"name", "changed", "hash" and "rate" or "gone"}, …]: a new reference. */
json_t *client_keys_tell(const struct client_keys *keys);
/* [{"name", "rate"}, …]: a new reference. */
json_t *client_keys_show(const struct client_keys *keys);

/* Whose key it is; NULL: nobody's. */
const struct client_key *client_keys_find(const struct client_keys *keys, const char *given);
/* A request of this client now: 0, or after how many seconds it may come. 0 also if the key is
 * gone. */
unsigned client_keys_take(struct client_keys *keys, const char *name, struct instant now);

#endif
