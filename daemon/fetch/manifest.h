/* SPDX-License-Identifier: MIT
 *
 * What a model consists of, byte for byte: its files, and the SHA-256 of each block. A block is
 * 4 MiB of a file; behind those of all files, the head of each safetensors file that is longer
 * is one more block: 8 bytes, which say how long the JSON behind them is, and that. A plan is
 * made of heads alone. Their bytes are in blocks of 4 MiB as well. As bytes a manifest is a u32
 * length (little-endian), so many bytes of canonical JSON, and 32 bytes for each block: zeros
 * while the hash is not known. The SHA-256 of the JSON is the model's *content*: a hub's listing
 * says it before any weights come. The SHA-256 of all of it is its *list*, once each hash is
 * known: who knows that can take every block from anybody. Manifests come from other nodes, so
 * reading one is reading hostile input: no name leads out of the folder, and sizes and hashes
 * add up. One thread. */
#ifndef DAEMON_FETCH_MANIFEST_H
#define DAEMON_FETCH_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/fetch/digest.h"
#include "daemon/fetch/hub_listing.h"
#include "engine/err.h"

enum {
    BLOCK_BYTES = 4 << 20,
    HEAD_LENGTH = 8,                   /* of a head: its first bytes, which say how long it is; */
    HEAD_MOST = 8 + 100 * 1000 * 1000, /* at most so long, as the reader of such files has it */
    MANIFEST_BLOCKS_MAX = (int)(HUB_BYTES_MAX / BLOCK_BYTES) + 2 * HUB_FILES_MAX,
    MANIFEST_JSON_MAX = 2 << 20,
    MANIFEST_MAX = 4 + MANIFEST_JSON_MAX + MANIFEST_BLOCKS_MAX * DIGEST /* bytes: some 130 MiB */
};

struct manifest {
    struct hub_file *files; /* owned; by name */
    size_t n;
    uint32_t *first;           /* owned: n + 1 of them: the first block of each file */
    uint32_t *heads;           /* owned: the files that have a head: so follow the blocks of heads */
    uint32_t *head_bytes;      /* owned: how long each is; 0: not known */
    uint8_t (*hashes)[DIGEST]; /* owned: of each block */
    uint32_t blocks;           /* heads too */
    uint64_t bytes;            /* of all files */
};

/* Of files whose sizes and hashes are known, in any order; the hashes of blocks are left to the
 * caller. −EBADMSG and a sentence: no model has such files. */
int manifest_new(struct manifest **ret, const struct hub_file *files, size_t n, struct err *err);
/* −EBADMSG and a sentence. */
int manifest_decode(struct manifest **ret, const uint8_t *bytes, size_t n, struct err *err);
void manifest_free(struct manifest *m); /* NULL is fine */
/* The caller frees. */
uint8_t *manifest_encode(const struct manifest *m, size_t *ret_n);
/* Of a manifest as bytes: which model it is, and its own hash. */
void manifest_content(char ret[static DIGEST_HEX], const uint8_t *bytes, size_t n);
void manifest_list(char ret[static DIGEST_HEX], const uint8_t *bytes, size_t n);

/* The hash of a block, or of every block, is known. */
bool manifest_knows(const struct manifest *m, uint32_t block);
bool manifest_knows_all(const struct manifest *m);
void manifest_forget(struct manifest *m); /* all hashes of blocks */

/* The hashes of a file's blocks, without its head; NULL: there is no such file. */
uint8_t (*manifest_hashes_of(const struct manifest *m, const char *name))[DIGEST];
size_t manifest_file_of(const struct manifest *m, uint32_t block);
/* Where in its file a block begins, and how long it is; of a head HEAD_LENGTH until that is
 * known. */
uint64_t manifest_offset(const struct manifest *m, uint32_t block);
uint32_t manifest_size(const struct manifest *m, uint32_t block);

/* A file of weights of more than one block: nothing of it is in the outline but its head. */
bool manifest_is_weights(const struct hub_file *file);
bool manifest_is_head(const struct manifest *m, uint32_t block);
/* The head of that file; UINT32_MAX: it has none. */
uint32_t manifest_head_of(const struct manifest *m, size_t file);
/* How long a head is, from its first bytes. One that no such file can have has no more than
 * these. */
void manifest_set_head(struct manifest *m, uint32_t head, const uint8_t length[HEAD_LENGTH]);
void manifest_forget_head(struct manifest *m, uint32_t head);
/* Reads a head of its file: its length is known then, and ret is its hash. −errno. */
int manifest_read_head(struct manifest *m, uint32_t head, int fd, uint8_t ret[DIGEST]);
/* The hashes of all heads, of files that are whole in this folder. −errno and a sentence. */
int manifest_note_heads(struct manifest *m, int folder, struct err *err);

/* Beside the record of the model (models_dir.h). −errno and a sentence; −ENOENT: there is none. */
int manifest_store(int dir, const char *model, const uint8_t *bytes, size_t n, struct err *err);
int manifest_load(int dir, const char *model, uint8_t **ret, size_t *ret_n, struct err *err);
/* The same for who goes on to note hashes there: a descriptor, or −errno. list_n: its bytes. */
int manifest_open(int dir, const char *model);
int manifest_note(int fd, const struct manifest *m, size_t list_n, uint32_t block);

/* Hashes a file's blocks while its bytes come, in order. */
struct block_hasher {
    struct digest *digest; /* owned */
    uint8_t (*to)[DIGEST]; /* borrowed; NULL: nobody wants them */
    uint64_t at, size;
};
void block_hasher_begin(struct block_hasher *h, uint8_t (*to)[DIGEST], uint64_t size);
void block_hasher_add(struct block_hasher *h, const void *bytes, size_t n);
void block_hasher_done(struct block_hasher *h);

#endif
