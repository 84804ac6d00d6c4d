/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/http/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/http/api_cluster.h"
#include "daemon/ringd/http/api_files.h"
#include "daemon/ringd/http/api_jobs.h"
#include "daemon/ringd/http/api_models.h"
#include "daemon/ringd/http/api_ring.h"
#include "daemon/ringd/http/api_service.h"
#include "daemon/ringd/http/api_status.h"
#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/http/elsewhere.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/event_log.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/cluster/record.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/http/web.h"
#include "daemon/common/xalloc.h"
#include "engine/num/num.h"

void api_reply(struct http_call *call, int status, json_t *json)
{
    api_reply_rounded(call, status, json, 17);
}

void api_reply_rounded(struct http_call *call, int status, json_t *json, int digits)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(digits));
    json_decref(json);
    if (text)
        http_reply(call, status, "application/json", text, strlen(text));
    else
        http_fail(call, 500, "internal", "the answer could not be written");
    free(text);
}

/* --- what there is ---------------------------------------------------------------------------- */

/* Where a node is reached from here: our own port, a neighbour's address, or the neighbour that
 * relays. */
static void show_address(struct node *n, const struct member *m, char *buf, size_t size)
{
    struct path paths[PEERS_MAX_PATHS];
    const struct member *hop = members_next_hop(n->members, m->id);
    if (m == members_self(n->members))
        snprintf(buf, size, "port %u", peers_port(n->peers));
    else if (peers_paths(n->peers, m->id, paths))
        snprintf(buf, size, "%s:%u", paths[0].host, paths[0].port);
    else
        snprintf(buf, size, "%s%s", hop ? "via " : "-", hop ? hop->name : "");
}

/* Whom it says it is connected to; only where both say so is there a way. */
static json_t *neighbours_show(struct node *n, const struct member *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->nlinks; i++) {
        const struct member *to = members_find(n->members, m->links[i].id);
        if (to)
            json_array_append_new(list, json_pack("{s:s s:I s:b s:b}", "name", to->name, "class_mbps",
                                                  (json_int_t)m->links[i].class_mbps, "shared",
                                                  (int)m->links[i].shared, "mutual",
                                                  (int)members_linked(n->members, m->id, to->id)));
    }
    return list;
}

static json_t *member_show(struct node *n, const struct member *m)
{
    char id[33], address[128];
    id_hex(id, m->id);
    show_address(n, m, address, sizeof address);
    bool self = m == members_self(n->members), up = members_reachable(n->members, m->id);
    return json_pack("{s:s s:s s:b s:s s:s s:s s:i s:i s:I s:I s:o s:o s:o s:s s:f}", "id", id, "name",
                     m->name, "self", (int)self, "state", up ? "up" : "gone", "version", m->version,
                     "address", address, "cores", (int)m->cores, "threads", (int)m->threads, "memory_total",
                     (json_int_t)m->memory_total, "memory_available", (json_int_t)m->memory_available,
                     "neighbours", neighbours_show(n, m), "job",
                     m->job && up ? json_integer((json_int_t)m->job) : json_null(), "rank",
                     m->job && up ? json_integer(m->rank) : json_null(), "doing",
                     up ? m->doing : peers_last_words(n->peers, m->id), "seconds",
                     up ? m->seconds : (double)clock_since_us(clock_now(), m->heard) / 1e6);
}

static void get_nodes(struct node *n, struct http_call *call)
{
    json_t *list = json_array();
    node_refresh_self(n);
    for (size_t i = 0; i < members_count(n->members); i++)
        json_array_append_new(list, member_show(n, members_at(n->members, i)));
    api_reply(call, 200, json_pack("{s:o}", "nodes", list));
}

static void get_links(struct node *n, struct http_call *call)
{
    api_reply(call, 200, json_pack("{s:o}", "links", peers_encode(n->peers)));
}

static void get_ports(struct node *n, struct http_call *call)
{
    api_reply(call, 200,
              json_pack("{s:o s:o s:o}", "ports", cables_encode(n->cables), "elsewhere",
                        cables_elsewhere_encode(n->members), "thunderbolt",
                        cables_thunderbolt_encode(n->cables)));
}

static void get_doctor(struct node *n, struct http_call *call)
{
    doctor_get(n->doctor, call);
}

static void post_doctor(struct node *n, struct http_call *call)
{
    doctor_post(n->doctor, call);
}

static void get_events(struct node *n, struct http_call *call)
{
    const char *after = http_query(call, "after");
    bool from_now = after && !strcmp(after, "now");
    http_stream(call, 0, from_now ? event_log_newest(n->events) : after ? strtoull(after, NULL, 10) : 0);
}

/* The dashboard. Any other path is left to the caller. */
static bool send_page(struct http_call *call)
{
    const struct web_asset *a = strcmp(http_method(call), "GET") ? NULL : web_find(http_path(call));
    if (a)
        http_reply_file(call, a->type, a->tag, a->begin, (size_t)(a->end - a->begin));
    return a;
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct api_route routes[] = {
    {"GET", "/healthz", API_OPEN, api_get_health},
    {"GET", "/metrics", API_READS, api_get_metrics},
    {"POST", "/v1/reload", API_WRITES, api_post_reload},
    {"POST", "/v1/token", API_WRITES, api_post_token},
    {"GET", "/v1/history", API_READS, api_get_history},
    {"GET", "/v1/status", API_READS, api_get_status},
    {"GET", "/v1/ring", API_READS, api_get_ring},
    {"GET", "/v1/nodes", API_READS, get_nodes},
    {"GET", "/v1/links", API_READS, get_links},
    {"GET", "/v1/ports", API_READS, get_ports},
    {"GET", "/v1/doctor", API_READS, get_doctor},
    {"POST", "/v1/doctor", API_WRITES, post_doctor},
    {"GET", "/v1/members", API_READS, api_get_members},
    {"POST", "/v1/cluster/init", API_WRITES, api_post_init},
    {"POST", "/v1/cluster/invite", API_WRITES, api_post_invite},
    {"POST", "/v1/cluster/join", API_WRITES, api_post_join},
    {"POST", "/v1/cluster/remove", API_WRITES, api_post_remove},
    {"POST", "/v1/cluster/promote", API_WRITES, api_post_promote},
    {"GET", "/v1/jobs", API_READS, api_get_jobs},
    {"POST", "/v1/jobs", API_WRITES, api_post_job},
    {"POST", "/v1/plan", API_WRITES, api_post_plan},
    {"GET", "/v1/schedules", API_READS, api_get_schedules},
    {"GET", "/v1/models", API_READS, api_get_models},
    {"GET", "/v1/jobs/{id}", API_READS, api_get_job},
    {"DELETE", "/v1/jobs/{id}", API_WRITES, api_delete_job},
    {"POST", "/v1/jobs/{id}/turn", API_WRITES, api_post_turn},
    {"GET", "/v1/jobs/{id}/log", API_READS, api_get_job_log},
    {"GET", "/v1/jobs/{id}/steps", API_READS, api_get_job_steps},
    {"GET", "/v1/jobs/{id}/evaluations", API_READS, api_get_job_evaluations},
    {"GET", "/v1/jobs/{id}/samples", API_READS, api_get_job_samples},
    {"GET", "/v1/jobs/{id}/timeline", API_READS, api_get_job_timeline},
    {"GET", "/v1/jobs/{id}/timelines", API_READS, api_get_job_timelines},
    {"GET", "/v1/jobs/{id}/events", API_READS, api_get_job_events},
    {"GET", "/v1/jobs/{id}/files", API_WRITES, api_get_job_files},
    {"GET", "/v1/jobs/{id}/files/{name}", API_WRITES, api_get_job_file},
    {"GET", "/v1/events", API_READS, get_events},
};

const struct api_route *api_routes(size_t *ret_n)
{
    *ret_n = sizeof routes / sizeof *routes;
    return routes;
}

/* "{id}" stands for one word between slashes, "{name}" for all that is left. */
static bool matches(const char *pattern, const char *path)
{
    static const char id[] = "{id}", name[] = "{name}";
    const char *hole = strstr(pattern, id);
    if (!hole)
        return !strcmp(pattern, path);
    size_t before = (size_t)(hole - pattern);
    if (strncmp(pattern, path, before))
        return false;
    size_t word = strcspn(path + before, "/");
    const char *after = hole + sizeof id - 1, *rest = path + before + word, *last = strstr(after, name);
    size_t n = last ? (size_t)(last - after) : strlen(after) + 1;
    return word && !strncmp(after, rest, n) && (!last || rest[n]);
}

void api_handle(void *owner, struct http_call *call)
{
    struct node *n = owner;
    const char *method = http_method(call), *path = http_path(call);
    bool known = false;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!matches(routes[i].path, path))
            continue;
        known = true;
        if (strcmp(routes[i].method, method))
            continue;
        http_set_route(call, routes[i].path);
        if (routes[i].access == API_WRITES && !http_may_write(call))
            http_fail(call, 403, "forbidden",
                      "over TCP this needs the token: `ringctl token` prints it there");
        else if (routes[i].access == API_READS && !http_may_read(call))
            http_fail(call, 401, "token",
                      "from another machine everything needs the token: `ringctl token` tells it there");
        else if (!elsewhere_route(n->elsewhere, call))
            routes[i].handle(n, call);
        return;
    }
    if (!known && send_page(call))
        return;
    if (known)
        http_fail(call, 405, "method", "%s does not take %s", path, method);
    else
        http_fail(call, 404, "no-such-route", "%s is not a route of this API", path);
}
