/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/http/http_session.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/http/http_access.h"

enum { SECRET_BYTES = (SECRET_ROOM - 1) / 2, SECOND_US = 1000000 };

static void make_secret(char ret[SECRET_ROOM])
{
    uint8_t bytes[SECRET_BYTES];
    arc4random_buf(bytes, sizeof bytes);
    id_hex(ret, bytes);
}

static bool is_over(struct instant from, struct instant now, uint64_t seconds)
{
    return !from.us || clock_since_us(now, from) > seconds * SECOND_US;
}

void sessions_init(struct sessions *s)
{
    char random[SECRET_ROOM];
    memset(s, 0, sizeof *s);
    make_secret(random);
    snprintf(s->cookie_name, sizeof s->cookie_name, "ringd-%.8s", random);
}

void sessions_ticket(struct sessions *s, struct instant now, char ret[SECRET_ROOM])
{
    size_t at = 0;
    for (size_t i = 1; i < TICKETS_MAX; i++)
        at = s->tickets[i].made.us < s->tickets[at].made.us ? i : at;
    s->tickets[at].made = now;
    make_secret(s->tickets[at].secret);
    memcpy(ret, s->tickets[at].secret, SECRET_ROOM);
}

/* All are compared, so that the time it takes says nothing. */
static int find_ticket(const struct sessions *s, struct instant now, const char *ticket)
{
    int found = -1;
    for (int i = 0; i < TICKETS_MAX; i++)
        if (access_same_secret(ticket, s->tickets[i].secret) &&
            !is_over(s->tickets[i].made, now, TICKET_SECONDS))
            found = i;
    return found;
}

bool sessions_open(struct sessions *s, struct instant now, const char *ticket, struct session_secrets *ret)
{
    const int found = find_ticket(s, now, ticket);
    size_t at = 0;
    if (found < 0)
        return false;
    memset(&s->tickets[found], 0, sizeof s->tickets[found]);
    for (size_t i = 1; i < SESSIONS_MAX; i++)
        at = s->open[i].used.us < s->open[at].used.us ? i : at;
    s->open[at].used = now;
    make_secret(s->open[at].secrets.cookie);
    make_secret(s->open[at].secrets.key);
    *ret = s->open[at].secrets;
    return true;
}

bool sessions_check(struct sessions *s, struct instant now, const char *cookie, const char *key)
{
    bool known = false;
    for (size_t i = 0; cookie && key && i < SESSIONS_MAX; i++) {
        const bool same_cookie = access_same_secret(cookie, s->open[i].secrets.cookie),
                   same_key = access_same_secret(key, s->open[i].secrets.key);
        if (!same_cookie || !same_key || is_over(s->open[i].used, now, SESSION_SECONDS))
            continue;
        s->open[i].used = now;
        known = true;
    }
    return known;
}

void sessions_end_all(struct sessions *s)
{
    memset(s->tickets, 0, sizeof s->tickets);
    memset(s->open, 0, sizeof s->open);
}
