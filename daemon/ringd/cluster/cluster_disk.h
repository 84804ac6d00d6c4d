/* SPDX-License-Identifier: MIT
 *
 * The disk below STATE/cluster and STATE/tokens. A thread writes them, so that a disk that is slow
 * or hangs holds up no loop. Of each file at most one content waits and one is being written: what
 * is newer takes the place of what waits. Tokens are written first: a token is spent on the disk
 * before the node that it let in is a member there. Loop thread. */
#ifndef DAEMON_CLUSTER_DISK_H
#define DAEMON_CLUSTER_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct cluster_disk;
struct event_base;
struct mailbox;

enum trust_file { TRUST_TOKENS, TRUST_CLUSTER, TRUST_FILES };
enum {
    TRUST_FILE_MAX = 64 << 10, /* bytes of a file */
    CLUSTER_DISK_MS = 8000,    /* how long a change waits for the disk before its maker hears so */
    CLUSTER_WAITING_MAX = 64,  /* who waits at a time */
};

/* `written` is called from the loop when a file was written, or could not be. */
struct cluster_disk *cluster_disk_new(const char *state_dir, void (*written)(void *owner), void *owner);
void cluster_disk_free(struct cluster_disk *d); /* stops it first */

/* Until the thread is started, and after it was stopped, files are written before put returns: for
 * programs without a loop. wait_ms 0: CLUSTER_DISK_MS. −EAGAIN: no thread. */
int cluster_disk_start(struct cluster_disk *d, struct event_base *base, struct mailbox *mailbox,
                       unsigned wait_ms);
/* Writes what waits; then all who still wait are called with an error. */
void cluster_disk_stop(struct cluster_disk *d);

const char *cluster_disk_path(const struct cluster_disk *d, enum trust_file file);
/* Replaces the file by n bytes, which are copied. Without the thread: −errno and a sentence. */
int cluster_disk_put(struct cluster_disk *d, enum trust_file file, const uint8_t *bytes, size_t n,
                     struct err *err);
/* All that was put of this file is on the disk. */
bool cluster_disk_has(struct cluster_disk *d, enum trust_file file);
/* The last of it could not be written, and nothing newer waits: its owner may put it again. */
bool cluster_disk_lacks(struct cluster_disk *d, enum trust_file file);
/* Calls once, when all that was put until now is on the disk (error NULL), or is not: it could not
 * be written, or wait_ms are over. Calls from the loop; at once, if nothing is to be written. */
void cluster_disk_when(struct cluster_disk *d, void (*fn)(void *arg, const char *error), void *arg);
void cluster_disk_forget(struct cluster_disk *d, const void *arg); /* it is not called any more */

#endif
