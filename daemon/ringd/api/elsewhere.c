/* SPDX-License-Identifier: MIT
 *
 * Owns the two halves and gives them what they need. Called by the API, by messages.c,
 * and where records come in. */
#include "daemon/ringd/api/elsewhere.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/api/job_news.h"
#include "daemon/ringd/api/job_row.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/api/proxy.h"
#include "daemon/ringd/store/store.h"
#include "daemon/common/xalloc.h"

static const char jobs_path[] = "/v1/jobs/";

struct elsewhere {
    struct elsewhere_setup setup;
    struct job_news *news; /* owned */
    struct proxy *proxy;   /* owned; NULL once stopped */
};

/* --- rows ------------------------------------------------------------------------------------- */

/* As this node names it; of a job whose head is lost, with what becomes of it. */
static json_t *dress(struct elsewhere *e, const struct member *head, bool is_up, const json_t *row)
{
    json_t *dressed = json_copy((json_t *)row);
    char text[600] = "";
    if (!is_up && !job_row_ended(row))
        e->setup.describe_lost(e->setup.owner, head->id,
                               (uint64_t)json_integer_value(json_object_get(row, "id")), text, sizeof text);
    if (*text)
        json_object_set_new(dressed, "error", json_string(text));
    json_object_set_new(dressed, "node", json_string(head->name));
    json_object_set_new(
        dressed, "name",
        json_sprintf("%lld@%s", (long long)json_integer_value(json_object_get(row, "id")), head->name));
    json_object_set_new(dressed, "up", json_boolean(is_up));
    return dressed;
}

/* The rows of member i, none for ourselves. */
static const json_t *rows_of(const struct elsewhere *e, size_t i, const struct member **ret_head)
{
    *ret_head = members_at(e->setup.members, i);
    return i ? job_news_of(e->news, (*ret_head)->id) : NULL;
}

void elsewhere_add_rows(struct elsewhere *e, json_t *list)
{
    const struct member *head;
    size_t k;
    json_t *row;
    for (size_t i = 0; e && i < members_count(e->setup.members); i++) {
        const json_t *rows = rows_of(e, i, &head);
        json_array_foreach (rows, k, row)
            json_array_append_new(list, dress(e, head, members_reachable(e->setup.members, head->id), row));
    }
}

void elsewhere_add_remembered(struct elsewhere *e, json_t *list)
{
    size_t i;
    json_t *row;
    if (!e)
        return;
    const json_t *rows = job_news_remembered(e->news);
    json_array_foreach (rows, i, row) {
        json_t *named = json_copy(row);
        json_object_set_new(named, "name",
                            json_sprintf("%lld", (long long)json_integer_value(json_object_get(row, "id"))));
        json_array_append_new(list, named);
    }
}

json_t *elsewhere_in_hand(struct elsewhere *e)
{
    json_t *running = json_array(), *queued = json_array(), *paused = json_array(), *row;
    const struct member *head;
    size_t k;
    for (size_t i = 0; e && i < members_count(e->setup.members); i++) {
        const json_t *rows = rows_of(e, i, &head);
        const bool is_up = members_reachable(e->setup.members, head->id);
        json_array_foreach (rows, k, row) {
            const char *state = json_string_value(json_object_get(row, "state"));
            if (!is_up || job_row_ended(row) || !strcmp(state, job_state_name(JOB_MOVED)))
                continue;
            json_t *dressed = dress(e, head, is_up, row);
            json_array_insert(!strcmp(state, "queued")   ? queued
                              : !strcmp(state, "paused") ? paused
                                                         : running,
                              0, json_object_get(dressed, "name"));
            json_decref(dressed);
        }
    }
    return json_pack("{s:o s:o s:o}", "running", running, "queued", queued, "paused", paused);
}

void elsewhere_namesakes(struct elsewhere *e, uint64_t job, char *ret, size_t size)
{
    const struct member *head;
    size_t k;
    json_t *row;
    *ret = '\0';
    for (size_t i = 0; e && i < members_count(e->setup.members); i++) {
        const json_t *rows = rows_of(e, i, &head);
        json_array_foreach (rows, k, row) {
            const size_t n = strlen(ret);
            if ((uint64_t)json_integer_value(json_object_get(row, "id")) == job)
                snprintf(ret + n, size - n, "%s%llu@%s", n ? ", " : "", (unsigned long long)job, head->name);
        }
    }
}

uint64_t elsewhere_version(const struct elsewhere *e)
{
    return e ? job_news_version(e->news) : 0;
}

/* --- what happens ----------------------------------------------------------------------------- */

void elsewhere_published(struct elsewhere *e, uint64_t job, const char *type)
{
    static const char *const telling[] = {"job", "end", "step", "answer"};
    if (!e || !e->proxy)
        return;
    proxy_published(e->proxy, job);
    for (size_t i = 0; i < sizeof telling / sizeof *telling; i++)
        if (!strcmp(type, telling[i]))
            job_news_touch(e->news, job);
}

void elsewhere_heard(struct elsewhere *e, const uint8_t id[16])
{
    const struct member *m = e && e->proxy ? members_find(e->setup.members, id) : NULL;
    if (m && m != members_self(e->setup.members))
        job_news_heard(e->news, id, m->boot, m->jobs, clock_now());
}

void elsewhere_changed(struct elsewhere *e)
{
    if (e && e->proxy)
        proxy_changed(e->proxy);
}

void elsewhere_take_jobs_ask(struct elsewhere *e, const uint8_t from[16], const json_t *body)
{
    if (e && e->proxy)
        job_news_take_ask(e->news, from, body);
}

void elsewhere_take_jobs_told(struct elsewhere *e, const uint8_t from[16], const json_t *body)
{
    if (e && e->proxy)
        job_news_take_told(e->news, from, body);
}

void elsewhere_take_api_ask(struct elsewhere *e, const uint8_t from[16], const json_t *body)
{
    if (e && e->proxy)
        proxy_take_ask(e->proxy, from, body);
}

void elsewhere_take_api_more(struct elsewhere *e, const uint8_t from[16], const json_t *body)
{
    if (e && e->proxy)
        proxy_take_more(e->proxy, from, body);
}

void elsewhere_take_api_told(struct elsewhere *e, const uint8_t from[16], const json_t *body)
{
    if (e && e->proxy)
        proxy_take_told(e->proxy, from, body);
}

/* --- requests --------------------------------------------------------------------------------- */

static void fail_to_find(const struct cluster *cluster, struct http_call *call, const char *name)
{
    const struct roster *roster = cluster_roster(cluster);
    const struct roster_entry *entry = roster ? roster_named(roster, name) : NULL;
    if (entry && entry->status == ROSTER_ACTIVE)
        http_fail(call, 503, "out-of-reach",
                  "node %s, which is the head of this job, was not seen since this daemon began: ask again "
                  "when `ringctl nodes` shows it up",
                  name);
    else
        http_fail(call, 404, "no-such-node", "there is no node %s: `ringctl nodes` shows the nodes", name);
}

const struct member *elsewhere_node(const struct elsewhere *e, const char *name)
{
    return members_named(e->setup.members, name);
}

static struct proxy_node node_of(const struct member *m)
{
    struct proxy_node node;
    memcpy(node.id, m->id, sizeof node.id);
    snprintf(node.name, sizeof node.name, "%s", m->name);
    return node;
}

/* As its head has said, if this node heard it. */
static const char *deputy_of(const struct elsewhere *e, const uint8_t head[16], uint64_t job)
{
    const json_t *rows = job_news_of(e->news, head);
    size_t i;
    json_t *row;
    json_array_foreach (rows, i, row)
        if ((uint64_t)json_integer_value(json_object_get(row, "id")) == job)
            return json_string_value(json_object_get(row, "deputy"));
    return NULL;
}

bool elsewhere_ask_deputy(struct elsewhere *e, struct http_call *call, const uint8_t head[16], uint64_t job)
{
    struct proxy_node to[RING_MAX_NODES];
    const struct members *members = e->setup.members;
    size_t n = 0;
    if (!e->proxy || http_is_inside(call)) /* who asks us asks the others, too */
        return false;
    const char *name = deputy_of(e, head, job);
    for (size_t i = 1; i < members_count(members) && n < RING_MAX_NODES; i++) {
        const struct member *m = members_at(members, i);
        if (!members_reachable(members, m->id))
            continue;
        to[n++] = node_of(m);
        if (name && !strcmp(name, m->name)) {
            const struct proxy_node first = to[0];
            to[0] = to[n - 1];
            to[n - 1] = first;
        }
    }
    if (n)
        proxy_ask(e->proxy, call, to, n, "was asked for this job", http_path(call));
    return n;
}

static void pass_on(struct elsewhere *e, struct http_call *call, const struct member *head, const char *what,
                    const char *path)
{
    const struct proxy_node to = node_of(head);
    proxy_ask(e->proxy, call, &to, 1, what, path);
}

void elsewhere_pass_on(struct elsewhere *e, struct http_call *call, const char *node, const char *what,
                       const char *path)
{
    const struct member *there = e && e->proxy ? elsewhere_node(e, node) : NULL;
    if (there && there != members_self(e->setup.members) && members_reachable(e->setup.members, there->id) &&
        !http_is_inside(call))
        pass_on(e, call, there, what, path);
    else
        http_fail(call, 503, "out-of-reach",
                  "node %s, which %s, is out of reach: ask again when `ringctl nodes` shows it up", node,
                  what);
}

bool elsewhere_route(struct elsewhere *e, struct http_call *call)
{
    const char *path = http_path(call);
    if (!e || !e->proxy || strncmp(path, jobs_path, sizeof jobs_path - 1) != 0)
        return false;
    const char *word = path + sizeof jobs_path - 1, *end = word + strcspn(word, "/"),
               *at = memchr(word, '@', (size_t)(end - word));
    if (!at)
        return false;
    struct members *members = e->setup.members;
    char *name = xstrndup(at + 1, (size_t)(end - at - 1));
    const struct member *head = elsewhere_node(e, name);
    const char *words = head ? peers_last_words(e->setup.peers, head->id) : "";
    const bool is_ours = head == members_self(members);
    if (is_ours) {
        free(name);
        return false;
    }
    char *there = xasprintf("%.*s%s", (int)(at - path), path, end);
    if (!head)
        fail_to_find(e->setup.cluster, call, name);
    else if (!members_reachable(members, head->id))
        http_fail(
            call, 503, "out-of-reach",
            "node %s, which is the head of this job, is out of reach%s%s: ask again when `ringctl nodes` "
            "shows it up",
            head->name, *words ? ", its last connection ended with: " : "", words);
    else
        pass_on(e, call, head, "is the head of this job", there);
    free(there);
    free(name);
    return true;
}

/* --- what the halves need --------------------------------------------------------------------- */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    struct elsewhere *e = owner;
    return message ? peers_send(e->setup.peers, to, message) : -ENOMEM;
}

static bool reaches(void *owner, const uint8_t id[16])
{
    const struct elsewhere *e = owner;
    return members_reachable(e->setup.members, id);
}

static void handle(void *owner, struct http_call *call)
{
    struct elsewhere *e = owner;
    e->setup.handle(e->setup.owner, call);
}

static char *next_event(void *owner, uint64_t job, uint64_t after, uint64_t *ret_id, bool *ret_last)
{
    struct elsewhere *e = owner;
    return event_log_next(e->setup.events, job, after, ret_id, ret_last);
}

static json_t *short_form(void *owner, uint64_t id)
{
    struct elsewhere *e = owner;
    const struct job *job = coord_find(e->setup.coord, id);
    return job ? job_encode_short(job) : NULL;
}

static void row_changed(void *owner, const uint8_t id[16], const json_t *row)
{
    struct elsewhere *e = owner;
    const struct member *head = members_find(e->setup.members, id);
    json_t *event = head ? dress(e, head, true, row) : NULL;
    char *text = event ? json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text)
        event_log_publish(e->setup.events, 0, "job", text);
    free(text);
    json_decref(event);
}

static void remember(void *arg, const char *list)
{
    struct elsewhere *e = arg;
    json_t *jobs = list ? json_loads(list, 0, NULL) : NULL, *job;
    size_t i;
    json_array_foreach (jobs, i, job) {
        const uint64_t id = (uint64_t)json_integer_value(json_object_get(job, "id"));
        if (coord_find(e->setup.coord, id)) /* it goes on */
            job_news_touch(e->news, id);
        else
            job_news_remember(e->news, job);
    }
    json_decref(jobs);
}

struct elsewhere *elsewhere_new(const struct elsewhere_setup *setup)
{
    struct elsewhere *e = xcalloc(1, sizeof *e);
    e->setup = *setup;
    e->news = job_news_new(&(struct job_news_setup){.send = send_message,
                                                    .short_form = short_form,
                                                    .changed = row_changed,
                                                    .owner = e,
                                                    .boot = members_self(setup->members)->boot});
    e->proxy = proxy_new(&(struct proxy_setup){.base = setup->base,
                                               .mailbox = setup->mailbox,
                                               .ledger = setup->ledger,
                                               .send = send_message,
                                               .reaches = reaches,
                                               .handle = handle,
                                               .next_event = next_event,
                                               .owner = e});
    store_get_jobs(setup->store, JOB_NEWS_ROWS, remember, e);
    return e;
}

void elsewhere_stop(struct elsewhere *e)
{
    if (!e)
        return;
    struct proxy *proxy = e->proxy;
    e->proxy = NULL; /* what ends in it may ask here */
    proxy_free(proxy);
}

void elsewhere_free(struct elsewhere *e)
{
    if (!e)
        return;
    elsewhere_stop(e);
    job_news_free(e->news);
    free(e);
}
