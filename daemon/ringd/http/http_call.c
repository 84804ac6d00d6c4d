/* SPDX-License-Identifier: MIT
 *
 * Owns a request from its headers to its answer. The server's threads make it, the loop thread
 * reads it. */
#include "daemon/ringd/http/http_call.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/http/http.h"

/* --- calls --- */

static enum MHD_Result take_pair(void *arg, enum MHD_ValueKind kind, const char *key, const char *value)
{
    (void)kind;
    struct http_call *call = arg;
    call->query = xreallocarray(call->query, call->n_query + 1, sizeof *call->query);
    call->query[call->n_query++] =
        (struct query_pair){.key = xstrdup(key), .value = xstrdup(value ? value : "")};
    return MHD_YES;
}

const char *call_header(struct MHD_Connection *mhd, const char *name)
{
    return MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, name);
}

static struct connection *connection_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static const char *ticket_of(const char *authorization)
{
    static const char scheme[] = "Ticket ";
    const bool is_one = authorization && !strncasecmp(authorization, scheme, sizeof scheme - 1);
    return is_one ? authorization + sizeof scheme - 1 : NULL;
}

struct http_call *call_new(struct listener *l, struct MHD_Connection *mhd, const char *method,
                           const char *path)
{
    struct http_call *call = xcalloc(1, sizeof *call);
    const char *id = call_header(mhd, "Last-Event-ID"), *has = call_header(mhd, "If-None-Match");
    call->http = l->http;
    call->mhd = mhd;
    call->connection = connection_of(mhd);
    call->refs = 1;
    call->method = xstrdup(method);
    call->path = xstrdup(path);
    call->last_event_id = id ? strtoull(id, NULL, 10) : 0;
    call->if_none_match = has ? xstrdup(has) : NULL;
    call->is_anthropic = call_header(mhd, "anthropic-version");
    call->upgrade = xstrdup(call_header(mhd, "Upgrade"));
    call->ticket = xstrdup(ticket_of(call_header(mhd, "Authorization")));
    MHD_get_connection_values(mhd, MHD_GET_ARGUMENT_KIND, take_pair, call);
    pthread_mutex_lock(&l->http->lock);
    call->next = l->http->calls;
    call->at = &l->http->calls;
    if (call->next)
        call->next->at = &call->next;
    l->http->calls = call;
    pthread_mutex_unlock(&l->http->lock);
    return call;
}

void call_free(struct http_call *call)
{
    for (size_t i = 0; i < call->n_query; i++) {
        free(call->query[i].key);
        free(call->query[i].value);
    }
    free(call->query);
    free(call->method);
    free(call->path);
    body_done(&call->body);
    if (call->http)
        ledger_give(&call->http->answers, call->kept);
    free(call->if_none_match);
    free(call->origin);
    free(call->ticket);
    free(call->upgrade);
    free(call->text);
    free(call->inside);
    if (call->feed)
        call->feed_ops->leave(call->feed);
    if (call->response)
        MHD_destroy_response(call->response);
    free(call);
}

bool call_drop(struct http_call *call)
{
    if (--call->refs)
        return false;
    *call->at = call->next;
    if (call->next)
        call->next->at = call->at;
    return true;
}

void call_unpark(struct http_call *call)
{
    if (!call->parked)
        return;
    call->parked = false;
    MHD_resume_connection(call->mhd);
}

/* --- what a handler may ask --- */

const char *http_method(const struct http_call *call)
{
    return call->method;
}

const char *http_path(const struct http_call *call)
{
    return call->path;
}

const char *http_query(const struct http_call *call, const char *key)
{
    for (size_t i = 0; i < call->n_query; i++) {
        if (!strcmp(call->query[i].key, key))
            return call->query[i].value;
    }
    return NULL;
}

const char *http_body(const struct http_call *call, size_t *ret_n)
{
    *ret_n = call->body.n;
    return call->body.data ? call->body.data : "";
}

bool http_may_write(const struct http_call *call)
{
    return call->may_write;
}

bool http_may_read(const struct http_call *call)
{
    return call->may_read;
}

bool http_may_serve(const struct http_call *call)
{
    return call->may_serve;
}

bool http_is_inside(const struct http_call *call)
{
    return call->inside;
}

bool http_is_local(const struct http_call *call)
{
    return call->is_local;
}

bool http_is_anthropic(const struct http_call *call)
{
    return call->is_anthropic;
}

bool http_wants(const struct http_call *call, const char *protocol)
{
    return call->upgrade && !strcmp(call->upgrade, protocol);
}

bool http_open_session(struct http_call *call, const char **ret_key)
{
    struct http *http = call->http;
    if (!http || !call->ticket)
        return false;
    pthread_mutex_lock(&http->lock);
    const bool ok = sessions_open(&http->sessions, clock_now(), call->ticket, &call->session);
    pthread_mutex_unlock(&http->lock);
    if (ok)
        *ret_key = call->session.key;
    return ok;
}

const char *http_route(const struct http_call *call)
{
    return call->route;
}

const char *http_client(const struct http_call *call)
{
    return call->client;
}

void http_set_route(struct http_call *call, const char *route)
{
    call->route = route;
}
