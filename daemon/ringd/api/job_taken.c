/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/job_taken.h"

#include <stdlib.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/timer.h"

/* Lives until the store has answered, which may be long after the call was. */
struct job_taken {
    struct http_call *call; /* owned until it is answered; NULL: it was */
    json_t *answer;         /* owned, as the call */
    struct timer *late;     /* owned */
};

static void answer(void *owner)
{
    struct job_taken *t = owner;
    if (t->call)
        api_reply(t->call, 201, t->answer);
    t->call = NULL;
}

static void on_kept(void *arg, const char *nothing)
{
    struct job_taken *t = arg;
    (void)nothing;
    answer(t);
    timer_free(t->late);
    free(t);
}

void job_taken_answer(struct event_base *base, struct store *store, struct http_call *call, json_t *reply)
{
    struct job_taken *t = xcalloc(1, sizeof *t);
    *t = (struct job_taken){call, reply, timer_new(base, answer, t)};
    timer_set_ms(t->late, JOB_TAKEN_MS);
    store_sync(store, on_kept, t);
}
