/* SPDX-License-Identifier: MIT
 *
 * Wires the modules that run and plan jobs: what they borrow, and where their news goes. Called by
 * node.c; loop thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/api/job_row.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/api/metrics_text.h"
#include "daemon/ringd/job/machine/cgroup.h"
#include "daemon/ringd/hub/supply.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/plan/cost_query.h"
#include "daemon/ringd/job/plan/cost_server.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/deputy/ballots.h"
#include "daemon/ringd/job/deputy/deputy.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/survive/loan_store.h"
#include "daemon/ringd/job/plan/plan_request.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/survive/held_disk.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/node_impl.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/serve/desk.h"
#include "daemon/ringd/service.h"
#include "daemon/ringd/store/store.h"

static void on_begins(void *owner)
{
    node_refresh_self(owner);
}

/* --- coord ------------------------------------------------------------------------------------ */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    const struct node *n = owner;
    return peers_send(n->peers, to, message);
}

static const char *last_words(void *owner, const uint8_t id[16])
{
    const struct node *n = owner;
    return peers_last_words(n->peers, id);
}

static void note_used(const struct node *n, const json_t *model)
{
    if (n->supply && json_is_string(model))
        supply_used(n->supply, json_string_value(model));
}

static void plan_here(void *owner, uint64_t job, uint32_t attempt, const struct origin *origin,
                      enum job_type type, json_t *spec, json_t *nodes, struct loan *loan)
{
    const struct node *n = owner;
    static const char *const names[] = {"model", "draft_model", "adapter", "init_adapter"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        note_used(n, json_object_get(spec, names[i]));
    const char *name;
    json_t *path;
    json_object_foreach (json_object_get(spec, "adapters"), name, path)
        note_used(n, path);
    workers_plan(n->workers, job, attempt, origin, type, spec, nodes, loan);
}

static void end_serving(const struct node *n, uint64_t id)
{
    const struct job *job = coord_find(n->coord, id);
    if (job)
        desk_ended(n->desk, id, *job->error ? job->error : "it was stopped");
}

static bool is_wanted(void *owner, uint64_t job, const char *name)
{
    const struct node *n = owner;
    return n->desk && desk_wants(n->desk, job, name);
}

static void on_replaced(void *owner, uint64_t job, const char *name, const char *former)
{
    const struct node *n = owner;
    if (n->desk)
        desk_rename(n->desk, job, name, former);
}

/* By the rows that their heads sent. */
static size_t deployments(void *owner, const char *name, const char *model, struct coord_deployment *ret)
{
    const struct node *n = owner;
    json_t *rows = json_array(), *row;
    size_t i, found = 0;
    elsewhere_add_rows(n->elsewhere, rows);
    json_array_foreach (rows, i, row) {
        const char *serves = json_string_value(json_object_get(row, "serves")),
                   *of = json_string_value(json_object_get(row, "model")),
                   *node = json_string_value(json_object_get(row, "node"));
        const struct member *head = node ? elsewhere_node(n->elsewhere, node) : NULL;
        const bool fits = name ? serves && !strcmp(serves, name) : serves && of && !strcmp(of, model);
        if (!fits || !head || job_row_ended(row) || !json_is_true(json_object_get(row, "up")) || found++)
            continue;
        memcpy(ret->node, head->id, sizeof ret->node);
        ret->job = (uint64_t)json_integer_value(json_object_get(row, "id"));
    }
    json_decref(rows);
    return found;
}

static void on_published(void *owner, uint64_t job, const char *type)
{
    const struct node *n = owner;
    elsewhere_published(n->elsewhere, job, type);
    if (n->deputy && !strcmp(type, "end"))
        deputy_ended(n->deputy, job);
    if (n->desk && !strcmp(type, "end"))
        end_serving(n, job);
}

static bool has_model(void *owner, const char *model, const struct members_ring *ring, char *why, size_t size)
{
    const struct node *n = owner;
    return ring ? supply_is_there(n->supply, model, ring, why, size)
                : supply_has_whole(n->supply, model, why, size);
}

static json_t *holders(void *owner, const char *model, bool *ret_parts)
{
    const struct node *n = owner;
    return supply_holders(n->supply, model, ret_parts);
}

static void open_coord(struct node *n)
{
    n->coord = coord_new(&(struct coord_setup){.base = n->base,
                                               .opts = n->opts,
                                               .state_dir = n->state_dir,
                                               .cluster = n->cluster,
                                               .members = n->members,
                                               .store = n->store,
                                               .metrics = n->metrics,
                                               .events = n->events,
                                               .ledger = n->ledger,
                                               .aside = n->aside,
                                               .loan_store = n->loan_store,
                                               .send = send_message,
                                               .last_words = last_words,
                                               .plan = plan_here,
                                               .has_model = n->supply ? has_model : NULL,
                                               .holders = n->supply ? holders : NULL,
                                               .begins = on_begins,
                                               .deployments = deployments,
                                               .is_wanted = is_wanted,
                                               .replaced = on_replaced,
                                               .published = on_published,
                                               .owner = n});
}

/* --- jobs that may change hands --------------------------------------------------------------- */

static struct file_set *files_for(void *owner, const uint8_t to[16], uint64_t job)
{
    const struct node *n = owner;
    struct file_set *inputs = coord_files(n->coord, to, job),
                    *offered = coord_offered_files(n->coord, to, job);
    return inputs ? inputs : offered ? offered : deputy_files(n->deputy, to, job);
}

static bool works_on(void *owner, const struct origin *of)
{
    const struct node *n = owner;
    return workers_work_on(n->workers, of);
}

static bool on_taken(void *owner, uint64_t as, const json_t *entry, struct loan *loan,
                     const struct job_head *from)
{
    const struct node *n = owner;
    struct err err;
    const int r = coord_take_over(n->coord, entry, loan, from, &err);
    if (r)
        log_job(LOG_LEVEL_WARNING, as, "a job that was taken over cannot go on: %s", err.text);
    return !r;
}

/* What does not wait for its files opens them by itself. */
static bool lend_again(void *owner, uint64_t job, struct loan *loan)
{
    const struct node *n = owner;
    struct err err;
    const int r = loan ? coord_lend(n->coord, job, loan, &err) : -EALREADY;
    if (r && r != -ENOENT && r != -EALREADY)
        log_job(LOG_LEVEL_WARNING, job, "its inputs are not those that it had: %s", err.text);
    return coord_find(n->coord, job);
}

static void open_ballots(struct node *n)
{
    char *text = store_notes(n->store);
    n->notes = text ? json_loads(text, 0, NULL) : NULL;
    n->ballots = ballots_new(n->store, n->notes, time(NULL));
    free(text);
}

static void open_deputy(struct node *n)
{
    n->parts = parts_new(&(struct parts_setup){
        .base = n->base, .aside = n->aside, .send = send_message, .files = files_for, .owner = n});
    n->deputy = deputy_new(&(struct deputy_setup){.base = n->base,
                                                  .state_dir = n->state_dir,
                                                  .aside = n->aside,
                                                  .loans = n->loans,
                                                  .members = n->members,
                                                  .store = n->store,
                                                  .ballots = n->ballots,
                                                  .parts = n->parts,
                                                  .notes = n->notes,
                                                  .send = send_message,
                                                  .works = works_on,
                                                  .taken = on_taken,
                                                  .owner = n});
    json_decref(n->notes);
    n->notes = NULL;
    deputy_lend(n->deputy, lend_again, n);
}

/* --- plans ------------------------------------------------------------------------------------ */

static void on_planned(void *owner, struct http_call *call, json_t *answer)
{
    (void)owner;
    api_reply(call, 200, answer);
}

static void on_refused(void *owner, struct http_call *call, enum plan_refusal kind, const char *why)
{
    static const char *const codes[] = {"refused", "busy", "stopping"};
    (void)owner;
    http_fail(call, kind == PLAN_REFUSED ? 409 : 503, codes[kind], "%s", why);
}

static void travel(void *owner, struct spawn *stage, const json_t *event)
{
    const struct node *n = owner;
    supply_travel(n->supply, stage, event);
}

static void forget_travel(void *owner, const struct spawn *stage)
{
    const struct node *n = owner;
    supply_forget_travel(n->supply, stage);
}

static void open_plan_request(struct node *n)
{
    n->plan_request =
        plan_request_new(&(struct plan_request_setup){.spawner = n->spawner,
                                                      .coord = n->coord,
                                                      .cost_query = n->cost_query,
                                                      .workers = n->workers,
                                                      .travel = n->supply ? travel : NULL,
                                                      .forget_travel = n->supply ? forget_travel : NULL,
                                                      .begins = on_begins,
                                                      .planned = on_planned,
                                                      .refused = on_refused,
                                                      .owner = n});
}

/* Whoever times a model or reads one for others leaves the machine to the job. */
static void on_stage_begins(void *owner)
{
    struct node *n = owner;
    cost_server_yield(n->cost_server);
    doctor_yield(n->doctor);
    plan_request_yield(n->plan_request);
}

static void on_worker_changed(void *owner)
{
    node_changed(owner);
    node_left_job(owner);
}

static void open_spawner(struct node *n)
{
    char *groups = cgroup_find_room();
    n->spawner = spawner_new(
        &(struct spawner_setup){.base = n->base, .opts = n->opts, .threads = &n->threads, .groups = groups});
    free(groups);
}

static void on_kept(void *owner, json_t *event)
{
    const struct node *n = owner;
    workers_kept(n->workers, event);
}

/* Without it jobs run all the same. */
static void open_held_disk(struct node *n)
{
    size_t removed = 0;
    struct err err;
    const struct held_disk_setup setup = {
        .state_dir = n->state_dir, .mailbox = n->mailbox, .kept = on_kept, .owner = n};
    if (held_disk_open(&n->held_disk, &setup, &removed, &err))
        log_warning("%s: jobs have no copies on this node's disk", err.text);
    if (removed)
        log_info("copies of %zu job%s, which nobody has asked for in %d days, were removed from %s/held",
                 removed, removed == 1 ? "" : "s", HELD_DISK_DAYS, n->state_dir);
}

static bool on_served(void *owner, uint64_t job, const char *kind, const json_t *event)
{
    const struct node *n = owner;
    return n->desk && desk_hear(n->desk, job, kind, event);
}

static const char *content_of(void *owner, const char *model)
{
    const struct node *n = owner;
    return supply_content(n->supply, model);
}

static void bring(void *owner, const char *model, const json_t *blocks, const json_t *from, bool parts)
{
    const struct node *n = owner;
    supply_bring(n->supply, model, blocks, from, parts);
}

static uint64_t free_memory(void *owner)
{
    const struct node *n = owner;
    node_refresh_self(owner);
    return members_self(n->members)->memory_available;
}

static void open_workers(struct node *n)
{
    n->workers =
        workers_new(&(struct workers_setup){.each = {.base = n->base,
                                                     .cluster = n->cluster,
                                                     .opts = n->opts,
                                                     .threads = &n->threads,
                                                     .spawner = n->spawner,
                                                     .members = n->members,
                                                     .peers = n->peers,
                                                     .relay = n->relay,
                                                     .cost_query = n->cost_query,
                                                     .ballots = n->ballots,
                                                     .store = n->store,
                                                     .held_disk = n->held_disk,
                                                     .owner = n,
                                                     .stage_begins = on_stage_begins,
                                                     .changed = on_worker_changed,
                                                     .content = n->supply ? content_of : NULL,
                                                     .bring = n->supply ? bring : NULL,
                                                     .travel = n->supply ? travel : NULL,
                                                     .forget_travel = n->supply ? forget_travel : NULL,
                                                     .served = on_served},
                                            .free_memory = free_memory});
}

void node_open_job(struct node *n)
{
    n->loans = loan_book_new(n->ledger, n->state_dir);
    open_ballots(n);
    n->loan_store = loan_store_new(n->base, n->loans, 0);
    n->cost_query =
        cost_query_new(&(struct cost_query_setup){.base = n->base, .members = n->members, .peers = n->peers});
    open_spawner(n);
    open_held_disk(n);
    open_workers(n);
    open_coord(n);
    open_deputy(n);
    n->cost_server = cost_server_new(&(struct cost_server_setup){.base = n->base,
                                                                 .threads = &n->threads,
                                                                 .spawner = n->spawner,
                                                                 .peers = n->peers,
                                                                 .workers = n->workers});
    open_plan_request(n);
}

void node_metrics_sources(const struct node *n, struct metrics_sources *ret)
{
    *ret = (struct metrics_sources){.metrics = n->metrics,
                                    .members = n->members,
                                    .peers = n->peers,
                                    .workers = n->workers,
                                    .coord = n->coord,
                                    .store = n->store,
                                    .ledger = n->ledger,
                                    .desk = n->desk,
                                    .lateness = service_lateness(n->service)};
}
