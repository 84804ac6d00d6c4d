/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/api_adopt.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/http/http.h"
#include "net/roster.h"

enum { BEFORE = sizeof "/v1/jobs/" - 1 }; /* the number */
static const char between[] = "/adopt/";  /* number and node */

struct adoption {
    struct http_call *call;
    uint64_t job;
    char head[64], self[64];
};

static void on_adopted(void *arg, uint64_t as, const char *why)
{
    struct adoption *a = arg;
    if (as)
        api_reply(a->call, 200,
                  json_pack("{s:I s:s s:o}", "id", (json_int_t)as, "node", a->self, "was",
                            json_sprintf("%llu@%s", (unsigned long long)a->job, a->head)));
    else
        http_fail(a->call, 409, "refused", "job %" PRIu64 " of node %s is not taken over: %s", a->job,
                  a->head, why);
    free(a);
}

static bool reads_force(struct http_call *call)
{
    size_t size;
    const char *text = http_body(call, &size);
    json_error_t je;
    json_t *body = text ? json_loadb(text, size, 0, &je) : NULL;
    const bool force = json_is_true(json_object_get(body, "force"));
    json_decref(body);
    return force;
}

/* Of a node that was not seen since this daemon began, the roster knows the name. */
static bool find_head(struct adoption *ret, uint8_t ret_id[16], const struct api *api, const char *name)
{
    const struct member *m = elsewhere_node(api->setup.elsewhere, name);
    const struct roster *roster = cluster_roster(api->setup.cluster);
    const struct roster_entry *known = m || !roster ? NULL : roster_named(roster, name);
    if (!m && !known)
        return false;
    memcpy(ret_id, m ? m->id : known->id, 16);
    snprintf(ret->head, sizeof ret->head, "%s", m ? m->name : known->name);
    return true;
}

void api_post_adopt(struct api *api, struct http_call *call)
{
    const char *path = http_path(call), *name = strstr(path, between) + sizeof between - 1;
    char *end;
    const uint64_t job = strtoull(path + BEFORE, &end, 10);
    struct adoption of = {.call = call, .job = job};
    uint8_t head[16];
    if (end == path + BEFORE || *end != '/' || !job) {
        http_fail(call, 404, "no-such-job",
                  "a job is named by its number, and by the node that was its head");
        return;
    }
    if (!find_head(&of, head, api, name)) {
        http_fail(call, 404, "no-such-node", "there is no node %s: `ringctl members` lists the nodes", name);
        return;
    }
    if (!memcmp(head, members_self(api->setup.members)->id, sizeof head)) {
        http_fail(call, 409, "refused",
                  "this node is the head of job %" PRIu64 ": `ringctl job %" PRIu64
                  "` says what it waits for",
                  job, job);
        return;
    }
    snprintf(of.self, sizeof of.self, "%s", members_self(api->setup.members)->name);
    struct adoption *a = xmemdup(&of, sizeof of);
    if (!api->setup.adopt(api->setup.owner, head, job, !reads_force(call), on_adopted, a))
        return;
    free(a);
    if (!elsewhere_ask_deputy(api->setup.elsewhere, call, head, job))
        http_fail(call, 404, "no-dossier",
                  "no node that can be reached keeps what it takes to go on with job %" PRIu64
                  " of node %s: the node that was rank 1 of it does",
                  job, of.head);
}
