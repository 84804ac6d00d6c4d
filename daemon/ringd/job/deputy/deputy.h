/* SPDX-License-Identifier: MIT
 *
 * The dossiers that this node keeps of jobs of other heads, and how it takes such a job over when
 * its head is lost for good. Records and histories are in the store, in the state "kept"; inputs
 * below STATE/dossiers. A dossier is kept until its head wants it back.
 *
 * Taking over: by itself, where more than half of the job's nodes promise it and none of them
 * reaches the head; or by hand, where its user says that the head is off, and every other node of
 * the job promises it. Two nodes never do it by themselves: one is not more than half.
 *
 * Owned by the node; loop thread. */
#ifndef DAEMON_DEPUTY_H
#define DAEMON_DEPUTY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/job/deputy/origin.h"

struct aside;
struct ballots;
struct deputy;
struct event_base;
struct file_set;
struct job_head;
struct loan;
struct loan_book;
struct members;
struct parts;
struct store;

enum {
    DEPUTY_MOST = 32, /* dossiers; what is new beyond is refused */
    DEPUTY_DAYS = 30, /* after which one whose head was not seen goes */
};

struct deputy_setup { /* the pointers are borrowed */
    struct event_base *base;
    const char *state_dir;
    struct aside *aside;
    struct loan_book *loans;
    struct members *members;
    struct store *store;
    struct ballots *ballots;
    struct parts *parts;
    const json_t *notes; /* of store_notes */
    /* Takes the reference. Not 0: it was not sent. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* Is a stage of that job at work on this node? */
    bool (*works)(void *owner, const struct origin *of);
    /* The job is this node's, under that number: as coord_take_over; entry and loan are borrowed.
     * False: it is not, and the log says why. */
    bool (*taken)(void *owner, uint64_t as, const json_t *entry, struct loan *loan,
                  const struct job_head *from);
    void *owner;
};
struct deputy *deputy_new(const struct deputy_setup *setup);
void deputy_free(struct deputy *d); /* after store_close: its answers come here; before parts_free */
void deputy_stop(
    struct deputy
        *d); /* before http_stop: who asked for a job is answered, and nothing more is sent or begun */

/* Messages, whose fields have been checked. */
void deputy_take_news(struct deputy *d, const uint8_t from[16], const json_t *body);
void deputy_take_recall(struct deputy *d, const uint8_t from[16], const json_t *body);
void deputy_take_claim_ask(struct deputy *d, const uint8_t from[16], const json_t *body);
void deputy_take_claim_answer(struct deputy *d, const uint8_t from[16], const json_t *body);
void deputy_take_claim_release(struct deputy *d, const uint8_t from[16], const json_t *body);
void deputy_changed(struct deputy *d); /* nodes came or went */

/* "job-landed": the old head has the result of a job that this node has taken over. True: it had
 * ended before; job ret_as here is to be cancelled. */
bool deputy_take_landed(struct deputy *d, const uint8_t from[16], const json_t *body, uint64_t *ret_as);
void deputy_ended(struct deputy *d, uint64_t job); /* a job of this node has ended, and its record is put */
/* What that old head may fetch of its job, which has that number here (parts.h); NULL: nothing. */
struct file_set *deputy_files(struct deputy *d, const uint8_t to[16], uint64_t as);
/* After a restart: the inputs of each job that this node has taken over, and its number here; the
 * loan is borrowed, NULL: there are none. False: the coord has no such job. May wait for the disk
 * of this node. */
void deputy_lend(struct deputy *d, bool (*lend)(void *owner, uint64_t job, struct loan *loan), void *owner);

/* Takes a job over by hand: the one that had that number at that head. must_ask: all other nodes of
 * the job have to promise it; without, those in reach. `done` comes once, perhaps at once: with its
 * number here, or 0 and why not, a sentence. −ENOENT: this node keeps no dossier of it. */
int deputy_adopt(struct deputy *d, const uint8_t head[16], uint64_t job, bool must_ask,
                 void (*done)(void *arg, uint64_t as, const char *why), void *arg);
/* What becomes of a job whose head is out of reach, as far as this node knows: a sentence, or "".
 * */
void deputy_describe(const struct deputy *d, const uint8_t head[16], uint64_t job, char *text, size_t size);

#endif
