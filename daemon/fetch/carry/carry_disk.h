/* SPDX-License-Identifier: MIT
 *
 * A model on this node's disk that is taken block by block, in any order, and read from at the same
 * time. Blocks that are there survive the end of the process, and a power cut but for the last 64
 * MiB of a file. A file gets its name when all its blocks are there and its whole hash is right;
 * the model gets its name when all files have theirs. One thread; waits for the disk alone. */
#ifndef DAEMON_CARRY_DISK_H
#define DAEMON_CARRY_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/fetch/manifest.h"
#include "engine/err.h"

struct carry_disk;

/* dir: the folder of models, borrowed. −EBUSY: another process brings this model; −EEXIST: it is
 * whole, and has another content; −errno; each with a sentence. */
int carry_disk_open(struct carry_disk **ret, int dir, const char *model, const char *content,
                    struct err *err);
void carry_disk_close(struct carry_disk *d); /* NULL is fine */

/* The model has its name. */
bool carry_disk_is_whole(const struct carry_disk *d);
/* NULL until it is known: of a whole model it is from the beginning. */
const struct manifest *carry_disk_manifest(const struct carry_disk *d);
/* The same as bytes. */
const uint8_t *carry_disk_list(const struct carry_disk *d, size_t *ret_n);
/* Of a model that is not whole. Takes both over. */
void carry_disk_plan(struct carry_disk *d, struct manifest *manifest, uint8_t *list, size_t n);

/* A little of what there is to do: looks at what is there already, hashes files that have come, and
 * names them. 1: there is more to do now; 0: not before other blocks have come. −errno, −EBADMSG
 * and a sentence. */
int carry_disk_work(struct carry_disk *d, struct err *err);
/* What is there already is known: blocks may be taken. */
bool carry_disk_is_checked(const struct carry_disk *d);
uint64_t carry_disk_done(const struct carry_disk *d); /* bytes that are there and verified */
/* All files have their names. */
bool carry_disk_is_complete(const struct carry_disk *d);
/* Gives the model its name. 0, or an error and a sentence. */
int carry_disk_settle(struct carry_disk *d, struct err *err);

/* The next block to be asked for, in the order in which they should come; false: there is none. It
 * is not given again until put back. */
bool carry_disk_next(struct carry_disk *d, uint32_t *ret);
void carry_disk_put_back(struct carry_disk *d, uint32_t block);
int carry_disk_write(struct carry_disk *d, uint32_t block, uint32_t at, const void *bytes, size_t n,
                     struct err *err);
/* All bytes of the block are written, and its hash is right. */
int carry_disk_keep(struct carry_disk *d, uint32_t block, struct err *err);

bool carry_disk_has(const struct carry_disk *d, uint32_t block);
int carry_disk_read(struct carry_disk *d, uint32_t block, uint32_t at, void *to, size_t n, struct err *err);

#endif
