/* SPDX-License-Identifier: MIT
 *
 * Makes requests without a connection. They are in no list of the server, and only the loop thread
 * holds them. Called by the answering side of proxied requests. */
#include "daemon/ringd/http/http_inside.h"

#include <string.h>

#include "daemon/ringd/http/http_call.h"
#include "daemon/common/xalloc.h"

struct http_call *http_inside_new(const char *method, const char *path, const json_t *query, const char *body,
                                  const struct http_inside *to)
{
    struct http_call *call = xcalloc(1, sizeof *call);
    const char *key;
    json_t *value;
    call->method = xstrdup(method);
    call->path = xstrdup(path);
    call->may_read = call->may_write = call->may_serve = true;
    call->inside = xmemdup(to, sizeof *to);
    if (body) {
        call->body.data = xstrdup(body);
        call->body.n = strlen(body);
    }
    json_object_foreach ((json_t *)query, key, value) {
        const char *text = json_string_value(value);
        call->query = xreallocarray(call->query, call->n_query + 1, sizeof *call->query);
        call->query[call->n_query++] =
            (struct query_pair){.key = xstrdup(key), .value = xstrdup(text ? text : "")};
    }
    return call;
}

void inside_reply(struct http_call *call, int status, const char *content_type, const char *body, size_t n)
{
    call->inside->reply(call->inside->owner, status, content_type, body, n);
    call_free(call); /* the body may be the request's own */
}

void inside_stream(struct http_call *call, uint64_t job, uint64_t after)
{
    const struct http_inside to = *call->inside;
    call_free(call);
    to.stream(to.owner, job, after);
}
