/* SPDX-License-Identifier: MIT
 *
 * Keeps loans over a restart of the daemon, in systemd's file descriptor store: there the files of
 * a job stay open until it ends. Each descriptor has the name "loan-JOB-FILE", FILE being its place
 * in the loan's list. Without systemd nothing is kept. Called by coord; loop thread. */
#ifndef DAEMON_LOAN_STORE_H
#define DAEMON_LOAN_STORE_H

#include <jansson.h>
#include <stdint.h>

struct event_base;
struct loan;
struct loan_book;
struct loan_store;

enum { STORE_LATE_MS = 30000 /* systemd may be busy for so long */ };

/* Takes all descriptors that systemd kept and handed over to this process. Both borrowed.
 * late_ms 0: STORE_LATE_MS. */
struct loan_store *loan_store_new(struct event_base *base, struct loan_book *book, unsigned late_ms);
void loan_store_free(struct loan_store *s); /* systemd keeps what it has */

/* That job's files are to be kept; the loan is held until systemd has them. What systemd does not
 * take in time is given up with a line in the log. NULL, as s may be below: nothing to do. */
void loan_store_add(struct loan_store *s, uint64_t job, struct loan *loan);
/* That job has ended: systemd is to close its files. */
void loan_store_remove(struct loan_store *s, uint64_t job, struct loan *loan);
/* The loan of a job of an earlier life, held for the caller, if systemd has kept all of its files
 * and they are those of `about` (loan.h); else NULL. */
struct loan *loan_store_take(struct loan_store *s, uint64_t job, const json_t *about);
/* No other job is left that may take something: closes the rest, which systemd closes too. */
void loan_store_tidy(struct loan_store *s);

#endif
