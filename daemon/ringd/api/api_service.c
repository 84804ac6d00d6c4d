/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/api_service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_keys.h"
#include "daemon/ringd/http/http_server.h"
#include "daemon/ringd/http/http_session.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/cluster/identity_token.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/store/store.h"
#include "daemon/common/xalloc.h"

void api_get_health(struct api *api, struct http_call *call)
{
    char why[1024];
    if (api->setup.healthy(api->setup.owner, why, sizeof why))
        http_reply(call, 200, "text/plain", "ok\n", 3);
    else if (!http_may_read(call)) /* whether it lives is for everyone, what it does is not */
        http_reply(call, 503, "text/plain", "not well\n", 9);
    else
        http_reply(call, 503, "text/plain", why, strlen(why));
}

void api_get_metrics(struct api *api, struct http_call *call)
{
    char *text = api->setup.metrics_text(api->setup.owner);
    if (text)
        http_reply(call, 200, "text/plain; version=0.0.4; charset=utf-8", text, strlen(text));
    else
        http_fail(call, 500, "no-memory", "no memory for the metrics");
    free(text);
}

/* --- history ---------------------------------------------------------------------------------- */

struct points_query {
    struct http_call *call;
    char *series; /* owned, or NULL: which there are */
    unsigned step;
};

static void send_points(void *arg, const char *text)
{
    struct points_query *a = arg;
    json_t *list = json_loads(text ? text : "[]", 0, NULL);
    if (!list)
        list = json_array();
    if (a->series)
        api_reply_rounded(
            a->call, 200,
            json_pack("{s:s s:i s:o}", "series", a->series, "step_seconds", (int)a->step, "points", list), 9);
    else
        api_reply(a->call, 200, json_pack("{s:o}", "series", list));
    free(a->series);
    free(a);
}

static int64_t time_query(struct http_call *call, const char *key, int64_t otherwise)
{
    const char *text = http_query(call, key);
    char *end;
    int64_t v = text ? strtoll(text, &end, 10) : otherwise;
    if (!text || end == text || *end)
        return otherwise;
    return v < 0 ? time(NULL) + v : v;
}

static bool is_self(struct api *api, const char *node)
{
    const struct member *self = members_self(api->setup.members);
    return !node || elsewhere_node(api->setup.elsewhere, node) == self;
}

void api_get_history(struct api *api, struct http_call *call)
{
    const char *node = http_query(call, "node");
    if (!is_self(api, node)) {
        elsewhere_pass_on(api->setup.elsewhere, call, node, "keeps this history", "/v1/history");
        return;
    }
    struct points_query *a = xcalloc(1, sizeof *a);
    const char *series = http_query(call, "series");
    int64_t now = time(NULL), from = time_query(call, "from", now - 3600),
            to = time_query(call, "to", now + 1);
    a->call = call;
    a->series = xstrdup(series);
    if (series)
        a->step = store_get_points(api->setup.store, series, from, to, now, send_points, a);
    else
        store_get_series(api->setup.store, send_points, a);
}

/* --- configuration and token ------------------------------------------------------------------ */

void api_post_reload(struct api *api, struct http_call *call)
{
    json_t *done;
    struct err err;
    if (api->setup.reload(api->setup.owner, &done, &err))
        http_fail(call, 409, "refused", "%s; the old configuration stays", err.text);
    else
        api_reply(call, 200, done);
}

void api_post_token(struct api *api, struct http_call *call)
{
    size_t size;
    char token[TOKEN_ROOM];
    struct err err;
    if (!http_is_local(call)) {
        http_fail(call, 403, "forbidden", "only requests over the Unix socket get the token");
        return;
    }
    const char *body = http_body(call, &size);
    json_t *request = size ? json_loadb(body, size, 0, NULL) : NULL;
    bool renew = json_is_true(json_object_get(request, "new"));
    json_decref(request);
    if (api->setup.token(api->setup.owner, renew, token, &err))
        http_fail(call, 500, "internal", "%s", err.text);
    else
        api_reply(call, 200, json_pack("{s:s}", "token", token));
    token_wipe(token);
}

/* --- keys of clients -------------------------------------------------------------------------- */

void api_get_keys(struct api *api, struct http_call *call)
{
    api_reply(call, 200, json_pack("{s:o}", "keys", http_show_keys(api->setup.http(api->setup.owner))));
}

void api_post_key(struct api *api, struct http_call *call)
{
    size_t size;
    char key[CLIENT_KEY_ROOM] = "";
    struct err err;
    const char *text = http_body(call, &size);
    json_t *body = json_loadb(text, size, 0, NULL);
    const char *name = json_string_value(json_object_get(body, "name"));
    const json_t *given = json_object_get(body, "rate");
    const json_int_t rate = json_integer_value(given);
    const int r =
        !name || (given && (!json_is_integer(given) || rate < 0 || rate > RATE_MOST))
            ? err_set(&err, -EINVAL,
                      "a key needs a \"name\", and may have a \"rate\" of 0 to %d requests a minute",
                      RATE_MOST)
            : http_add_key(api->setup.http(api->setup.owner), name, (unsigned)rate, key, &err);
    if (r)
        http_fail(call,
                  r == -EEXIST   ? 409
                  : r == -EINVAL ? 400
                                 : 500,
                  r == -EEXIST ? "exists" : "refused", "%s", err.text);
    else {
        api->setup.keys_changed(api->setup.owner);
        api_reply(call, 201, json_pack("{s:s s:s s:I}", "name", name, "key", key, "rate", rate));
    }
    explicit_bzero(key, sizeof key);
    json_decref(body);
}

void api_delete_key(struct api *api, struct http_call *call)
{
    struct err err;
    const char *name = http_path(call) + sizeof "/v1/keys/" - 1;
    const int r = http_remove_key(api->setup.http(api->setup.owner), name, &err);
    if (r)
        http_fail(call, r == -ENOENT ? 404 : 500, r == -ENOENT ? "no-such-key" : "internal", "%s", err.text);
    else {
        api->setup.keys_changed(api->setup.owner);
        api_reply(call, 200, json_pack("{s:s}", "name", name));
    }
}

void api_post_ticket(struct api *api, struct http_call *call)
{
    char link[HTTP_LINK_ROOM] = "";
    if (!http_is_local(call))
        http_fail(call, 403, "forbidden", "only requests over the Unix socket get a link");
    else if (!api->setup.link(api->setup.owner, link))
        http_fail(call, 409, "refused",
                  "this ringd serves no dashboard: start it with --http-listen 127.0.0.1:8473");
    else
        api_reply(call, 201, json_pack("{s:s s:i}", "url", link, "seconds", TICKET_SECONDS));
}

void api_post_session(struct api *api, struct http_call *call)
{
    const char *key;
    (void)api;
    if (http_open_session(call, &key))
        api_reply(call, 201, json_pack("{s:s s:i}", "key", key, "seconds", SESSION_SECONDS));
    else
        http_fail(call, 401, "token",
                  "this link has been used, or is older than %d minutes: `ringctl dashboard` makes a new one",
                  TICKET_SECONDS / 60);
}

/* --- events ----------------------------------------------------------------------------------- */

void api_get_events(struct api *api, struct http_call *call)
{
    const char *after = http_query(call, "after");
    bool from_now = after && !strcmp(after, "now");
    http_stream(call, 0,
                from_now ? event_log_newest(api->setup.events)
                : after  ? strtoull(after, NULL, 10)
                         : 0);
}
