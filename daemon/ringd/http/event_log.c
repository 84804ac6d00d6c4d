/* SPDX-License-Identifier: MIT
 *
 * Owns the last events in a ring of fixed length, and of so many bytes, under one mutex. The loop
 * thread publishes, HTTP's threads read; each reader keeps its own place by event id, so the hub
 * knows no reader. */
#include "daemon/ringd/http/event_log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

struct hub_event {
    uint64_t job;
    char type[16];
    char *text; /* owned: as it is sent, to however many */
};

struct hub {
    pthread_mutex_t lock;
    struct hub_event *events; /* owned; the event with id i is at (i - 1) % size; under lock */
    size_t size;
    size_t bytes, bytes_max; /* of all texts; under lock */
    uint64_t oldest, newest; /* ids; newest 0 = none yet; under lock */
    void (*on_publish)(void *owner);
    void *owner; /* borrowed, under lock as on_publish */
};

struct hub *hub_new(size_t events, size_t bytes)
{
    struct hub *hub = xcalloc(1, sizeof *hub);
    pthread_mutex_init(&hub->lock, NULL);
    hub->size = events ? events : 1;
    hub->bytes_max = bytes;
    hub->oldest = 1;
    hub->events = xcalloc(hub->size, sizeof *hub->events);
    return hub;
}

void hub_free(struct hub *hub)
{
    if (!hub)
        return;
    for (size_t i = 0; i < hub->size; i++)
        free(hub->events[i].text);
    free(hub->events);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
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
static void forget_oldest(struct hub *hub)
{
    struct hub_event *e = &hub->events[(hub->oldest++ - 1) % hub->size];
    hub->bytes -= strlen(e->text) + 1;
    free(e->text);
    e->text = NULL;
}

uint64_t hub_publish(struct hub *hub, uint64_t job, const char *type, const char *json)
{
    struct hub_event fresh = {.job = job};
    snprintf(fresh.type, sizeof fresh.type, "%s", type);
    pthread_mutex_lock(&hub->lock);
    uint64_t id = ++hub->newest;
    fresh.text = sse_text(id, type, json);
    hub->bytes += strlen(fresh.text) + 1;
    while (hub->oldest < id && (id - hub->oldest >= hub->size || hub->bytes > hub->bytes_max))
        forget_oldest(hub);
    hub->events[(id - 1) % hub->size] = fresh;
    void (*on_publish)(void *) = hub->on_publish;
    void *owner = hub->owner;
    pthread_mutex_unlock(&hub->lock);
    if (on_publish)
        on_publish(owner);
    return id;
}

uint64_t hub_newest(struct hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    uint64_t id = hub->newest;
    pthread_mutex_unlock(&hub->lock);
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

char *hub_next(struct hub *hub, uint64_t job, uint64_t after, uint64_t *ret_id, bool *ret_last)
{
    char *text = NULL;
    pthread_mutex_lock(&hub->lock);
    const uint64_t oldest = hub->oldest;
    *ret_last = false;
    if (after > hub->newest || (after && after + 1 < oldest)) {
        text = resync_text(after, oldest, ret_id);
        goto out;
    }
    *ret_id = hub->newest; /* with nothing found: other jobs' events passed over are not looked at again, nor
                              counted as lost */
    for (uint64_t id = after + 1 > oldest ? after + 1 : oldest; id <= hub->newest; id++) {
        const struct hub_event *e = &hub->events[(id - 1) % hub->size];
        if (job && e->job != job)
            continue;
        text = xstrdup(e->text);
        *ret_id = id;
        *ret_last = !strcmp(e->type, "end");
        break;
    }
out:
    pthread_mutex_unlock(&hub->lock);
    return text;
}

void hub_on_publish(struct hub *hub, void (*fn)(void *owner), void *owner)
{
    pthread_mutex_lock(&hub->lock);
    hub->on_publish = fn;
    hub->owner = owner;
    pthread_mutex_unlock(&hub->lock);
}
