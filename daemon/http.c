/* SPDX-License-Identifier: MIT
 *
 * Owns the listeners, every connection and every request under way. The server's threads take requests in and
 * park them (suspended); the loop thread answers through http_reply or http_stream, which wakes them. A call
 * is held from two sides, the server's and the loop's, and goes when both have let go.
 *
 * Locks: `lock` covers the list of calls and their parked flags. It is taken after the guard's and never the
 * other way round. */
#include "daemon/http.h"

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/http_access.h"
#include "daemon/http_guard.h"
#include "daemon/http_listen.h"
#include "daemon/hub.h"
#include "daemon/mailbox.h"
#include "daemon/xalloc.h"

enum limits {
    BODY_MAX = 8 << 20,
    CONNECTIONS_MAX = 128,        /* per listener */
    CONNECTIONS_PER_ADDRESS = 32, /* so that one host cannot take them all */
    CONNECTION_MEMORY = 32 << 10, /* headers of a request and its reply */
    INACTIVE_SECONDS = 30,        /* a client that takes nothing of its answer */
    DEADLINE_MS = 10000,
    IDLE_MS = 30000, /* between two requests of one connection, headers of the second included */
    PING_MS = 10000, /* a comment line, so that a stream whose client has left is noticed */
};

struct listener {
    struct http *http;         /* borrowed */
    struct MHD_Daemon *daemon; /* owned */
    struct access_rules rules;
    uint16_t port;
};

struct http {
    struct http_setup setup;
    char *unix_path;     /* owned */
    char *token;         /* owned */
    struct guard *guard; /* owned */
    struct listener unix_socket, tcp;
    pthread_mutex_t lock;
    struct http_call *calls; /* all that live, under lock */
    bool stopping;           /* under lock */
};

struct connection {
    struct http *http;            /* borrowed */
    int fd;                       /* the server's */
    struct guard_entry *deadline; /* owned */
    struct http_call *streaming;  /* borrowed: the call whose events flow here, under http->lock */
};

struct query_pair {
    char *key, *value; /* owned */
};

struct http_call {
    struct http_call *next, **at;  /* in http->calls, under http->lock as `refs`, `parked`, `posted` */
    struct http *http;             /* borrowed; NULL once the server has stopped (loop thread) */
    struct connection *connection; /* borrowed; valid on the server's threads */
    struct MHD_Connection *mhd;    /* valid while parked or on the server's threads */
    int refs;
    bool parked; /* suspended: MHD looks at it again only when resumed */
    bool posted; /* the loop has not seen it yet */

    char *method, *path;      /* owned */
    struct query_pair *query; /* owned */
    size_t n_query;
    char *body; /* owned, NUL-terminated */
    size_t n_body, body_room;
    bool too_large, may_write;
    uint64_t last_event_id;        /* 0 = not given */
    struct MHD_Response *response; /* owned; set once, before resuming */
    unsigned status;

    /* of an event stream; server's thread but for ping_due, which is under http->lock */
    uint64_t job, after;
    char *text; /* owned: what is being sent */
    size_t n_text, sent;
    bool is_last, ping_due;
};

/* --- calls
 * ---------------------------------------------------------------------------------------------------------------
 */

static enum MHD_Result take_pair(void *arg, enum MHD_ValueKind kind, const char *key, const char *value)
{
    (void)kind;
    struct http_call *call = arg;
    call->query = xreallocarray(call->query, call->n_query + 1, sizeof *call->query);
    call->query[call->n_query++] =
        (struct query_pair){.key = xstrdup(key), .value = xstrdup(value ? value : "")};
    return MHD_YES;
}

static const char *header(struct MHD_Connection *mhd, const char *name)
{
    return MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, name);
}

static struct connection *connection_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static struct http_call *call_new(struct listener *l, struct MHD_Connection *mhd, const char *method,
                                  const char *path)
{
    struct http_call *call = xcalloc(1, sizeof *call);
    const char *id = header(mhd, "Last-Event-ID");
    call->http = l->http;
    call->mhd = mhd;
    call->connection = connection_of(mhd);
    call->refs = 1;
    call->method = xstrdup(method);
    call->path = xstrdup(path);
    call->last_event_id = id ? strtoull(id, NULL, 10) : 0;
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

static void call_free(struct http_call *call)
{
    for (size_t i = 0; i < call->n_query; i++) {
        free(call->query[i].key);
        free(call->query[i].value);
    }
    free(call->query);
    free(call->method);
    free(call->path);
    free(call->body);
    free(call->text);
    if (call->response)
        MHD_destroy_response(call->response);
    free(call);
}

/* Under http->lock, or when the server has stopped. */
static void call_drop(struct http_call *call)
{
    if (--call->refs)
        return;
    *call->at = call->next;
    if (call->next)
        call->next->at = call->at;
    call_free(call);
}

/* Under http->lock: the server goes on with this call. */
static void unpark(struct http_call *call)
{
    if (!call->parked)
        return;
    call->parked = false;
    MHD_resume_connection(call->mhd);
}

/* --- answers
 * -------------------------------------------------------------------------------------------------------------
 */

static struct MHD_Response *dress(struct MHD_Response *r, const char *content_type)
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
    return dress(MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY),
                 content_type);
}

static char *error_json(const char *code, const char *message)
{
    json_t *error = json_pack("{s:{s:s,s:s}}", "error", "code", code, "message", message);
    /* What is not UTF-8 (a file name) cannot be told in JSON. */
    if (!error)
        error = json_pack("{s:{s:s,s:s}}", "error", "code", code, "message",
                          "the reason cannot be written as text");
    char *text = json_dumps(error, JSON_COMPACT);
    json_decref(error);
    return text;
}

static struct MHD_Response *error_response(const char *code, const char *message)
{
    char *text = error_json(code, message);
    struct MHD_Response *r = plain_response("application/json", text ? text : "{}", text ? strlen(text) : 2);
    free(text);
    return r;
}

/* An answer of the server itself, on its own thread. */
static enum MHD_Result refuse(struct MHD_Connection *mhd, unsigned status, const char *code,
                              const char *message)
{
    struct MHD_Response *r = error_response(code, message);
    if (!r)
        return MHD_NO;
    /* The rest of the request is not read, so the connection cannot be used again. */
    MHD_add_response_header(r, "Connection", "close");
    enum MHD_Result ok = MHD_queue_response(mhd, status, r);
    MHD_destroy_response(r);
    return ok;
}

/* Loop thread: the answer is ready. From here on an event stream may be woken by events, not before. */
static void answer(struct http_call *call, unsigned status, struct MHD_Response *response, bool is_stream)
{
    struct http *http = call->http;
    if (!http) {
        if (response)
            MHD_destroy_response(response);
        call_drop(call);
        return;
    }
    pthread_mutex_lock(&http->lock);
    if (!http->stopping) {
        call->response = response;
        call->status = status;
        if (is_stream)
            call->connection->streaming = call;
        unpark(call);
    } else if (response) {
        MHD_destroy_response(response);
    }
    call_drop(call);
    pthread_mutex_unlock(&http->lock);
}

void http_reply(struct http_call *call, int status, const char *content_type, const char *body, size_t n)
{
    answer(call, (unsigned)status, plain_response(content_type, body, n), false);
}

void http_fail(struct http_call *call, int status, const char *code, const char *fmt, ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    answer(call, (unsigned)status, error_response(code, message), false);
}

/* --- event streams
 * ------------------------------------------------------------------------------------------------------- */

static void send_next(struct http_call *call, char *text)
{
    free(call->text);
    call->text = text;
    call->n_text = strlen(text);
    call->sent = 0;
}

/* Puts the next piece into call->text. False: parked until there is one. */
static bool stream_advance(struct http_call *call)
{
    struct http *http = call->http;
    bool last = false;
    pthread_mutex_lock(&http->lock);
    char *text = NULL;
    if (http->stopping)
        call->is_last = true;
    else
        text = hub_next(http->setup.hub, call->job, call->after, &call->after, &last);
    if (!text && call->ping_due)
        text = xstrdup(":\n\n");
    /* Parked under the lock that every publisher takes after publishing: no event slips between. */
    bool park = !text && !call->is_last;
    if (park) {
        call->parked = true;
        MHD_suspend_connection(call->mhd);
    }
    call->ping_due = false;
    pthread_mutex_unlock(&http->lock);
    if (text)
        send_next(call, text);
    call->is_last = call->is_last || (last && call->job);
    return !park;
}

static ssize_t stream_read(void *arg, uint64_t position, char *buf, size_t room)
{
    (void)position;
    struct http_call *call = arg;
    if (call->sent == call->n_text) {
        if (call->is_last)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (!stream_advance(call))
            return 0;
        if (call->sent == call->n_text)
            return MHD_CONTENT_READER_END_OF_STREAM;
    }
    size_t n = call->n_text - call->sent < room ? call->n_text - call->sent : room;
    memcpy(buf, call->text + call->sent, n);
    call->sent += n;
    guard_set(call->http->guard, call->connection->deadline, PING_MS);
    return (ssize_t)n;
}

void http_stream(struct http_call *call, uint64_t job, uint64_t after)
{
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, stream_read, call, NULL);
    if (!dress(r, "text/event-stream")) {
        http_fail(call, 500, "no-memory", "no memory for an event stream");
        return;
    }
    call->job = job;
    call->after = call->last_event_id ? call->last_event_id : after;
    /* Sent at once, so that the client has the headers before the first event. */
    send_next(call, xstrdup("retry: 1000\n\n"));
    answer(call, MHD_HTTP_OK, r, true);
}

/* The publisher's thread. */
static void on_publish(void *arg)
{
    struct http *http = arg;
    pthread_mutex_lock(&http->lock);
    for (struct http_call *call = http->calls; call; call = call->next) {
        if (call->parked && call->connection->streaming == call)
            unpark(call);
    }
    pthread_mutex_unlock(&http->lock);
}

/* --- requests, on the server's threads
 * ----------------------------------------------------------------------------------- */

/* The guard's thread: a stream is due a sign of life, anything else has had its time. */
static void on_deadline(void *arg)
{
    struct connection *c = arg;
    pthread_mutex_lock(&c->http->lock);
    if (c->streaming) {
        c->streaming->ping_due = true;
        unpark(c->streaming);
    } else {
        shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&c->http->lock);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct listener *l = arg;
    struct connection *c = *socket_context;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        guard_remove(l->http->guard, c->deadline);
        free(c);
        *socket_context = NULL;
        return;
    }
    c = xcalloc(1, sizeof *c);
    c->http = l->http;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->deadline = guard_add(l->http->guard, on_deadline, c);
    guard_set(l->http->guard, c->deadline, l->http->setup.deadline_ms);
    *socket_context = c;
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **request,
                         enum MHD_RequestTerminationCode code)
{
    (void)mhd;
    (void)code;
    struct http *http = ((struct listener *)arg)->http;
    struct http_call *call = *request;
    if (!call)
        return;
    struct connection *c = call->connection;
    pthread_mutex_lock(&http->lock);
    c->streaming = NULL;
    call->parked = false;
    call_drop(call);
    pthread_mutex_unlock(&http->lock);
    guard_set(http->guard, c->deadline, IDLE_MS);
    *request = NULL;
}

static void add_body(struct http_call *call, const char *data, size_t n)
{
    if (call->too_large || n > BODY_MAX - call->n_body) {
        call->too_large = true;
        return;
    }
    if (call->n_body + n + 1 > call->body_room) {
        call->body_room = 2 * (call->n_body + n) + 1;
        call->body = xrealloc(call->body, call->body_room);
    }
    memcpy(call->body + call->n_body, data, n);
    call->n_body += n;
    call->body[call->n_body] = '\0';
}

/* Loop thread, by mail: every call that has come in, oldest first. */
static void deliver(void *arg)
{
    struct http *http = arg;
    for (;;) {
        struct http_call *oldest = NULL;
        pthread_mutex_lock(&http->lock);
        for (struct http_call *call = http->calls; call; call = call->next)
            oldest = call->posted ? call : oldest;
        if (oldest)
            oldest->posted = false;
        pthread_mutex_unlock(&http->lock);
        if (!oldest)
            return;
        http->setup.handle(http->setup.owner, oldest);
    }
}

/* The request is complete: parks it and tells the loop. */
static enum MHD_Result hand_over(struct http *http, struct http_call *call)
{
    pthread_mutex_lock(&http->lock);
    bool stopping = http->stopping;
    if (!stopping) {
        call->refs++;
        call->posted = call->parked = true;
        MHD_suspend_connection(call->mhd);
    }
    pthread_mutex_unlock(&http->lock);
    if (stopping)
        return MHD_NO;
    guard_set(http->guard, call->connection->deadline, 0);
    mailbox_post(http->setup.mailbox, deliver, http);
    return MHD_YES;
}

/* Headers are complete: is it worth reading the body? */
static enum MHD_Result on_headers(struct listener *l, struct http_call *call)
{
    const char *why, *length = header(call->mhd, "Content-Length");
    guard_set(l->http->guard, call->connection->deadline, l->http->setup.deadline_ms);
    int status = access_check(&l->rules, header(call->mhd, "Host"), header(call->mhd, "Origin"), &why);
    if (status)
        return refuse(call->mhd, (unsigned)status, status == 421 ? "wrong-host" : "foreign-origin", why);
    if (length && strtoull(length, NULL, 10) > BODY_MAX)
        return refuse(call->mhd, MHD_HTTP_CONTENT_TOO_LARGE, "too-large", "a request body may have 8 MiB");
    return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **request)
{
    (void)version;
    struct listener *l = arg;
    struct http_call *call = *request;
    if (!call) {
        *request = call = call_new(l, mhd, method, url);
        return on_headers(l, call);
    }
    if (*n) {
        add_body(call, data, *n);
        *n = 0;
        return MHD_YES;
    }
    if (call->response)
        return MHD_queue_response(mhd, call->status, call->response);
    if (call->too_large)
        return refuse(mhd, MHD_HTTP_CONTENT_TOO_LARGE, "too-large", "a request body may have 8 MiB");
    const struct access_claim claim = {.authorization = header(mhd, "Authorization"),
                                       .content_type = header(mhd, "Content-Type"),
                                       .has_body = call->n_body || !strcmp(method, "POST")};
    call->may_write = access_may_write(&l->rules, &claim);
    return hand_over(l->http, call);
}

/* --- start and stop
 * ------------------------------------------------------------------------------------------------------ */

/* Takes over fd. */
static int serve(struct listener *l, int fd, struct err *err)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    l->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, l, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        l->rules.is_tcp ? (unsigned)CONNECTIONS_PER_ADDRESS : 0, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)INACTIVE_SECONDS,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, l, MHD_OPTION_NOTIFY_CONNECTION, on_connection, l,
        MHD_OPTION_END);
    if (l->daemon)
        return 0;
    close(fd);
    return err_set(err, -EIO, "the HTTP server cannot be started: %s", strerror(errno));
}

static bool wants_tcp(const struct http_setup *setup)
{
    return setup->tcp_listen && *setup->tcp_listen && strcmp(setup->tcp_listen, "none") != 0;
}

static int start_tcp(struct http *http, const struct http_setup *setup, struct err *err)
{
    struct listen_addr addr;
    int fd, rc = listen_read_addr(&addr, setup->tcp_listen, err);
    if (!rc && !addr.is_loopback && !http->token)
        rc = err_set(
            err, -EACCES,
            "http-listen %s can be reached by others and needs --http-token-file (there is no encryption: "
            "better keep to 127.0.0.1 and use an SSH tunnel)",
            setup->tcp_listen);
    if (!rc)
        rc = listen_tcp(&fd, &addr, setup->tcp_listen, err);
    if (rc)
        return rc;
    struct listener *l = &http->tcp;
    l->http = http;
    l->port = addr.port;
    l->rules = (struct access_rules){.is_tcp = true, .is_loopback = addr.is_loopback, .token = http->token};
    snprintf(l->rules.host, sizeof l->rules.host, "%s", addr.host);
    return serve(l, fd, err);
}

static int start_unix(struct http *http, const struct http_setup *setup, struct err *err)
{
    int fd, rc = listen_unix(&fd, setup->unix_path, err);
    if (rc)
        return rc;
    http->unix_path = xstrdup(setup->unix_path);
    http->unix_socket.http = http;
    return serve(&http->unix_socket, fd, err);
}

int http_start(struct http **ret, const struct http_setup *setup, struct err *err)
{
    struct http *http = xcalloc(1, sizeof *http);
    http->setup = *setup;
    http->token = setup->token && *setup->token ? xstrdup(setup->token) : NULL;
    if (!http->setup.deadline_ms)
        http->setup.deadline_ms = DEADLINE_MS;
    pthread_mutex_init(&http->lock, NULL);
    int rc = guard_start(&http->guard);
    if (rc)
        err_set(err, rc, "the HTTP server's guard cannot be started: %s", strerror(-rc));
    if (!rc && setup->unix_path)
        rc = start_unix(http, setup, err);
    if (!rc && wants_tcp(setup))
        rc = start_tcp(http, setup, err);
    if (rc) {
        http_stop(http);
        return rc;
    }
    hub_on_publish(setup->hub, on_publish, http);
    *ret = http;
    return 0;
}

static void release_all(struct http *http)
{
    pthread_mutex_lock(&http->lock);
    http->stopping = true;
    for (struct http_call *call = http->calls; call; call = call->next) {
        if (call->parked && !call->response) {
            call->response = error_response("stopping", "ringd is stopping");
            call->status = MHD_HTTP_SERVICE_UNAVAILABLE;
        }
        unpark(call);
    }
    pthread_mutex_unlock(&http->lock);
}

/* What the loop has not been given goes; what it holds learns that nobody waits for the answer. */
static void orphan_all(struct http *http)
{
    for (struct http_call *call = http->calls, *next; call; call = next) {
        next = call->next;
        call->http = NULL;
        if (call->posted)
            call_drop(call);
    }
    /* The list itself goes with http: what is left is taken off it, each call pointing at its own link. */
    while (http->calls) {
        struct http_call *call = http->calls;
        http->calls = call->next;
        if (call->next)
            call->next->at = &http->calls;
        call->next = NULL;
        call->at = &call->next;
    }
}

void http_stop(struct http *http)
{
    if (!http)
        return;
    hub_on_publish(http->setup.hub, NULL, NULL);
    release_all(http);
    if (http->tcp.daemon)
        MHD_stop_daemon(http->tcp.daemon);
    if (http->unix_socket.daemon)
        MHD_stop_daemon(http->unix_socket.daemon);
    mailbox_forget(http->setup.mailbox, http);
    orphan_all(http);
    guard_stop(http->guard);
    if (http->unix_path)
        unlink(http->unix_path);
    pthread_mutex_destroy(&http->lock);
    free(http->unix_path);
    free(http->token);
    free(http);
}

uint16_t http_port(const struct http *http)
{
    return http->tcp.port;
}

/* --- what a handler may ask
 * ---------------------------------------------------------------------------------------------- */

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
