/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/name_lookups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/hub/hub_fetch.h"

enum { MOST = 16 /* at once */ };

struct name_lookup {
    LIST_ENTRY(name_lookup) next;
    struct name_lookups *all;
    struct hub_fetch *fetch;
    char model[MODEL_NAME];
    name_answer *done;
    void *owner;
};

struct name_lookups {
    struct fetchers *fetchers; /* borrowed */
    LIST_HEAD(, name_lookup) list;
    size_t n;
};

static void lookup_over(struct name_lookup *q, int r, const char *why)
{
    json_t *answer = r ? NULL : json_pack("{s:s}", "model", q->model);
    LIST_REMOVE(q, next);
    q->all->n--;
    q->done(q->owner, answer, r, why);
    json_decref(answer);
    free(q);
}

static void on_resolved(void *owner, const char *model)
{
    struct name_lookup *q = owner;
    snprintf(q->model, sizeof q->model, "%s", model);
}

static void on_over(void *owner, const char *why, enum fetch_end end)
{
    struct name_lookup *q = owner;
    if (!why && !*q->model)
        why = "ringd-fetch does not say which commit it is";
    lookup_over(q, !why ? 0 : end == FETCH_PASSES ? -EAGAIN : -ENOENT, why);
}

void name_lookups_ask(struct name_lookups *l, const char *name, name_answer *done, void *owner)
{
    static const struct hub_fetch_ops ops = {.resolved = on_resolved, .over = on_over};
    struct model_name read;
    struct err err;
    char whole[MODEL_NAME];
    int r = model_name_read(&read, name, &err);
    if (!r && l->n == MOST)
        r = err_set(&err, -EAGAIN, "%d names of models are being looked up: ask again in a moment", MOST);
    if (r) {
        done(owner, NULL, r, err.text);
        return;
    }
    model_name_write(whole, &read);
    const struct hub_order order = {.what = "resolve", .model = whole};
    struct name_lookup *q = xcalloc(1, sizeof *q);
    *q = (struct name_lookup){.all = l, .done = done, .owner = owner};
    LIST_INSERT_HEAD(&l->list, q, next);
    l->n++;
    if (model_commit_is(read.revision)) {
        snprintf(q->model, sizeof q->model, "%s", whole);
        lookup_over(q, 0, NULL);
    } else if ((r = hub_fetch_start(&q->fetch, l->fetchers, &order, &ops, q, &err))) {
        lookup_over(q, r, err.text);
    }
}

struct name_lookups *name_lookups_new(struct fetchers *fetchers)
{
    struct name_lookups *l = xcalloc(1, sizeof *l);
    l->fetchers = fetchers;
    LIST_INIT(&l->list);
    return l;
}

void name_lookups_free(struct name_lookups *l)
{
    if (!l)
        return;
    while (LIST_FIRST(&l->list)) {
        struct name_lookup *q = LIST_FIRST(&l->list);
        hub_fetch_stop(q->fetch);
        lookup_over(q, -ECANCELED, "ringd is stopping");
    }
    free(l);
}
