/* SPDX-License-Identifier: MIT
 *
 * Owns the reader, and the text that waits before a reader comes. */
#include "daemon/ringd/timeline/timelines.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

enum {
    WAITING_MAX = 8 << 20, /* bytes that the reader has not taken */
    DIGITS = 9             /* of a real number: nanoseconds of a step of one second */
};

struct timelines {
    struct timelines_reader reader; /* owned; put NULL: nobody reads */
    char *early;                    /* owned: what waits for the first reader; NULL: nothing */
    size_t n_early;
    bool was_read, is_ended;
    uint64_t written, missing;
};

struct timelines *timelines_new(void)
{
    return xcalloc(1, sizeof(struct timelines));
}

static void leave(struct timelines *t)
{
    if (t->reader.put)
        t->reader.end(t->reader.owner);
    t->reader = (struct timelines_reader){.put = NULL};
}

static void forget_early(struct timelines *t)
{
    free(t->early);
    t->early = NULL;
    t->n_early = 0;
}

void timelines_free(struct timelines *t)
{
    if (!t)
        return;
    leave(t);
    forget_early(t);
    free(t);
}

void timelines_reader_changed(struct timelines *t)
{
    if (t->reader.put && !t->reader.is_open(t->reader.owner))
        leave(t);
}

static bool put(struct timelines *t, const char *text, size_t n)
{
    const struct timelines_reader *r = &t->reader;
    if (r->put && r->is_open(r->owner) && r->waiting(r->owner) + n <= WAITING_MAX) {
        r->put(r->owner, text, n);
        return true;
    }
    if (t->was_read || t->n_early + n > WAITING_MAX)
        return false;
    t->early = xrealloc(t->early, t->n_early + n);
    memcpy(t->early + t->n_early, text, n);
    t->n_early += n;
    return true;
}

void timelines_add(struct timelines *t, json_t *timeline)
{
    char *json = timeline ? json_dumps(timeline, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS)) : NULL;
    char *event = json ? xasprintf("event: timeline\ndata: %s\n\n", json) : NULL;
    if (event && put(t, event, strlen(event)))
        t->written++;
    else
        t->missing++;
    free(event);
    free(json);
    json_decref(timeline);
}

/* Without regard to the cap: it is short, and the last one. */
static void put_end(struct timelines *t)
{
    char *event = xasprintf("event: end\ndata: {\"written\":%llu,\"missing\":%llu}\n\n",
                            (unsigned long long)t->written, (unsigned long long)t->missing);
    t->reader.put(t->reader.owner, event, strlen(event));
    free(event);
    leave(t);
}

void timelines_end(struct timelines *t, uint64_t dropped)
{
    t->missing += dropped;
    t->is_ended = true;
    if (t->n_early) { /* nobody came for it, and many ended jobs are kept */
        t->missing += t->written;
        t->written = 0;
        forget_early(t);
    }
    if (t->reader.put)
        put_end(t);
}

bool timelines_is_read(const struct timelines *t)
{
    return t->reader.put;
}

void timelines_read(struct timelines *t, const struct timelines_reader *reader)
{
    t->reader = *reader;
    t->was_read = true;
    if (t->n_early)
        t->reader.put(t->reader.owner, t->early, t->n_early);
    forget_early(t);
    if (t->is_ended)
        put_end(t);
}
