/* SPDX-License-Identifier: MIT
 *
 * What every node knows of the jobs of the others: a row for each unfinished and each recent job of
 * each head. A head counts the changes of its rows; its record has that count, and a node with a
 * lower count asks for the rows that changed since. So nothing is said while nothing changes, and
 * what was lost is asked for again (PROTOCOL.md §6). Knows no node: all comes through the setup.
 * Loop thread. */
#ifndef DAEMON_JOB_NEWS_H
#define DAEMON_JOB_NEWS_H

#include <jansson.h>
#include <stdint.h>

#include "net/clock.h"

struct job_news;

enum { JOB_NEWS_ROWS = 64 }; /* of a head, at most: its newest jobs */

struct job_news_setup {
    /* Takes the message's reference. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* A job of ours in short form, a new reference; NULL: it is not in memory. */
    json_t *(*short_form)(void *owner, uint64_t job);
    /* Another head sent this row: it is new, or has changed. */
    void (*changed)(void *owner, const uint8_t head[16], const json_t *row);
    void *owner;
    uint64_t boot; /* as in our record */
};
struct job_news *job_news_new(const struct job_news_setup *setup);
void job_news_free(struct job_news *n);

/* A job of ours is new or has changed. */
void job_news_touch(struct job_news *n, uint64_t job);
/* A job of an earlier life of this daemon, in short form; one that is there already stays as it
 * is. */
void job_news_remember(struct job_news *n, const json_t *short_form);
/* How often our rows have changed, for our record. */
uint64_t job_news_version(const struct job_news *n);
/* The rows of our earlier lives, newest first; borrowed until the next call. */
const json_t *job_news_remembered(struct job_news *n);

/* What the record of a head says: asks it, unless all of that is here, or it was asked a moment
 * ago. */
void job_news_heard(struct job_news *n, const uint8_t head[16], uint64_t boot, uint64_t version,
                    struct instant now);
/* The messages "jobs-ask" and "jobs-told", whose fields have been checked. */
void job_news_take_ask(struct job_news *n, const uint8_t to[16], const json_t *body);
void job_news_take_told(struct job_news *n, const uint8_t from[16], const json_t *body);

/* The rows of a head, newest first, NULL = none; borrowed until the next message. */
const json_t *job_news_of(const struct job_news *n, const uint8_t head[16]);

#endif
