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
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/http/http.h"

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

void api_post_adopt(struct api *api, struct http_call *call)
{
    const char *path = http_path(call), *name = strstr(path, between) + sizeof between - 1;
    char *end;
    const uint64_t job = strtoull(path + BEFORE, &end, 10);
    const struct member *head = elsewhere_node(api->setup.elsewhere, name);
    if (end == path + BEFORE || *end != '/' || !job) {
        http_fail(call, 404, "no-such-job",
                  "a job is named by its number, and by the node that was its head");
        return;
    }
    if (!head) {
        http_fail(call, 404, "no-such-node", "there is no node %s: `ringctl members` lists the nodes", name);
        return;
    }
    if (head == members_self(api->setup.members)) {
        http_fail(call, 409, "refused",
                  "this node is the head of job %" PRIu64 ": `ringctl job %" PRIu64
                  "` says what it waits for",
                  job, job);
        return;
    }
    struct adoption *a = xcalloc(1, sizeof *a);
    *a = (struct adoption){.call = call, .job = job};
    snprintf(a->head, sizeof a->head, "%s", head->name);
    snprintf(a->self, sizeof a->self, "%s", members_self(api->setup.members)->name);
    if (!api->setup.adopt(api->setup.owner, head->id, job, !reads_force(call), on_adopted, a))
        return;
    free(a);
    if (!elsewhere_ask_deputy(api->setup.elsewhere, call, head->id, job))
        http_fail(call, 404, "no-dossier",
                  "no node that can be reached keeps what it takes to go on with job %" PRIu64
                  " of node %s: the node that was rank 1 of it does",
                  job, head->name);
}
