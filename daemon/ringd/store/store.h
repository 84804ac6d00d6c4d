/* SPDX-License-Identifier: MIT
 *
 * Jobs and their history in SQLite (WAL, synchronous=FULL), behind a thread of its own: the loop
 * posts and goes on. Only the store_ files know SQLite. A damaged file is set aside as
 * ringd.db.damaged-TIME and a new one begun, said in `ret_note`. */
#ifndef DAEMON_STORE_H
#define DAEMON_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct mailbox;
struct store;

/* Opens DIR/ringd.db (synchronously, at start). ret_note: "" or a sentence for the log (256
 * bytes). */
int store_open(struct store **ret, const char *dir, struct mailbox *mailbox, char ret_note[256],
               struct err *err);
/* Loop thread: drains what was posted, ends the thread and calls every `done` still owed, before it
 * returns.
 */
void store_close(struct store *store);
/* What the disk refuses waits in memory: up to so much, the oldest history gives way first. */
enum { STORE_WAITING_MIB = 4 };
/* Why writing fails at present, and the way out, or NULL. The text lives as long as the store. The
 * log names it once. */
const char *store_trouble(const struct store *store);

uint64_t store_next_job(
    struct store *store); /* a fresh job number, never reused; synchronous and cheap (kept in memory) */

/* The job's record as one JSON object (state, spec, result, error, times); replaces the former. */
void store_put_job(struct store *store, uint64_t job, const char *state, const char *json);
/* One line of a job's history: kind "step", "valid", "log". */
void store_put_event(struct store *store, uint64_t job, const char *kind, const char *json);

/* Jobs, newest first, as a JSON array of their records' short form; limit 0 = all. `done` runs on
 * the loop thread; json is freed after. What is read here may be tens of MB: it is made on the
 * store's thread, so that the loop has only to pass it on. */
void store_get_jobs(struct store *store, size_t limit, void (*done)(void *arg, const char *json), void *arg);
/* One record, or NULL. */
void store_get_job(struct store *store, uint64_t job, void (*done)(void *arg, const char *json), void *arg);
/* A job's history of a kind (NULL = all) as a JSON array, oldest first; with `from` above 0 only
 * what is of that step or a later one. */
void store_get_events(struct store *store, uint64_t job, const char *kind, int64_t from,
                      void (*done)(void *arg, const char *json), void *arg);
/* --- series: numbers over time, kept fine for a day, coarser for two weeks, by the hour for two
 *  years --- */

/* rows: [[name, time, value], …]. */
void store_put_points(struct store *store, const char *rows);
/* [[time, mean, least, most], …] from `from` to before `to`, as fine as is kept since `from`.
 * Returns the seconds between them. */
unsigned store_get_points(struct store *store, const char *series, int64_t from, int64_t to, int64_t now,
                          void (*done)(void *arg, const char *json), void *arg);
/* Names, as a JSON array. */
void store_get_series(struct store *store, void (*done)(void *arg, const char *json), void *arg);
/* Most the file may take: beyond, the oldest lines and points go. 0 = no limit. Any time. */
void store_set_limit(struct store *store, uint64_t bytes);

/* At start: jobs whose record still says queued or running, as a JSON array (synchronous); the
 * caller frees.
 */
char *store_unfinished(struct store *store);

#endif
