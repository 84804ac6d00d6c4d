/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/holders.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/hub/census.h"

struct holders_call {
    LIST_ENTRY(holders_call) next;
    struct holders *h;
    json_t *store; /* owned */
    holders_answer *done;
    void *owner;
};

struct holders {
    struct model_census *census;
    struct members *members;
    LIST_HEAD(, holders_call) calls;
};

/* --- what was said ---------------------------------------------------------------------------- */

/* What is said of other files is of no use here, but to know that they are others. Numbers are
 * another node's. */
static json_t *holder_of(const json_t *node, const json_t *have, const char *content)
{
    const char *its = json_string_value(json_object_get(have, "content"));
    const json_int_t all = json_integer_value(json_object_get(have, "bytes")),
                     here = json_integer_value(json_object_get(have, "here"));
    const bool is_same = !content || !*content || !its || !*its || !strcmp(content, its);
    return json_pack("{s:O s:b s:b s:I s:I}", "node", node, "same", is_same, "whole",
                     json_is_true(json_object_get(have, "whole")), "here", here > 0 ? here : 0, "bytes",
                     all > 0 ? all : 0);
}

/* By their names: each node knows the others in an order of its own. */
static void add_sorted(json_t *list, json_t *one)
{
    const char *name = json_string_value(json_object_get(one, "node"));
    size_t at = 0;
    while (at < json_array_size(list) &&
           strcmp(json_string_value(json_object_get(json_array_get(list, at), "node")), name) < 0)
        at++;
    json_array_insert_new(list, at, one);
}

static void add_unheard(json_t *store, const json_t *node, const json_t *why)
{
    add_sorted(json_object_get(store, "unheard"), json_pack("{s:O s:O}", "node", node, "why", why));
}

void holders_add(json_t *store, const json_t *answers)
{
    const json_t *models = json_object_get(store, "models");
    size_t i, k;
    json_t *m, *a;
    if (!json_object_get(store, "unheard"))
        json_object_set_new(store, "unheard", json_array());
    json_array_foreach (models, i, m) {
        const char *model = json_string_value(json_object_get(m, "model")),
                   *content = json_string_value(json_object_get(m, "content"));
        json_t *list = json_array();
        json_array_foreach (answers, k, a) {
            const json_t *have = json_object_get(json_object_get(a, "models"), model);
            if (json_is_object(have))
                add_sorted(list, holder_of(json_object_get(a, "node"), have, content));
        }
        json_object_set_new(m, "holders", list);
    }
    json_array_foreach (answers, k, a)
        if (json_object_get(a, "why"))
            add_unheard(store, json_object_get(a, "node"), json_object_get(a, "why"));
}

/* --- calls ------------------------------------------------------------------------------------ */

static void call_over(struct holders_call *c, int r, const char *why)
{
    census_forget(c->h->census, c);
    LIST_REMOVE(c, next);
    c->done(c->owner, r ? NULL : c->store, r, why);
    json_decref(c->store);
    free(c);
}

static void on_counted(void *owner, const json_t *answers)
{
    struct holders_call *c = owner;
    holders_add(c->store, answers);
    call_over(c, 0, NULL);
}

static json_t *names_of(const json_t *store)
{
    json_t *names = json_array(), *m;
    size_t i;
    json_array_foreach (json_object_get(store, "models"), i, m) {
        const json_t *name = json_object_get(m, "model");
        if (json_array_size(names) < CENSUS_MODELS && model_name_is_exact(json_string_value(name)))
            json_array_append(names, (json_t *)name);
    }
    return names;
}

/* Those that can be reached; the others are named at once. */
static size_t list_others(const struct members *members, json_t *store, uint8_t (*ret)[16])
{
    size_t n = 0;
    for (size_t i = 1; i < members_count(members); i++) {
        const struct member *m = members_at(members, i);
        json_t *node = json_string(m->name), *why = json_string("cannot be reached");
        if (!members_reachable(members, m->id))
            add_unheard(store, node, why);
        else if (n < RING_MAX_NODES)
            memcpy(ret[n++], m->id, 16);
        json_decref(node);
        json_decref(why);
    }
    return n;
}

void holders_ask(struct holders *h, const json_t *store, holders_answer *done, void *owner)
{
    uint8_t ids[RING_MAX_NODES][16];
    struct holders_call *c = xcalloc(1, sizeof *c);
    *c = (struct holders_call){.h = h, .store = json_deep_copy(store), .done = done, .owner = owner};
    LIST_INSERT_HEAD(&h->calls, c, next);
    json_object_set_new(c->store, "unheard", json_array());
    const size_t n = list_others(h->members, c->store, ids);
    json_t *names = names_of(c->store);
    if (!n || !json_array_size(names)) {
        holders_add(c->store, NULL);
        call_over(c, 0, NULL);
    } else if (census_ask(h->census, ids, n, names, false, on_counted, c)) {
        call_over(c, -EAGAIN, "this node asks the others too much at once: ask again in a moment");
    }
    json_decref(names);
}

struct holders *holders_new(struct model_census *census, struct members *members)
{
    struct holders *h = xcalloc(1, sizeof *h);
    *h = (struct holders){.census = census, .members = members};
    LIST_INIT(&h->calls);
    return h;
}

void holders_free(struct holders *h)
{
    if (!h)
        return;
    while (LIST_FIRST(&h->calls))
        call_over(LIST_FIRST(&h->calls), -ECANCELED, "ringd is stopping");
    free(h);
}
