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

struct ledger;
struct mailbox;
struct store;

/* Opens DIR/ringd.db (synchronously, at start). ledger may be NULL. ret_note: "" or a sentence for
 * the log (256 bytes). */
int store_open(struct store **ret, const char *dir, struct mailbox *mailbox, struct ledger *ledger,
               char ret_note[256], struct err *err);
/* Loop thread: drains what was posted, ends the thread and calls every `done` still owed, before it
 * returns.
 */
void store_close(struct store *store);
/* What is to be written waits in memory for a disk that is slow, hangs or refuses: up to so much,
 * "store_writes" of the ledger. History may take three quarters of it, and the oldest that is not
 * being written gives way to new; where there is none, what is new goes. Records of jobs may take
 * seven eighths of it, notes all; history gives way to them, and an older record of the same job to
 * a newer one. */
enum { STORE_WAITING_MIB = 4 };
/* Why writing fails at present, and the way out, or NULL. The text lives as long as the store. The
 * log names it once. */
const char *store_trouble(const struct store *store);

uint64_t store_next_job(
    struct store *store); /* a fresh job number, never reused; synchronous and cheap (kept in memory) */

/* The job's record as one JSON object (state, spec, result, error, times); replaces the former.
 * life: what its head needs beside it to go on with the job in another life of the daemon; NULL:
 * nothing, it has ended, and its lines "prompt" and "tokens" go. */
void store_put_job(struct store *store, uint64_t job, const char *state, const char *json, const char *life);
/* One line of a job's history: kind "step", "valid", "log". */
void store_put_event(struct store *store, uint64_t job, const char *kind, const char *json);

/* An empty folder goes; one with something in it stays. Some time later: a disk may hang. */
void store_tidy_folder(struct store *store, const char *folder);

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

/* `done` runs on the loop thread, with NULL, once all that was put before is on the disk, or the
 * disk has refused it (store_trouble). It waits for as long as the disk does. */
void store_sync(struct store *store, void (*done)(void *arg, const char *json), void *arg);

/* At start: jobs whose record says that they have not ended, the oldest first, as a JSON array of
 * {"record", "life": null if there is none, "said": [[kind, adapter, highest step], …] of its
 * history of steps, evaluations and samples, "last": the latest "step" or null, "saved" and
 * "logged": the latest of these or null, "tokens": of all steps, "texts": all of "prompt" and
 * "tokens"}. Synchronous; the caller frees. */
char *store_unfinished(struct store *store);
/* The same of one job, whatever its state, as an array of one entry or of none. */
void store_get_unfinished(struct store *store, uint64_t job, void (*done)(void *arg, const char *json),
                          void *arg);

/* --- what this node keeps for others (job/deputy) --- */

/* Numbers from here on are no jobs of this node, but records and histories of other heads' jobs, in
 * the state "kept". No list has them. */
#define STORE_FIRST_DOSSIER (UINT64_C(1) << 62)
/* Lines of a job's history that lie behind the one of that number, oldest first and at most
 * STORE_LINES, as a JSON array of [number, kind, line]. */
enum { STORE_LINES = 256 };
void store_get_lines(struct store *store, uint64_t job, int64_t after,
                     void (*done)(void *arg, const char *json), void *arg);
/* Record, life and history get another number, but for the lines "saved" and "logged": these files
 * are another node's. Or all of it goes. */
void store_move_job(struct store *store, uint64_t from, uint64_t to);
void store_drop_job(struct store *store, uint64_t job);
/* A JSON object under a key, instead of the former; NULL: it goes. */
void store_put_note(struct store *store, const char *key, const char *json);
/* At start: a JSON array of [key, object]. Synchronous; the caller frees. */
char *store_notes(struct store *store);

#endif
