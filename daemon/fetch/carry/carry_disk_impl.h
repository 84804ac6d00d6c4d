/* SPDX-License-Identifier: MIT
 *
 * What carry_disk.c (folder, files, names), carry_check.c (what is there already) and carry_want.c
 * (which blocks should come) share. */
#ifndef DAEMON_CARRY_DISK_IMPL_H
#define DAEMON_CARRY_DISK_IMPL_H

#include "daemon/common/model/model_name.h"
#include "daemon/fetch/carry/carry_disk.h"

struct have_map;
struct syncer;

enum block_state { BLOCK_MISSING, BLOCK_ASKED, BLOCK_HERE };

struct carry_block {
    uint8_t state; /* enum block_state */
    bool is_wanted, is_outline;
    bool is_shared; /* a node of a lower rank asks the hub for it */
};

/* Blocks of a file, or all heads: [first, end). */
struct carry_span {
    uint32_t first, end;
};

struct carry_file {
    int fd;                /* owned; −1: not opened yet */
    struct have_map *have; /* owned; NULL: the file is whole, or is not looked at yet */
    struct digest *hash;   /* owned: of its first `hashed` blocks; NULL: of none */
    uint32_t hashed;
    uint32_t checked;  /* blocks of an earlier pull that were looked at */
    uint64_t left;     /* bytes that such a pull has left */
    uint32_t unwanted; /* blocks that are neither here nor wanted */
    bool is_whole;     /* and named */
};

struct carry_disk {
    int dir, folder; /* folder: owned */
    char model[MODEL_NAME], content[DIGEST_HEX];
    char list_hash[DIGEST_HEX]; /* "": hashes of blocks are those that came */
    const char *source;         /* borrowed */
    int note; /* owned: the list on the disk; −1: all hashes are known, or it has no name yet */
    bool is_named;
    struct manifest *manifest; /* owned; NULL until it is known */
    uint8_t *list;             /* owned: the same as bytes */
    size_t list_n;
    struct carry_file *files; /* owned: as in the manifest */
    size_t *order;            /* owned: files as they should come */
    struct carry_span *spans; /* owned: blocks as they should come */
    size_t n_spans;
    struct carry_block *blocks; /* owned */
    uint8_t *buf;               /* owned: a block */
    struct syncer *syncer;      /* owned; NULL before the first block */
    size_t check, whole;        /* files that were looked at; that are whole */
    size_t next_span;           /* no block before these two is missing */
    uint32_t next_block;        /* of that span */
    bool wants;                 /* the outline at least */
    bool wants_all;             /* all of its blocks are wanted, too */
    json_t *asked;         /* owned: blocks that are wanted beside it, until the manifest is known; or NULL */
    uint64_t done, total;  /* bytes that are wanted and here, that are wanted */
    uint32_t outline_left; /* blocks of the outline that are not here */
    uint32_t promised, kept; /* kept: blocks that have come */
};

/* carry_disk.c. A file is there, and whole: it has no map. */
bool carry_disk_is_here(const struct carry_disk *d, const struct hub_file *file);
/* What it is called on the disk now. */
void carry_disk_name_of(const struct carry_disk *d, size_t i, char ret[HUB_FILE_NAME + 8]);
int carry_disk_open_to_read(struct carry_disk *d, size_t i);
/* Of a block whose hash the list does not know. */
int carry_disk_note_hash(struct carry_disk *d, uint32_t block, const uint8_t hash[DIGEST]);
/* The sentence for that error. Returns r. */
int carry_disk_say_lost(const struct hub_file *f, int r, const char *what, struct err *err);

/* carry_check.c. A little of what there is to look at: 1: there may be more; −errno and a
 * sentence. */
int carry_check_file(struct carry_disk *d, struct err *err);

/* carry_want.c. The manifest is known: the order of files and blocks. */
void carry_want_plan(struct carry_disk *d);
/* All that is here is known: what was asked for before is wanted from now on. −EBADMSG and a
 * sentence. */
int carry_want_begin(struct carry_disk *d, struct err *err);
/* A block is here. */
void carry_want_here(struct carry_disk *d, uint32_t block);

#endif
