/* SPDX-License-Identifier: MIT
 *
 * What the store is asked, as SQL: requests, and a batch of them run in one transaction. No thread
 * of its own; store.c has one. */
#ifndef DAEMON_STORE_SQL_H
#define DAEMON_STORE_SQL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"

enum request_kind {
    PUT_JOB,
    PUT_EVENT,
    GET_JOBS,
    GET_JOB,
    GET_EVENTS,
    GET_UNFINISHED,
    GET_LINES,
    PUT_POINTS,
    PUT_NOTE,
    MOVE_JOB,
    DROP_JOB,
    GET_NOTES,
    GET_POINTS,
    GET_SERIES,
    SYNC,       /* nothing is read: it is answered when the writes before it are on the disk */
    TIDY_FOLDER /* of the store's thread alone; the database never sees it */
};

struct store_request {
    struct store_request *next; /* in the order they were posted */
    enum request_kind kind;
    uint64_t job; /* or the limit, for GET_JOBS */
    char *word;   /* owned: state of PUT_JOB, kind of the events, a folder, a key; may be NULL */
    char *json;   /* owned: the record; of a read: the answer, NULL = no such record */
    char *life;   /* owned: of PUT_JOB; NULL: none */
    void (*done)(void *arg, const char *json);
    void *arg;    /* borrowed */
    int level;    /* GET_POINTS */
    int64_t from; /* the same, GET_EVENTS and GET_LINES */
    int64_t to;   /* GET_POINTS; MOVE_JOB: the new number */
};

struct store_sql;

/* ret_note: "" or a sentence for the log. */
int store_sql_open(struct store_sql **ret, const char *path, char ret_note[256], struct err *err);
void store_sql_close(struct store_sql *s);
uint64_t store_sql_last_job(struct store_sql *s); /* the highest number in records or history, 0 = none */
void store_sql_set_limit(struct store_sql *s, uint64_t bytes); /* any thread */
/* How fine the points since `from` are kept: the level, and the seconds between two of them. */
unsigned store_sql_level(int64_t from, int64_t now, int *ret_level);

bool request_is_put(const struct store_request *r);
/* All writes of the list or none, but for rows that SQLite can never take: those are left out, and
 * ret_trouble says so; each read sees the writes before it, and has its answer afterwards. False:
 * ret_trouble says why, a text that lives as long as `s`. Reading well says nothing about writing:
 * ret_wrote, whether there was any. */
bool store_sql_run(struct store_sql *s, struct store_request *first, const char **ret_trouble,
                   bool *ret_wrote);

#endif
