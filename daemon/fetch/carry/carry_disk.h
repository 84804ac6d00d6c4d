/* SPDX-License-Identifier: MIT
 *
 * A model on this node's disk that is taken block by block, in any order, and read from at the
 * same time. Only blocks that are wanted are taken: its outline, which is what a plan is made of
 * (all small files, and the heads of its weights, which are blocks of their own), and what is
 * asked for beside that. Blocks that are there survive the end of the process, and a power cut but
 * for what came while the disk synced (syncer.h); of that, what the disk got is compared with the
 * list. The model gets its name when its outline is there; what else comes, comes in place. A file
 * counts as whole when all its blocks are there and its whole hash is right. For one thread; waits
 * for the disk alone. */
#ifndef DAEMON_CARRY_DISK_H
#define DAEMON_CARRY_DISK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/fetch/manifest.h"
#include "engine/err.h"

struct carry_disk;

/* dir: the folder of models, borrowed. list: the hash of the model's list, or "" where nobody knows
 * it. −EBUSY: another process brings this model; −EEXIST: it is here, and has another content;
 * −errno; each with a sentence. */
int carry_disk_open(struct carry_disk **ret, int dir, const char *model, const char *content,
                    const char *list, struct err *err);
void carry_disk_close(struct carry_disk *d); /* NULL is fine */

/* The model has its name: its outline is there. */
bool carry_disk_is_named(const struct carry_disk *d);
/* All of it is there. */
bool carry_disk_is_whole(const struct carry_disk *d);
/* NULL until it is known: of a model that has its name it is from the beginning. */
const struct manifest *carry_disk_manifest(const struct carry_disk *d);
/* The same as bytes. */
const uint8_t *carry_disk_list(const struct carry_disk *d, size_t *ret_n);
/* Of a model whose manifest is not known. Takes both over. */
void carry_disk_plan(struct carry_disk *d, struct manifest *manifest, uint8_t *list, size_t n);

/* From where its bytes come, as users read it; borrowed. */
void carry_disk_set_source(struct carry_disk *d, const char *source);

/* Wants the outline, and these blocks: a list of [file, first block, the one after the last], in
 * the file; NULL: none. With a true behind it another node asks the hub for these (carry.h). It may
 * come before the manifest. −EBADMSG and a sentence: the model has no such blocks. */
int carry_disk_want(struct carry_disk *d, const json_t *blocks, struct err *err);
/* The same of all its blocks. */
int carry_disk_want_all(struct carry_disk *d, struct err *err);

/* A little of what there is to do: looks at what is there already, hashes files that have come, and
 * gives names. 1: there is more to do now; 0: not before other blocks have come. −errno, −EBADMSG
 * and a sentence. */
int carry_disk_work(struct carry_disk *d, struct err *err);
/* What is there already is known: blocks may be taken. */
bool carry_disk_is_checked(const struct carry_disk *d);
/* Bytes that are wanted, and those of them that are there and verified. */
uint64_t carry_disk_total(const struct carry_disk *d);
uint64_t carry_disk_done(const struct carry_disk *d);
/* All that is wanted is there, and the model has its name. */
bool carry_disk_is_complete(const struct carry_disk *d);

/* The next block to be asked of one who has `has` (a bit for each block), in the order in which
 * they should come; false: there is none. It is not given again until put back. */
bool carry_disk_next(struct carry_disk *d, const uint8_t *has, uint32_t *ret);
/* There is one, of those that nobody was asked for. */
bool carry_disk_lacks(const struct carry_disk *d, const uint8_t *has);
/* The same for the hub: the next of those that no node has, of `n` whose bits are in `has`, and how
 * many of them follow each other in the file. too_shared: also those that another node asks for. */
struct carry_others {
    const uint8_t *const *has;
    size_t n;
    bool too_shared;
};
uint32_t carry_disk_next_run(struct carry_disk *d, const struct carry_others *others, uint32_t *ret);
bool carry_disk_lacks_run(const struct carry_disk *d, const struct carry_others *others);
void carry_disk_put_back(struct carry_disk *d, uint32_t block);
/* The first bytes of a head that comes: they say how long it is. NULL: that is not known. */
void carry_disk_size_head(struct carry_disk *d, uint32_t head, const uint8_t *length);
int carry_disk_write(struct carry_disk *d, uint32_t block, uint32_t at, const void *bytes, size_t n,
                     struct err *err);
/* All bytes of the block are written, and this is their hash: it is that of the list, or is noted
 * there if that knows none. Where a head and a block hold the same bytes, and the other one of them
 * has written wrong ones meanwhile, the block is put back. */
int carry_disk_keep(struct carry_disk *d, uint32_t block, const uint8_t hash[DIGEST], struct err *err);

bool carry_disk_has(const struct carry_disk *d, uint32_t block);
/* It is here, or is about to come as a part of the outline, which nobody takes from a node that
 * waits for him. */
bool carry_disk_promises(const struct carry_disk *d, uint32_t block);
/* Another number once there is more that it promises, or so much more that others should know. */
uint32_t carry_disk_promised(const struct carry_disk *d);
int carry_disk_read(struct carry_disk *d, uint32_t block, uint32_t at, void *to, size_t n, struct err *err);

#endif
