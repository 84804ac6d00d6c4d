/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/api_cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/peer/peers_socket.h"
#include "daemon/common/optable.h"
#include "daemon/common/xalloc.h"

enum { TTL_MAX_S = 7 * 86400, TTL_S = 3600 };

/* The body as an object; an empty one is fine. NULL: answered already. */
static json_t *body_of(struct http_call *call)
{
    size_t size;
    const char *body = http_body(call, &size);
    json_t *json = size ? json_loadb(body, size, 0, NULL) : json_object();

    if (json_is_object(json))
        return json;
    json_decref(json);
    http_fail(call, 400, "bad-request", "the body must be a JSON object");
    return NULL;
}

/* 409: the request was understood, and the cluster's state is against it. */
static void refuse(struct http_call *call, const char *text)
{
    http_fail(call, 409, "refused", "%s", text);
}

/* "K4F2-9QXM-0T3B-V7RD": 80 bits of an id, enough to tell and to type. */
static void write_short_id(char out[20], const uint8_t id[static CERT_ID])
{
    char digits[20];

    token_base32(digits, id, 10);
    snprintf(out, 20, "%.4s-%.4s-%.4s-%.4s", digits, digits + 4, digits + 8, digits + 12);
}

/* --- who there is --- */

static json_t *member_show(struct api *api, const struct roster_entry *e)
{
    const struct member *m = members_find(api->setup.members, e->id);
    bool self = m && m == members_self(api->setup.members), up = members_reachable(api->setup.members, e->id);
    char id[33], short_id[20];

    id_hex(id, e->id);
    write_short_id(short_id, e->id);
    return json_pack("{s:s s:s s:s s:s s:b s:b s:b s:I s:o}", "id", id, "short_id", short_id, "name", e->name,
                     "status", e->status == ROSTER_ACTIVE ? "active" : "removed", "authority",
                     (int)e->authority, "self", (int)self, "up", (int)up, "serial", (json_int_t)e->serial,
                     "last_seen_seconds",
                     up  ? json_real(0)
                     : m ? json_real((double)clock_since_us(clock_now(), m->heard) / 1e6)
                         : json_null());
}

void api_get_members(struct api *api, struct http_call *call)
{
    const struct roster *r = cluster_roster(api->setup.cluster);
    json_t *list = json_array(), *cluster = json_object();
    char id[33];

    json_object_set_new(cluster, "state", json_string(cluster_state_name(cluster_state(api->setup.cluster))));
    if (r) {
        id_hex(id, r->cluster_id);
        json_object_update_missing_new(cluster, json_pack("{s:s s:s s:I s:i}", "id", id, "name", r->name,
                                                          "roster_version", (json_int_t)r->version,
                                                          "key_generation", (int)r->generation));
        for (size_t i = 0; i < r->n; i++)
            json_array_append_new(list, member_show(api, &r->at[i]));
    }
    api_reply(call, 200, json_pack("{s:o s:o}", "cluster", cluster, "members", list));
}

/* --- what waits for the disk --- */

/* The answer goes out once the change is on the disk. */
struct change {
    struct http_call *call;
    int status;
    json_t *answer; /* owned */
};

static void on_kept(void *arg, const char *error)
{
    struct change *c = arg;
    if (error)
        refuse(c->call, error);
    else
        api_reply(c->call, c->status, json_incref(c->answer));
    json_decref(c->answer);
    free(c);
}

/* Takes over the answer. */
static void answer_when_kept(struct api *api, struct http_call *call, int status, json_t *answer)
{
    const struct change c = {call, status, answer};
    cluster_when_kept(api->setup.cluster, on_kept, xmemdup(&c, sizeof c));
}

/* --- making, inviting --- */

void api_post_init(struct api *api, struct http_call *call)
{
    json_t *body = body_of(call);
    const char *name = json_string_value(json_object_get(body, "name"));
    struct err err;
    char id[33];
    if (!body)
        return;
    if (cluster_init(api->setup.cluster, name ? name : "ring", opts_str(api->setup.opts, "name"),
                     (uint64_t)time(NULL), &err)) {
        refuse(call, err.text);
    } else {
        id_hex(id, cluster_roster(api->setup.cluster)->cluster_id);
        answer_when_kept(api, call, 201,
                         json_pack("{s:s s:s s:s}", "id", id, "name",
                                   cluster_roster(api->setup.cluster)->name, "node",
                                   cluster_cert(api->setup.cluster)->name));
    }
    json_decref(body);
}

void api_post_invite(struct api *api, struct http_call *call)
{
    json_t *body = body_of(call), *given = json_object_get(body, "ttl");
    json_int_t ttl = given ? json_integer_value(given) : TTL_S;
    char text[TOKEN_TEXT];
    struct err err;
    if (!body)
        return;
    if (ttl < 1 || ttl > TTL_MAX_S) {
        http_fail(call, 400, "bad-request", "ttl: a token lives from 1 s to %d days", TTL_MAX_S / 86400);
    } else if (cluster_invite(api->setup.cluster, (uint64_t)ttl, (uint64_t)time(NULL), text, &err)) {
        refuse(call, err.text);
    } else {
        enrol_share(api->setup.enrol);
        answer_when_kept(api, call, 201, json_pack("{s:s s:I}", "token", text, "ttl", ttl));
    }
    json_decref(body);
}

/* --- joining: answered when it is over --- */

struct waiting {
    struct api *api;
    struct http_call *call;
};

static void joined(void *arg, const char *error)
{
    struct waiting *w = arg;
    const struct cert *cert = cluster_cert(w->api->setup.cluster);

    if (error)
        refuse(w->call, error);
    else
        api_reply(
            w->call, 201,
            json_pack("{s:s s:s}", "name", cluster_roster(w->api->setup.cluster)->name, "node", cert->name));
    free(w);
}

/* A member that was removed while it was away does not know it, and then reaches no other. One that
 * reaches another has nothing to join; trying would cost it that connection. NULL: it may join. */
static const char *in_touch_with(const struct api *api, const char *text)
{
    const struct members *members = api->setup.members;
    const bool is_own = enrol_is_own(api->setup.enrol, text);
    for (size_t i = 1; is_own && i < members_count(members); i++)
        if (members_reachable(members, members_at(members, i)->id))
            return members_at(members, i)->name;
    return NULL;
}

/* Without --peer a member is found by beacons. */
static bool can_search(const struct api *api)
{
    return strcmp(opts_str(api->setup.opts, "discover"), "off") != 0;
}

void api_post_join(struct api *api, struct http_call *call)
{
    json_t *body = body_of(call);
    const char *token = json_string_value(json_object_get(body, "token")),
               *peer = json_string_value(json_object_get(body, "peer"));
    char host[128] = "";
    uint16_t port = 0;
    struct err err;
    if (!body)
        return;
    struct waiting *w = xmemdup(&(struct waiting){api, call}, sizeof *w);
    if (!token) {
        http_fail(call, 400, "bad-request", "token: the line `ringctl invite` printed is missing");
    } else if (peer && (peers_split_address(peer, host, sizeof host, &port) || !*host || !port)) {
        http_fail(call, 400, "bad-request", "--peer %s is not HOST:PORT", peer);
    } else if (in_touch_with(api, token)) {
        http_fail(call, 409, "refused",
                  "this node is in cluster %s already and connected to %s: there is nothing to join",
                  cluster_roster(api->setup.cluster)->name, in_touch_with(api, token));
    } else if (!peer && !can_search(api)) {
        http_fail(
            call, 409, "refused",
            "this node looks for no members on its cables, for it runs with --discover off: name one with "
            "--peer HOST:PORT");
    } else if (enrol_join(api->setup.enrol, token, opts_str(api->setup.opts, "name"), peer ? host : NULL,
                          port, joined, w, &err)) {
        refuse(call, err.text);
    } else {
        w = NULL;
        if (!peer)
            cables_search(api->setup.cables);
    }
    free(w);
    json_decref(body);
}

/* --- removing, promoting --- */

static const struct roster_entry *find_node(struct api *api, const char *name)
{
    const struct roster *r = cluster_roster(api->setup.cluster);
    const struct roster_entry *found = r && name ? roster_named(r, name) : NULL;
    char short_id[20];

    for (size_t i = 0; r && name && !found && i < r->n; i++) {
        write_short_id(short_id, r->at[i].id);
        if (!strcasecmp(short_id, name))
            found = &r->at[i];
    }
    return found;
}

static void change_node(struct api *api, struct http_call *call,
                        int (*change)(struct cluster *, const uint8_t *, struct err *), const char *note)
{
    json_t *body = body_of(call);
    const char *name = json_string_value(json_object_get(body, "node"));
    const struct roster_entry *e = find_node(api, name);
    struct err err = {""};
    if (!body)
        return;
    if (!e) {
        http_fail(call, 404, "no-such-member",
                  "%s is no member of this node's cluster: `ringctl members` lists them",
                  name ? name : "a node without a name");
        json_decref(body);
        return;
    }
    struct roster_entry before = *e; /* the roster it lies in is replaced */
    if (change(api->setup.cluster, before.id, &err)) {
        refuse(call, err.text);
    } else {
        answer_when_kept(api, call, 200,
                         json_pack("{s:s s:s}", "node", before.name, "note", before.authority ? note : ""));
    }
    json_decref(body);
}

void api_post_remove(struct api *api, struct http_call *call)
{
    change_node(api, call, cluster_remove,
                "it held the cluster's key: if a stranger may have the machine, make a new cluster, as that "
                "key could let it in again");
}

void api_post_promote(struct api *api, struct http_call *call)
{
    change_node(api, call, cluster_promote, "it held the cluster's key before");
}
