/* SPDX-License-Identifier: MIT
 *
 * Where clients hand in the files that they opened for a job (loan.h), before they submit it. A
 * request over the Unix socket goes on as "ringd-loan": the client sends one line of JSON with the
 * descriptors beside its first bytes, and gets a line with a ticket, or an error. The ticket goes
 * into the job's request, once, within DESK_KEEP_MS; else the files are closed. Called by
 * api_jobs.c. Loop thread. */
#ifndef DAEMON_LOAN_DESK_H
#define DAEMON_LOAN_DESK_H

struct event_base;
struct http_call;
struct loan;
struct loan_book;
struct loan_desk;
struct mailbox;

enum { DESK_HEAR_MS = 10000, DESK_KEEP_MS = 60000 };

struct loan_desk_setup {
    /* all borrowed */
    struct event_base *base;
    struct mailbox *mailbox;
    struct loan_book *book;
    unsigned hear_ms, keep_ms; /* 0: DESK_HEAR_MS for the line to come, DESK_KEEP_MS */
};
struct loan_desk *loan_desk_new(const struct loan_desk_setup *setup);
/* When no thread of the HTTP server is left. */
void loan_desk_free(struct loan_desk *desk);

/* Answers the call: hears its client out. */
void loan_desk_serve(struct loan_desk *desk, struct http_call *call);
/* What was handed in for this ticket, held for the caller; NULL: nothing, or it was too late. */
struct loan *loan_desk_claim(struct loan_desk *desk, const char *ticket);

#endif
