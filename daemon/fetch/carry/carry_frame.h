/* SPDX-License-Identifier: MIT
 *
 * What is in a record between a node that takes a model and one that gives it: one frame, a u8 kind
 * and its fields, little-endian. docs/PROTOCOL.md says what follows what. Pure: any thread. */
#ifndef DAEMON_CARRY_FRAME_H
#define DAEMON_CARRY_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/fetch/manifest.h"

enum carry_kind {
    CARRY_OPEN = 1,  /* taker: content[32] of the model that is meant; the first frame */
    CARRY_ASK = 2,   /* taker: the manifest is wanted */
    CARRY_LIST = 3,  /* giver: u32 bytes of the whole manifest, u32 offset, bytes */
    CARRY_WANT = 4,  /* taker: u32 first block, u32 how many; of the hub, of one file */
    CARRY_PIECE = 5, /* giver: u32 block, u32 offset, bytes */
    CARRY_WAIT = 6,  /* either: nothing to say, but here */
    CARRY_GONE = 7,  /* either: a sentence; the last frame */
    CARRY_REKEY = 8, /* either: its next record has the ratcheted key */
    CARRY_WHICH = 9, /* taker: which blocks are there? */
    CARRY_HAVE = 10, /* giver: u32 first block, u32 blocks of the model, a bit for each from there on */
    CARRY_HASH = 11, /* giver: u32 block, u32 0, its SHA-256, as it came here: before its first PIECE */
    CARRY_BYE = 25   /* either: of a daemon, which gave the connection up before it was up there */
};

enum {
    CARRY_BYTES = 256 << 10, /* of a model, in one frame, at most */
    CARRY_HEAD = 9,          /* of a LIST, PIECE or HAVE, before its bytes */
    CARRY_SENTENCE = 300,
    CARRY_WANTS = 64 /* blocks that a taker may wait for at one giver, but for the hub */
};

/* What the other end of a lane is, as ringd says it: one that gives, takes, or asks the hub. */
enum { CARRY_RANK_SOURCE = 0, CARRY_RANK_TAKER = 1, CARRY_RANK_HUB = 2 };

struct carry_frame {
    enum carry_kind kind;
    uint32_t a, b;        /* the two numbers of LIST, WANT, PIECE, HAVE and HASH */
    const uint8_t *bytes; /* borrowed: of OPEN, LIST, PIECE, GONE, HAVE and HASH */
    size_t n;
};

/* False: nonsense. What is in a LIST or PIECE fits its numbers, as far as these say; blocks are for
 * those to judge who know the manifest. */
bool carry_frame_read(struct carry_frame *ret, const uint8_t *record, size_t n);
/* All but the bytes, which are the caller's to put behind it. Returns its length, at most
 * CARRY_HEAD. */
size_t carry_frame_write(uint8_t *to, enum carry_kind kind, uint32_t a, uint32_t b);

#endif
