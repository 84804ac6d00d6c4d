/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/http/http_body.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

static const struct body_refusal too_large = {413, "too-large", "a request body may have 8 MiB"},
                                 no_room = {503, "busy",
                                            "other requests take all the memory there is for bodies: "
                                            "send this one again in a moment"};

void body_begin(struct body *body, struct ledger_queue *bodies, const char *length, const char *encoding)
{
    body->bodies = bodies;
    body->announced = length ? strtoull(length, NULL, 10) : 0;
    body->follows = body->announced || encoding;
    if (body->announced > BODY_MAX)
        body->refusal = &too_large;
    else if (ledger_take(bodies, body->announced)) /* taken for good as it comes */
        ledger_give(bodies, body->announced);
    else
        body->refusal = &no_room;
}

void body_add(struct body *body, const char *data, size_t n)
{
    if (!body->refusal && n > BODY_MAX - body->n)
        body->refusal = &too_large;
    const size_t needed = body->n + n + 1, known = body->announced + 1;
    if (!body->refusal && needed > body->room) {
        size_t room = 2 * needed < BODY_MAX + 1 ? 2 * needed : BODY_MAX + 1;
        room = known >= needed && known < room ? known : room;
        if (ledger_take(body->bodies, room - body->room)) {
            body->data = xrealloc(body->data, room);
            body->room = room;
        } else {
            body->refusal = &no_room;
        }
    }
    if (body->refusal) {
        body_done(body);
        return;
    }
    memcpy(body->data + body->n, data, n);
    body->n += n;
    body->data[body->n] = '\0';
}

void body_done(struct body *body)
{
    if (body->bodies)
        ledger_give(body->bodies, body->room);
    free(body->data);
    body->data = NULL;
    body->n = body->room = 0;
}
