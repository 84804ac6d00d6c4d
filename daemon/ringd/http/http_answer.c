/* SPDX-License-Identifier: MIT
 *
 * Owns an answer until the server has it. Answers of handlers are made on the loop thread, those
 * of the server itself on its own. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_call.h"

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
    /* It may hold what others wrote, and a file's name need not be UTF-8. */
    const size_t size = TEXT_CLEAN_GROWTH * strlen(message) + 1;
    char *clean = xmalloc(size);
    text_clean(clean, size, message, true);
    json_t *error = json_pack("{s:{s:s,s:s}}", "error", "code", code, "message", clean);
    free(clean);
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

static void add_cookie(const struct http_call *call, struct MHD_Response *response)
{
    char cookie[160];
    if (!*call->session.cookie)
        return;
    snprintf(cookie, sizeof cookie, "%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Strict",
             call->http->sessions.cookie_name, call->session.cookie, SESSION_SECONDS);
    MHD_add_response_header(response, "Set-Cookie", cookie);
}

/* Clients repeat a request by themselves if the answer says when. */
static void add_retry_after(const struct http_call *call, unsigned status, struct MHD_Response *response)
{
    enum { OVERLOADED = 529 /* as Anthropic's API says it */ };
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%u", call->retry_after ? call->retry_after : 1);
    if (status == MHD_HTTP_SERVICE_UNAVAILABLE || status == MHD_HTTP_TOO_MANY_REQUESTS ||
        status == OVERLOADED)
        MHD_add_response_header(response, "Retry-After", seconds);
}

/* A page of that origin may read the answer; caches tell pages of others apart. */
void response_allow(struct MHD_Response *response, const char *origin)
{
    if (!origin)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Vary", "Origin");
}

void call_answer(struct http_call *call, unsigned status, struct MHD_Response *response, bool is_stream)
{
    struct http *http = call->http;
    leave_stop(call);
    if (http && http->answered)
        http->answered(http->owner, call->route, status);
    if (http && response) {
        add_cookie(call, response);
        add_retry_after(call, status, response);
        response_allow(response, call->origin);
    }
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
    if (call->inside) {
        inside_reply(call, status, content_type, body, n);
        return;
    }
    if (call->http && !ledger_take(&call->http->answers, n)) {
        http_fail(
            call, 503, "busy",
            "answers that others have not taken yet fill all the memory for them: ask again in a moment");
        return;
    }
    call->n_answer = n;
    call->kept = call->http ? n : 0;
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
    call->n_answer = n;
    call_answer(call, is_known ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, r, false);
}

void http_reply_fd(struct http_call *call, const char *content_type, int fd, uint64_t n)
{
    if (call->inside) {
        close(fd);
        http_fail(call, 409, "refused", "another node passes a file on in parts: ask with ?from=BYTE");
        return;
    }
    struct MHD_Response *r = response_dress(MHD_create_response_from_fd64(n, fd), content_type);
    if (!r)
        close(fd);
    call->n_answer = n;
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

void http_give_up(struct http_call *call)
{
    http_fail(call, HTTP_LEFT, "left", "the client has left");
}
