/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/peer/absence.h"

#include <string.h>

void absence_watch(struct absence *a, const struct members *m, const uint8_t (*ids)[16], size_t n)
{
    *a = (struct absence){.n = n};
    for (size_t i = 0; i < n; i++) {
        const struct member *who = members_find(m, ids[i]);
        memcpy(a->at[i].id, ids[i], 16);
        a->at[i].boot = who ? who->boot : 0;
    }
}

void absence_forget(struct absence *a, const uint8_t id[16])
{
    for (size_t i = a->n; i-- > 0;)
        if (!memcmp(a->at[i].id, id, 16))
            a->at[i] = a->at[--a->n];
}

/* Since its last word, if that is what gave it away. A record may also be old because we stood
 * still ourselves: so not without end. */
static struct instant out_since(const struct member *who, uint64_t patience_us, struct instant now)
{
    uint64_t most = patience_us / 2 < ABSENCE_NOTICED_US ? patience_us / 2 : ABSENCE_NOTICED_US;
    uint64_t silent = who ? clock_since_us(now, who->heard) : 0;
    if (silent < ABSENCE_BEAT_US)
        return now;
    return (struct instant){now.us - (silent < most ? silent : most)};
}

static struct instant ends(const struct absence *a, size_t i, uint64_t patience_us)
{
    return (struct instant){a->at[i].since.us + patience_us + ABSENCE_RETURN_US};
}

static enum absence_news look(struct absence *a, size_t i, const struct members *m, uint64_t patience_us,
                              struct instant now)
{
    const struct member *who = members_find(m, a->at[i].id);
    bool is_out = !members_reachable(m, a->at[i].id), was_out = a->at[i].is_out;
    if (who && who->boot != a->at[i].boot)
        return ABSENCE_RESTARTED;
    if (is_out && members_ended(m, a->at[i].id))
        return ABSENCE_ENDED;
    a->at[i].is_out = is_out;
    if (is_out && !was_out)
        a->at[i].since = out_since(who, patience_us, now);
    if (is_out != was_out)
        return is_out ? ABSENCE_OUT : ABSENCE_BACK;
    if (!is_out || now.us < ends(a, i, patience_us).us)
        return ABSENCE_NOTHING;
    /* Who comes to look so late stood still itself, and may not yet have heard that the other is
     * back. */
    if (clock_since_us(now, ends(a, i, patience_us)) > ABSENCE_LATE_US) {
        a->at[i].since.us = now.us - patience_us / 2;
        return ABSENCE_NOTHING;
    }
    return ABSENCE_TOO_LONG;
}

enum absence_news absence_next(struct absence *a, const struct members *m, uint64_t patience_us,
                               struct instant now, size_t *ret_which)
{
    for (size_t i = 0; i < a->n; i++) {
        enum absence_news news = look(a, i, m, patience_us, now);
        if (news != ABSENCE_NOTHING) {
            *ret_which = i;
            return news;
        }
    }
    return ABSENCE_NOTHING;
}

struct instant absence_due(const struct absence *a, uint64_t patience_us)
{
    struct instant due = {UINT64_MAX};
    for (size_t i = 0; i < a->n; i++)
        if (a->at[i].is_out && ends(a, i, patience_us).us < due.us)
            due = ends(a, i, patience_us);
    return due;
}
