/* SPDX-License-Identifier: MIT
 *
 * Owns the lock that keeps events of two threads apart. */
#include "daemon/stage/stage_event.h"

#include <stdarg.h>
#include <stdio.h>

#include "daemon/common/ipc.h"

void stage_events_init(struct stage_events *e, int sock)
{
    e->sock = sock;
    pthread_mutex_init(&e->sending, NULL);
}

void stage_events_done(struct stage_events *e)
{
    pthread_mutex_destroy(&e->sending);
}

void stage_event(struct stage_events *e, const char *kind, json_t *fields)
{
    json_object_set_new(fields, "ev", json_string(kind));
    pthread_mutex_lock(&e->sending);
    ipc_send(e->sock, fields);
    pthread_mutex_unlock(&e->sending);
}

void stage_say(struct stage_events *e, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    stage_event(e, "log", json_pack("{s:s}", "text", text));
}
