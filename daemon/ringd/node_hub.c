/* SPDX-License-Identifier: MIT
 *
 * Wires the models that are named as on a hub: what they borrow, and where their news goes. Called
 * by node.c; loop thread. */
#include <string.h>

#include "daemon/ringd/api/api.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/api/job_row.h"
#include "daemon/ringd/hub/bring.h"
#include "daemon/ringd/hub/supply.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/node_impl.h"
#include "daemon/ringd/peer/peers.h"

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    const struct node *n = owner;
    return peers_send(n->peers, to, message);
}

static void add_use(json_t *uses, const char *model, uint64_t job)
{
    if (model)
        json_array_append_new(uses, json_pack("{s:s s:o}", "model", model, "job",
                                              json_sprintf("%llu", (unsigned long long)job)));
}

static void add_models(json_t *uses, const struct job *job)
{
    const bool is_over = job_state_ended(job->state);
    if (is_over)
        return;
    add_use(uses, job->asked.model, job->id);
    add_use(uses, job->asked.draft_model, job->id);
    add_use(uses, job->asked.adapter, job->id);
    add_use(uses, job->asked.init_adapter, job->id);
    const char *name;
    json_t *adapter;
    json_object_foreach ((json_t *)(uintptr_t)job->asked.adapters, name, adapter)
        add_use(uses, json_string_value(adapter), job->id);
}

/* Of the jobs here and of those of other heads: this node may have a part in any. */
static json_t *uses_of(void *owner)
{
    const struct node *n = owner;
    json_t *uses = json_array(), *rows = json_array(), *row;
    size_t i;
    for (const struct job *job = n->coord ? coord_first(n->coord) : NULL; job; job = job->next)
        add_models(uses, job);
    elsewhere_add_rows(n->elsewhere, rows);
    json_array_foreach (rows, i, row)
        if (!job_row_ended(row) && json_is_string(json_object_get(row, "model")))
            json_array_append_new(uses, json_pack("{s:O s:O}", "model", json_object_get(row, "model"), "job",
                                                  json_object_get(row, "name")));
    json_decref(rows);
    return uses;
}

static void on_changed(void *owner)
{
    const struct node *n = owner;
    if (n->coord)
        coord_changed(n->coord);
    if (n->api)
        api_models_changed(n->api);
}

static void on_coming(void *owner, const struct bring_coming *c)
{
    const struct node *n = owner;
    json_t *event = json_pack("{s:s s:s s:s s:I s:I s:f}", "ev", "coming", "model", c->model, "from", c->from,
                              "done", (json_int_t)c->done, "total", (json_int_t)c->total, "rate", c->rate);
    if (n->workers)
        workers_coming(n->workers, c->model, event);
    json_decref(event);
}

static void on_brought(void *owner, const char *model, const char *why)
{
    const struct node *n = owner;
    if (n->workers)
        workers_brought(n->workers, model, why);
}

void node_open_hub(struct node *n)
{
    n->supply = supply_new(&(struct supply_setup){.base = n->base,
                                                  .opts = n->opts,
                                                  .aside = n->aside,
                                                  .events = n->events,
                                                  .members = n->members,
                                                  .peers = n->peers,
                                                  .relay = n->relay,
                                                  .send = send_message,
                                                  .uses = uses_of,
                                                  .changed = on_changed,
                                                  .coming = on_coming,
                                                  .brought = on_brought,
                                                  .owner = n});
}
