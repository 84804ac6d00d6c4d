/* SPDX-License-Identifier: MIT
 *
 * Owns what the handlers share. Called for every request, of clients and of other nodes. */
#include "daemon/ringd/api/api.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/api/api_adapters.h"
#include "daemon/ringd/api/api_adopt.h"
#include "daemon/ringd/api/api_cluster.h"
#include "daemon/ringd/api/api_files.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/api/api_jobs.h"
#include "daemon/ringd/api/api_models.h"
#include "daemon/ringd/api/api_nodes.h"
#include "daemon/ringd/api/api_openai.h"
#include "daemon/ringd/api/api_ring.h"
#include "daemon/ringd/api/api_service.h"
#include "daemon/ringd/api/api_status.h"
#include "daemon/ringd/api/api_store.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/web.h"
#include "daemon/ringd/serve/served.h"

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
    {"GET", "/v1/keys", API_WRITES, api_get_keys},
    {"POST", "/v1/keys", API_WRITES, api_post_key},
    {"DELETE", "/v1/keys/{id}", API_WRITES, api_delete_key},
    {"POST", "/v1/tickets", API_WRITES, api_post_ticket},
    {"POST", "/v1/session", API_OPEN, api_post_session},
    {"GET", "/v1/history", API_READS, api_get_history},
    {"GET", "/v1/status", API_READS, api_get_status},
    {"GET", "/v1/ring", API_READS, api_get_ring},
    {"GET", "/v1/nodes", API_READS, api_get_nodes},
    {"POST", "/v1/drain", API_WRITES, api_post_drain},
    {"POST", "/v1/undrain", API_WRITES, api_post_undrain},
    {"GET", "/v1/links", API_READS, api_get_links},
    {"GET", "/v1/ports", API_READS, api_get_ports},
    {"GET", "/v1/doctor", API_READS, api_get_doctor},
    {"POST", "/v1/doctor", API_WRITES, api_post_doctor},
    {"GET", "/v1/members", API_READS, api_get_members},
    {"POST", "/v1/cluster/init", API_WRITES, api_post_init},
    {"POST", "/v1/cluster/invite", API_WRITES, api_post_invite},
    {"POST", "/v1/cluster/join", API_WRITES, api_post_join},
    {"POST", "/v1/cluster/remove", API_WRITES, api_post_remove},
    {"POST", "/v1/cluster/promote", API_WRITES, api_post_promote},
    {"GET", "/v1/jobs", API_READS, api_get_jobs},
    {"POST", "/v1/jobs", API_WRITES, api_post_job},
    {"POST", "/v1/plan", API_WRITES, api_post_plan},
    {"POST", "/v1/loans", API_WRITES, api_post_loan},
    {"GET", "/v1/schedules", API_READS, api_get_schedules},
    {"GET", "/v1/model-paths", API_READS, api_get_models},
    {"GET", "/v1/store", API_READS, api_get_store},
    {"POST", "/v1/store", API_WRITES, api_post_store},
    {"GET", "/v1/models", API_SERVES, api_get_served},
    {"GET", "/v1/models/{id}", API_SERVES, api_get_served_one},
    {"POST", "/v1/chat/completions", API_SERVES, api_post_served},
    {"POST", "/v1/completions", API_SERVES, api_post_served},
    {"POST", "/v1/embeddings", API_SERVES, api_post_served},
    {"POST", "/v1/score", API_SERVES, api_post_served},
    {"POST", "/v1/tokenize", API_SERVES, api_post_served},
    {"POST", "/v1/detokenize", API_SERVES, api_post_served},
    {"POST", "/v1/messages", API_SERVES, api_post_served},
    {"POST", "/v1/messages/count_tokens", API_SERVES, api_post_served},
    {"POST", "/v1/jobs/{id}/chat/completions", API_SERVES, api_post_served},
    {"POST", "/v1/jobs/{id}/completions", API_SERVES, api_post_served},
    {"POST", "/v1/jobs/{id}/embeddings", API_SERVES, api_post_served},
    {"POST", "/v1/jobs/{id}/score", API_SERVES, api_post_served},
    {"POST", "/v1/jobs/{id}/tokenize", API_SERVES, api_post_served},
    {"POST", "/v1/jobs/{id}/detokenize", API_SERVES, api_post_served},
    {"POST", "/v1/jobs/{id}/messages", API_SERVES, api_post_served},
    {"POST", "/v1/jobs/{id}/messages/count_tokens", API_SERVES, api_post_served},
    {"GET", "/v1/jobs/{id}", API_READS, api_get_job},
    {"DELETE", "/v1/jobs/{id}", API_WRITES, api_delete_job},
    {"POST", "/v1/jobs/{id}/loan", API_WRITES, api_post_job_loan},
    {"POST", "/v1/jobs/{id}/adapters", API_WRITES, api_post_adapter},
    {"DELETE", "/v1/jobs/{id}/adapters/{name}", API_WRITES, api_delete_adapter},
    {"POST", "/v1/jobs/{id}/turn", API_WRITES, api_post_turn},
    {"POST", "/v1/jobs/{id}/pause", API_WRITES, api_post_pause},
    {"POST", "/v1/jobs/{id}/continue", API_WRITES, api_post_continue},
    {"POST", "/v1/jobs/{id}/adopt/{name}", API_WRITES, api_post_adopt},
    {"GET", "/v1/jobs/{id}/log", API_READS, api_get_job_log},
    {"GET", "/v1/jobs/{id}/steps", API_READS, api_get_job_steps},
    {"GET", "/v1/jobs/{id}/evaluations", API_READS, api_get_job_evaluations},
    {"GET", "/v1/jobs/{id}/samples", API_READS, api_get_job_samples},
    {"GET", "/v1/jobs/{id}/timeline", API_READS, api_get_job_timeline},
    {"GET", "/v1/jobs/{id}/timelines", API_READS, api_get_job_timelines},
    {"GET", "/v1/jobs/{id}/events", API_READS, api_get_job_events},
    {"GET", "/v1/jobs/{id}/files", API_WRITES, api_get_job_files},
    {"GET", "/v1/jobs/{id}/files/{name}", API_WRITES, api_get_job_file},
    {"GET", "/v1/events", API_READS, api_get_events},
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

/* In the form of the API that it speaks. */
static void refuse_client(struct http_call *call)
{
    struct refusal refusal;
    refusal_set(&refusal, REFUSAL_NO_KEY, NULL,
                "over TCP this needs a client's key (`ringctl key add`) or the token (`ringctl token`)");
    served_refuse(call, http_is_anthropic(call), &refusal);
}

/* Who shows nothing may come again with the token; a client's key will never do. */
static void refuse_change(struct http_call *call)
{
    const bool is_known = http_may_read(call) || *http_client(call);
    http_fail(call, is_known ? 403 : 401, is_known ? "forbidden" : "token",
              "over TCP this needs the token: `ringctl token` prints it there, and `ringctl dashboard` opens "
              "the dashboard with its rights");
}

void api_handle(struct api *api, struct http_call *call)
{
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
            refuse_change(call);
        else if (routes[i].access == API_READS && !http_may_read(call))
            http_fail(
                call, 401, "token",
                "over TCP this needs the token: `ringctl token` prints it there; `ringctl dashboard` opens "
                "the dashboard");
        else if (routes[i].access == API_SERVES && !http_may_serve(call))
            refuse_client(call);
        else if (!elsewhere_route(api->setup.elsewhere, call))
            routes[i].handle(api, call);
        return;
    }
    if (!known && send_page(call))
        return;
    if (known)
        http_fail(call, 405, "method", "%s does not take %s", path, method);
    else
        http_fail(call, 404, "no-such-route", "%s is not a route of this API", path);
}

struct api *api_new(const struct api_setup *setup)
{
    struct api *api = xcalloc(1, sizeof *api);
    api->setup = *setup;
    api->status = api_status_new();
    LIST_INIT(&api->waits);
    return api;
}

void api_models_changed(struct api *api)
{
    api_store_look_again(api);
}

void api_stop(struct api *api)
{
    if (api)
        api_store_stop(api);
}

void api_free(struct api *api)
{
    if (!api)
        return;
    api_status_free(api->status);
    free(api);
}
