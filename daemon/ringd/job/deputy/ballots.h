/* SPDX-License-Identifier: MIT
 *
 * What this node has promised about jobs that may change hands: for each, who may begin attempts of
 * it, and the latest attempt that this node took part in. It is in the store before it counts, so a
 * restart forgets none of it. With that, two nodes never both head a job: whoever takes one over
 * needs more than half of its nodes, and none of them has taken part in a later attempt; and its
 * old head goes on without them only if it has at least half (as in Raft, Ongaro and Ousterhout
 * 2014, sect. 5.2 and 5.4.1). Loop thread. */
#ifndef DAEMON_BALLOTS_H
#define DAEMON_BALLOTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/job/deputy/origin.h"

struct ballots;
struct store;

enum { BALLOTS_MAX = 256, BALLOTS_DAYS = 30 /* after which a job that was not heard of is forgotten */ };
/* The attempt of a job that has ended. */
#define BALLOT_ENDED UINT32_MAX

struct ballot {
    struct origin of;
    uint8_t head[16];   /* who may begin attempts */
    uint8_t before[16]; /* who headed it before; of a promise: still does, if that comes to nothing */
    uint8_t deputy[16]; /* who may take it over, as of that attempt */
    uint32_t attempt;   /* the latest that this node took part in; 0: none, or the first */
    bool is_promised;   /* head asked for the job, and has not begun an attempt yet */
    int64_t at;         /* seconds since 1970: of the last change */
};

/* store: borrowed. notes: of store_notes. */
struct ballots *ballots_new(struct store *store, const json_t *notes, int64_t now);
void ballots_free(struct ballots *b);
const struct ballot *ballots_find(const struct ballots *b, const struct origin *of); /* NULL: none */

/* May `by` begin an attempt? taken: it took the job over; NULL: it did not. False: `why` is the
 * rest of a sentence behind the name of this node. */
bool ballots_may_open(const struct ballots *b, const struct origin *of, const uint8_t by[16],
                      const struct takeover *taken, char *why, size_t size);
/* This node takes part in that attempt, or hears that the job has ended. On the disk with the next
 * store_sync. deputy: rank 1 of the attempt, or the head of a job without. */
void ballots_open(struct ballots *b, const struct origin *of, const uint8_t head[16],
                  const uint8_t deputy[16], uint32_t attempt, int64_t now);
void ballots_ended(struct ballots *b, const struct origin *of, int64_t now);

/* `from` says that it has handed the job on to `to`. It counts where this node takes `from` for the
 * head; of a job that it knows nothing of, where that is where the job was submitted. */
void ballots_move(struct ballots *b, const struct origin *of, const uint8_t from[16], const uint8_t to[16],
                  int64_t now);

/* `by` wants to take the job over; only its deputy may, and only who took part has a word in it.
 * True: it is promised; on the disk as above. False: `why` as above. */
bool ballots_vote(struct ballots *b, const struct origin *of, const uint8_t by[16],
                  const struct takeover *wanted, int64_t now, char *why, size_t size);
/* `by` does without it. */
void ballots_release(struct ballots *b, const struct origin *of, const uint8_t by[16], int64_t now);

#endif
