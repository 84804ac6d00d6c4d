/* SPDX-License-Identifier: MIT
 *
 * Owns a request from its headers to its answer. The server's threads make it, the loop thread
 * reads and answers it. */
#include "daemon/ringd/http/http_call.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"

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
    free(call->body);
    free(call->if_none_match);
    free(call->text);
    free(call->inside);
    if (call->feed)
        feed_leave(call->feed);
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

/* --- answers --- */

struct MHD_Response *response_dress(struct MHD_Response *r, const char *content_type)
{
    if (!r)
        return NULL;
    MHD_add_response_header(r, "Content-Type", content_type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'");
    return r;
}

static struct MHD_Response *plain_response(const char *content_type, const char *body, size_t n)
{
    return response_dress(MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY),
                          content_type);
}

char *http_error_text(const char *code, const char *message)
{
    json_t *error = json_pack("{s:{s:s,s:s}}", "error", "code", code, "message", message);
    /* What is not UTF-8 (a file name) cannot be told in JSON. */
    if (!error)
        error = json_pack("{s:{s:s,s:s}}", "error", "code", code, "message",
                          "the reason cannot be written as text");
    char *text = json_dumps(error, JSON_COMPACT);
    json_decref(error);
    return text ? text : xstrdup("{}");
}

struct MHD_Response *response_error(const char *code, const char *message)
{
    char *text = http_error_text(code, message);
    struct MHD_Response *r = plain_response("application/json", text, strlen(text));
    free(text);
    return r;
}

void call_answer(struct http_call *call, unsigned status, struct MHD_Response *response, bool is_stream)
{
    struct http *http = call->http;
    if (http && http->setup.answered)
        http->setup.answered(http->setup.owner, call->route, status);
    if (http)
        pthread_mutex_lock(&http->lock);
    bool used = http && !http->stopping;
    if (used) {
        call->response = response;
        call->status = status;
        if (is_stream)
            call->connection->streaming = call;
        call_unpark(call);
    }
    bool last = call_drop(call);
    if (http)
        pthread_mutex_unlock(&http->lock);
    if (!used && response)
        MHD_destroy_response(response);
    if (last)
        call_free(call);
}

void http_reply(struct http_call *call, int status, const char *content_type, const char *body, size_t n)
{
    if (call->inside)
        inside_reply(call, status, content_type, body, n);
    else
        call_answer(call, (unsigned)status, plain_response(content_type, body, n), false);
}

void http_reply_file(struct http_call *call, const char *content_type, const char *tag, const char *body,
                     size_t n)
{
    bool is_known = call->if_none_match && strstr(call->if_none_match, tag);
    struct MHD_Response *r = response_dress(
        MHD_create_response_from_buffer(is_known ? 0 : n, (void *)(uintptr_t)body, MHD_RESPMEM_PERSISTENT),
        content_type);
    if (r) {
        /* Kept, but asked for each time: after an upgrade nobody runs yesterday's page. */
        MHD_del_response_header(r, "Cache-Control", "no-store");
        MHD_add_response_header(r, "Cache-Control", "no-cache");
        MHD_add_response_header(r, "ETag", tag);
    }
    call_answer(call, is_known ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, r, false);
}

void http_reply_fd(struct http_call *call, const char *content_type, int fd, uint64_t n)
{
    if (call->inside) {
        close(fd);
        http_fail(call, 409, "refused", "files are sent by the node that is the job's head alone: ask there");
        return;
    }
    struct MHD_Response *r = response_dress(MHD_create_response_from_fd64(n, fd), content_type);
    if (!r)
        close(fd);
    call_answer(call, MHD_HTTP_OK, r, false);
}

void http_fail(struct http_call *call, int status, const char *code, const char *fmt, ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (!call->inside) {
        call_answer(call, (unsigned)status, response_error(code, message), false);
        return;
    }
    char *text = http_error_text(code, message);
    inside_reply(call, status, "application/json", text, strlen(text));
    free(text);
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
    *ret_n = call->n_body;
    return call->body ? call->body : "";
}

bool http_may_write(const struct http_call *call)
{
    return call->may_write;
}

bool http_may_read(const struct http_call *call)
{
    return call->may_read;
}

bool http_is_local(const struct http_call *call)
{
    return call->is_local;
}

void http_set_route(struct http_call *call, const char *route)
{
    call->route = route;
}
