/* SPDX-License-Identifier: MIT
 *
 * How a browser gets in without the token. `ringctl dashboard` makes a ticket, which is in the
 * link that it prints. The page exchanges it for a session: a cookie that no script reads, and a
 * key that the page keeps. A request needs both. A cookie goes to every port of its host, so the
 * server of another user could see it; the key never leaves the page's own port.
 *
 * Tables of fixed length: where one is full, the entry that was not used for the longest time
 * makes way. All of it is gone when the daemon ends. The caller serializes. */
#ifndef DAEMON_HTTP_SESSION_H
#define DAEMON_HTTP_SESSION_H

#include <stdbool.h>

#include "net/clock.h"

enum {
    SECRET_ROOM = 33,               /* 128 bits in hex digits, and a NUL */
    TICKETS_MAX = 8,                /* made and not used yet */
    SESSIONS_MAX = 32,              /* one for each browser */
    TICKET_SECONDS = 300,           /* from when it was made */
    SESSION_SECONDS = 12 * 60 * 60, /* from when it was last used */
};

struct session_secrets {
    char cookie[SECRET_ROOM], key[SECRET_ROOM];
};

struct sessions {
    char cookie_name[20]; /* of this daemon alone: two on one host would overwrite each other's */
    struct {
        struct instant made; /* 0 = none */
        char secret[SECRET_ROOM];
    } tickets[TICKETS_MAX];
    struct {
        struct instant used; /* 0 = none */
        struct session_secrets secrets;
    } open[SESSIONS_MAX];
};

void sessions_init(struct sessions *s);
void sessions_ticket(struct sessions *s, struct instant now, char ret[SECRET_ROOM]);
/* Uses the ticket up. False: there is no such ticket, or its time is over. */
bool sessions_open(struct sessions *s, struct instant now, const char *ticket, struct session_secrets *ret);
/* cookie, key: as the request has them, or NULL. The session was used `now`. */
bool sessions_check(struct sessions *s, struct instant now, const char *cookie, const char *key);
void sessions_end_all(struct sessions *s); /* and all tickets */

#endif
