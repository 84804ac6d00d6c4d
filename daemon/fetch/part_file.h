/* SPDX-License-Identifier: MIT
 *
 * A file on its way: NAME.part in a folder, which becomes NAME when it is whole and its hash is the
 * one that was announced. What is on the disk is gone on from. After a crash of the process that is
 * all of it; after a power cut what was synced, which NAME.synced says: a thread syncs block after
 * block while more comes (syncer.h). Where other nodes have brought it so far, NAME.have says what
 * is there: what leads without a gap is gone on from. For one thread. */
#ifndef DAEMON_PART_FILE_H
#define DAEMON_PART_FILE_H

#include <stdint.h>

#include "daemon/fetch/digest.h"
#include "daemon/fetch/hub_listing.h"
#include "engine/err.h"

struct part_file;

/* folder: an open directory, borrowed as `file`, whose size and hash are known. Reads what is
 * there, for its hash. ret_at: how many bytes that are. blocks: gets the hashes of its blocks,
 * until p is freed; NULL: nobody wants them. −ENOSPC and others, with a sentence. */
int part_file_open(struct part_file **ret, int folder, const struct hub_file *file, uint8_t (*blocks)[DIGEST],
                   uint64_t *ret_at, struct err *err);
/* The next bytes. −E2BIG: more than the file has; −ENOSPC … ; each with a sentence. */
int part_file_write(struct part_file *p, const void *bytes, size_t n, struct err *err);
uint64_t part_file_at(const struct part_file *p);
/* Begins again with the first byte: the hub does not send the rest alone. */
int part_file_restart(struct part_file *p, struct err *err);
/* All bytes are here: gives the file its name. −EBADMSG and a sentence: these are not the bytes
 * that were announced, and nothing of them is left. Frees p either way. */
int part_file_finish(struct part_file *p, struct err *err);
/* Keeps what there is, for another time. NULL is fine. */
void part_file_close(struct part_file *p);

/* Reads a whole file, and compares its hash: 0, −EBADMSG it is another one, −errno. A kind that is
 * not known becomes SHA-256, with the hash that the file has. blocks: as above. */
int part_file_check(int folder, struct hub_file *file, uint8_t (*blocks)[DIGEST], struct err *err);

/* How many bytes of NAME.part an earlier pull has left that can be relied on. */
uint64_t part_file_left(int folder, const char *name);
void part_file_name(char ret[HUB_FILE_NAME + 8], const char *name); /* NAME.part */
void part_file_forget(int folder, const char *name);                /* removes NAME.synced */

#endif
