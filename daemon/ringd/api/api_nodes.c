/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by api.c. */
#include "daemon/ringd/api/api_nodes.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/peer/peers.h"

/* --- what there is ---------------------------------------------------------------------------- */

/* Where a node is reached from here: our own port, a neighbour's address, or the neighbour that
 * relays. */
static void show_address(struct api *api, const struct member *m, char *buf, size_t size)
{
    struct path paths[PEERS_MAX_PATHS];
    const struct member *hop = members_next_hop(api->setup.members, m->id);
    if (m == members_self(api->setup.members))
        snprintf(buf, size, "port %u", peers_port(api->setup.peers));
    else if (peers_paths(api->setup.peers, m->id, paths))
        snprintf(buf, size, "%s:%u", paths[0].host, paths[0].port);
    else
        snprintf(buf, size, "%s%s", hop ? "via " : "-", hop ? hop->name : "");
}

/* Whom it says it is connected to; only where both say so is there a way. */
static json_t *neighbours_show(const struct members *members, const struct member *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->nlinks; i++) {
        const struct member *to = members_find(members, m->links[i].id);
        if (to)
            json_array_append_new(list, json_pack("{s:s s:I s:b s:b}", "name", to->name, "class_mbps",
                                                  (json_int_t)m->links[i].class_mbps, "shared",
                                                  (int)m->links[i].shared, "mutual",
                                                  (int)members_linked(members, m->id, to->id)));
    }
    return list;
}

/* Which job, of which head: numbers are those of heads. */
static json_t *stages_show(const struct members *members, const struct member *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->nstages; i++) {
        const struct member_stage *s = &m->stages[i];
        const struct member *head = members_find(members, s->head);
        json_array_append_new(list, json_pack("{s:I s:s s:i s:s s:I s:s s:f}", "job", (json_int_t)s->job,
                                              "head", head ? head->name : "?", "rank", s->rank, "class",
                                              job_class_name(s->class), "planned_bytes", (json_int_t)s->bytes,
                                              "doing", s->doing, "seconds", s->seconds));
    }
    return list;
}

static json_t *member_show(struct api *api, const struct member *m)
{
    char id[33], address[128];
    id_hex(id, m->id);
    show_address(api, m, address, sizeof address);
    bool self = m == members_self(api->setup.members), up = members_reachable(api->setup.members, m->id);
    const struct member_stage *first = m->nstages ? &m->stages[0] : NULL;
    return json_pack("{s:s s:s s:b s:s s:s s:s s:i s:i s:I s:I s:o s:o s:s s:s s:f}", "id", id, "name",
                     m->name, "self", (int)self, "state", up ? "up" : "gone", "version", m->version,
                     "address", address, "cores", (int)m->cores, "threads", (int)m->threads, "memory_total",
                     (json_int_t)m->memory_total, "memory_available", (json_int_t)m->memory_available,
                     "neighbours", neighbours_show(api->setup.members, m), "stages",
                     up ? stages_show(api->setup.members, m) : json_array(), "drained", m->drained, "doing",
                     !up     ? peers_last_words(api->setup.peers, m->id)
                     : first ? first->doing
                             : "idle",
                     "seconds",
                     !up     ? (double)clock_since_us(clock_now(), m->heard) / 1e6
                     : first ? first->seconds
                             : 0.0);
}

void api_get_nodes(struct api *api, struct http_call *call)
{
    json_t *list = json_array();
    api->setup.self_shown(api->setup.owner);
    for (size_t i = 0; i < members_count(api->setup.members); i++)
        json_array_append_new(list, member_show(api, members_at(api->setup.members, i)));
    api_reply(call, 200, json_pack("{s:o}", "nodes", list));
}

void api_get_links(struct api *api, struct http_call *call)
{
    api_reply(call, 200, json_pack("{s:o}", "links", peers_encode(api->setup.peers)));
}

void api_get_ports(struct api *api, struct http_call *call)
{
    api_reply(call, 200,
              json_pack("{s:o s:o s:o}", "ports", cables_encode(api->setup.cables), "elsewhere",
                        api->setup.cables_elsewhere(api->setup.owner), "thunderbolt",
                        cables_thunderbolt_encode(api->setup.cables)));
}

/* --- the doctor ------------------------------------------------------------------------------- */

static void on_examined(void *arg, json_t *answer)
{
    struct http_call *call = arg;
    if (answer)
        api_reply(call, 200, answer);
    else
        http_fail(call, 503, "ending", "the daemon ends");
}

static void examine(struct api *api, struct http_call *call, const char *model, bool is_deep)
{
    struct err err;
    int r = doctor_examine(api->setup.doctor, model, is_deep, on_examined, call, &err);
    if (r == -EBUSY)
        http_fail(call, 503, "busy", "%s", err.text);
    else if (r)
        http_fail(call, 400, "bad-request", "%s", err.text);
}

void api_get_doctor(struct api *api, struct http_call *call)
{
    examine(api, call, http_query(call, "model"), false);
}

void api_post_doctor(struct api *api, struct http_call *call)
{
    size_t n;
    const char *text = http_body(call, &n);
    json_t *body = json_loadb(text ? text : "", n, 0, NULL);
    const char *model = json_string_value(json_object_get(body, "model"));
    if (model)
        examine(api, call, model, true);
    else
        http_fail(call, 400, "bad-request", "the body names no model: {\"model\":\"/path\"}");
    json_decref(body);
}

/* --- draining --------------------------------------------------------------------------------- */

static const struct member *find_node(const struct api *api, const char *name)
{
    for (size_t i = 0; name && i < members_count(api->setup.members); i++) {
        const struct member *m = members_at(api->setup.members, i);
        if (!strcmp(m->name, name))
            return m;
    }
    return NULL;
}

static void drain(struct api *api, struct http_call *call, bool is_drained)
{
    size_t size;
    const char *text = http_body(call, &size);
    json_t *body = text ? json_loadb(text, size, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(body, "node")),
               *given = json_string_value(json_object_get(body, "reason")),
               *reason = !is_drained       ? ""
                         : given && *given ? given
                                           : "its operator takes it out";
    const struct member *m = find_node(api, name);
    if (!m)
        http_fail(call, 404, "no-such-node", "there is no node %s: `ringctl nodes` lists them",
                  name ? name : "without a name");
    else if (strlen(reason) >= sizeof m->drained)
        http_fail(call, 400, "bad-request", "the reason has %zu bytes, and %zu are allowed", strlen(reason),
                  sizeof m->drained - 1);
    else if (api->setup.drain(api->setup.owner, m->id, reason))
        http_fail(call, 503, "not-reached", "node %s is out of reach: it takes no part in jobs as it is",
                  m->name);
    else
        api_reply(call, 200,
                  json_pack("{s:s s:s s:o}", "node", m->name, "reason", reason, "stages",
                            stages_show(api->setup.members, m)));
    json_decref(body);
}

void api_post_drain(struct api *api, struct http_call *call)
{
    drain(api, call, true);
}

void api_post_undrain(struct api *api, struct http_call *call)
{
    drain(api, call, false);
}
