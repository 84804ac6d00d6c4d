/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_commit.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/store/store.h"

struct job_commit {
    struct store *store;
    const struct job_post *post;
    const struct job *job; /* borrowed: asks; NULL: none does, or not any more */
    int64_t number, asked; /* the latest, and the one that the store works on, */
    uint32_t attempt;      /* of this attempt */
    bool is_waiting;       /* for the store */
    bool is_free;          /* it has the last reference */
};

static void ask_store(struct job_commit *c);

static void on_synced(void *arg, const char *nothing)
{
    struct job_commit *c = arg;
    (void)nothing;
    c->is_waiting = false;
    if (c->is_free) {
        free(c);
        return;
    }
    const bool is_same = c->job && c->job->attempt == c->attempt;
    if (is_same)
        job_send_turn(c->post, c->job, json_pack("{s:I}", "committed", (json_int_t)c->asked));
    if (c->job && (!is_same || c->number != c->asked))
        ask_store(c);
}

static void ask_store(struct job_commit *c)
{
    c->asked = c->number;
    c->attempt = c->job->attempt;
    c->is_waiting = true;
    store_sync(c->store, on_synced, c);
}

void job_commit_ask(struct job_commit *c, const struct job *job, int64_t number)
{
    c->job = job;
    c->number = number;
    if (!c->is_waiting)
        ask_store(c);
}

void job_commit_forget(struct job_commit *c)
{
    c->job = NULL;
}

struct job_commit *job_commit_new(struct store *store, const struct job_post *post)
{
    struct job_commit *c = xcalloc(1, sizeof *c);
    *c = (struct job_commit){.store = store, .post = post};
    return c;
}

void job_commit_free(struct job_commit *c)
{
    if (!c)
        return;
    c->is_free = true;
    if (!c->is_waiting)
        free(c);
}
