/* SPDX-License-Identifier: MIT
 *
 * Owns the last events in a ring of fixed length, and of so many bytes, under one mutex. The loop
 * thread publishes, HTTP's threads read; each reader keeps its own place by event id, so the event
 * log knows no reader. */
#include "daemon/ringd/event_log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/ledger.h"

struct event_log_entry {
    uint64_t job;
    char type[16];
    char *text; /* owned: as it is sent, to however many */
};

struct event_log {
    pthread_mutex_t lock;
    struct event_log_entry *events; /* owned; the event with id i is at (i - 1) % size; under lock */
    size_t size;
    size_t bytes, bytes_max; /* of all texts; under lock */
    struct ledger_queue queue;
    uint64_t oldest, newest; /* ids; newest 0 = none yet; under lock */
    void (*on_publish)(void *owner);
    void *owner; /* borrowed, under lock as on_publish */
};

struct event_log *event_log_new(size_t events, size_t bytes)
{
    struct event_log *log = xcalloc(1, sizeof *log);
    pthread_mutex_init(&log->lock, NULL);
    log->size = events ? events : 1;
    log->bytes_max = bytes;
    log->oldest = 1;
    log->events = xcalloc(log->size, sizeof *log->events);
    return log;
}

void event_log_register(struct event_log *log, struct ledger *ledger)
{
    ledger_register(ledger, &log->queue, "events", log->bytes_max);
}

void event_log_free(struct event_log *log)
{
    if (!log)
        return;
    for (size_t i = 0; i < log->size; i++)
        free(log->events[i].text);
    free(log->events);
    pthread_mutex_destroy(&log->lock);
    free(log);
}

/* A line break would end the data field of a server-sent event; in JSON it can only be white
 * space. */
static char *sse_text(uint64_t id, const char *type, const char *json)
{
    char *text = xasprintf("id: %" PRIu64 "\nevent: %s\ndata: %s\n\n", id, type, json);
    char *from = strstr(text, "\ndata: ") + 1, *end = from + strlen(from) - 2;
    for (char *p = from; (p = strpbrk(p, "\r\n")) && p < end;)
        *p = ' ';
    return text;
}

/* Under lock. A place is only reused once its event is forgotten. */
static void forget_oldest(struct event_log *log)
{
    struct event_log_entry *e = &log->events[(log->oldest++ - 1) % log->size];
    log->bytes -= strlen(e->text) + 1;
    free(e->text);
    e->text = NULL;
}

uint64_t event_log_publish(struct event_log *log, uint64_t job, const char *type, const char *json)
{
    struct event_log_entry fresh = {.job = job};
    snprintf(fresh.type, sizeof fresh.type, "%s", type);
    pthread_mutex_lock(&log->lock);
    uint64_t id = ++log->newest;
    fresh.text = sse_text(id, type, json);
    log->bytes += strlen(fresh.text) + 1;
    while (log->oldest < id && (id - log->oldest >= log->size || log->bytes > log->bytes_max))
        forget_oldest(log);
    log->events[(id - 1) % log->size] = fresh;
    ledger_set(&log->queue, log->bytes);
    void (*on_publish)(void *) = log->on_publish;
    void *owner = log->owner;
    pthread_mutex_unlock(&log->lock);
    if (on_publish)
        on_publish(owner);
    return id;
}

uint64_t event_log_newest(struct event_log *log)
{
    pthread_mutex_lock(&log->lock);
    uint64_t id = log->newest;
    pthread_mutex_unlock(&log->lock);
    return id;
}

/* The reader asked for what is gone, or holds an id from before a restart: says so, and goes on
 * from the oldest kept. */
static char *resync_text(uint64_t after, uint64_t oldest, uint64_t *ret_id)
{
    char json[96];
    snprintf(json, sizeof json, "{\"lost_after\":%" PRIu64 ",\"next\":%" PRIu64 "}", after, oldest);
    *ret_id = oldest - 1;
    return sse_text(oldest - 1, "resync", json);
}

char *event_log_next(struct event_log *log, uint64_t job, uint64_t after, uint64_t *ret_id, bool *ret_last)
{
    char *text = NULL;
    pthread_mutex_lock(&log->lock);
    const uint64_t oldest = log->oldest;
    *ret_last = false;
    if (after > log->newest || (after && after + 1 < oldest)) {
        text = resync_text(after, oldest, ret_id);
        goto out;
    }
    *ret_id = log->newest; /* with nothing found: other jobs' events passed over are not looked at again, nor
                              counted as lost */
    for (uint64_t id = after + 1 > oldest ? after + 1 : oldest; id <= log->newest; id++) {
        const struct event_log_entry *e = &log->events[(id - 1) % log->size];
        if (job && e->job != job)
            continue;
        text = xstrdup(e->text);
        *ret_id = id;
        *ret_last = !strcmp(e->type, "end");
        break;
    }
out:
    pthread_mutex_unlock(&log->lock);
    return text;
}

void event_log_on_publish(struct event_log *log, void (*fn)(void *owner), void *owner)
{
    pthread_mutex_lock(&log->lock);
    log->on_publish = fn;
    log->owner = owner;
    pthread_mutex_unlock(&log->lock);
}
