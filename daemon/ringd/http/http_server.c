/* SPDX-License-Identifier: MIT
 *
 * Owns the listeners and every connection. The server's threads take requests in and park them
 * (suspended); the loop thread answers through http_reply or http_stream, which wakes them. */
#include "daemon/ringd/http/http_server.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/fds.h"
#include "daemon/ringd/http/http_call.h"
#include "daemon/ringd/http/http_guard.h"
#include "daemon/ringd/http/http_listen.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/common/xalloc.h"
#include "daemon/common/xsecret.h"
#include "net/base/secret.h"

enum limits {
    FDS_SHARE = 4,                 /* a listener takes at most this part of the file descriptors */
    CONNECTIONS_MAX = 512,         /* per listener: a dashboard holds one for its events */
    CONNECTIONS_PER_ADDRESS = 448, /* so that one host cannot take them all */
    WAITING_MAX = 224, /* per listener, without a whole request: a newer one takes the place of the oldest */
    SENTENCE = 18,     /* bytes of the shortest request there is, `GET / HTTP/1.0` with its line ends */
    CONNECTION_MEMORY = 32 << 10, /* headers of a request and its reply; touched as far as they go */
    INACTIVE_SECONDS = 30,        /* a client that takes nothing of its answer */
    DEADLINE_MS = 10000,
    ANSWERS_MAX = 64 << 20, /* bytes of answers that clients have not taken yet */
    IDLE_MS = 30000,        /* between two requests of one connection, headers of the second included */
};

/* --- requests, on the server's threads --- */

/* An answer of the server itself, on its own thread. */
static enum MHD_Result refuse(const struct http_call *call, unsigned status, const char *code,
                              const char *message)
{
    struct MHD_Response *r = response_error(code, message);
    if (!r)
        return MHD_NO;
    /* The rest of the request is not read, so the connection cannot be used again. */
    MHD_add_response_header(r, "Connection", "close");
    response_allow(r, call->origin);
    enum MHD_Result ok = MHD_queue_response(call->mhd, status, r);
    MHD_destroy_response(r);
    return ok;
}

/* The guard's thread: a stream is due a sign of life, anything else has had its time. */
static void on_deadline(void *arg)
{
    struct connection *c = arg;
    pthread_mutex_lock(&c->http->lock);
    if (c->streaming) {
        c->streaming->ping_due = true;
        call_unpark(c->streaming);
    } else {
        shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&c->http->lock);
}

/* Under lock: it has asked, or it is gone. */
static void waits_no_more(struct connection *c)
{
    if (!c->at)
        return;
    *c->at = c->next;
    if (c->next)
        c->next->at = c->at;
    else
        c->listener->waiting_end = c->at;
    c->at = NULL;
    c->listener->n_waiting--;
}

/* Under lock: who has waited longest, but for those who have sent a question we were not quick
 * enough to read. */
static struct connection *least_worth(const struct listener *l)
{
    for (struct connection *c = l->waiting; c; c = c->next) {
        int unread = 0;
        if (ioctl(c->fd, FIONREAD, &unread) || unread < SENTENCE)
            return c;
    }
    return l->waiting;
}

/* It is new, or its request is answered: whoever says nothing must not keep out those who have a
 * question. */
static void waits(struct connection *c)
{
    struct listener *l = c->listener;
    pthread_mutex_lock(&c->http->lock);
    waits_no_more(c);
    if (l->n_waiting == l->waiting_max) {
        struct connection *victim = least_worth(l);
        waits_no_more(victim);
        shutdown(victim->fd, SHUT_RDWR);
    }
    c->next = NULL;
    c->at = l->waiting ? l->waiting_end : &l->waiting;
    *c->at = c;
    l->waiting_end = &c->next;
    l->n_waiting++;
    pthread_mutex_unlock(&c->http->lock);
}

/* The server's side lets go of a call. */
static void let_go(struct http_call *call)
{
    struct http *http = call->http;
    pthread_mutex_lock(&http->lock);
    call->connection->streaming = NULL;
    call->parked = false;
    bool last = call_drop(call);
    pthread_mutex_unlock(&http->lock);
    if (last)
        call_free(call);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct listener *l = arg;
    struct connection *c = *socket_context;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (c->upgraded)
            let_go(c->upgraded);
        guard_remove(l->http->guard, c->deadline);
        pthread_mutex_lock(&l->http->lock);
        waits_no_more(c);
        pthread_mutex_unlock(&l->http->lock);
        free(c);
        *socket_context = NULL;
        return;
    }
    c = xcalloc(1, sizeof *c);
    c->http = l->http;
    c->listener = l;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->deadline = guard_add(l->http->guard, on_deadline, c);
    guard_set(l->http->guard, c->deadline, l->http->deadline_ms);
    waits(c);
    *socket_context = c;
}

/* Of an upgraded connection the library says so under a lock of its own. A thread that resumes a
 * connection takes that lock after ours, so nothing is locked here then. The connection is closed
 * a moment later. */
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
    *request = NULL;
    if (call->status == MHD_HTTP_SWITCHING_PROTOCOLS) {
        c->upgraded = call;
        return;
    }
    let_go(call);
    guard_set(http->guard, c->deadline, IDLE_MS);
    waits(c);
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
        http->handle(http->owner, oldest);
    }
}

/* The request is complete: parks it and tells the loop. */
static enum MHD_Result hand_over(struct http *http, struct http_call *call)
{
    pthread_mutex_lock(&http->lock);
    bool stopping = http->stopping;
    if (!stopping) {
        waits_no_more(call->connection);
        call->refs++;
        call->posted = call->parked = true;
        MHD_suspend_connection(call->mhd);
    }
    pthread_mutex_unlock(&http->lock);
    if (stopping)
        return MHD_NO;
    guard_set(http->guard, call->connection->deadline, 0);
    mailbox_post(http->mailbox, deliver, http);
    return MHD_YES;
}

/* The library keeps the header until the connection ends, or its next request comes. */
static void wipe_header(struct MHD_Connection *mhd, const char *name)
{
    const char *value = call_header(mhd, name);
    if (value)
        explicit_bzero((char *)(uintptr_t)value, strlen(value));
}

/* May it read, may it change something? Answered before a byte of the body is read. */
static void take_rights(struct listener *l, struct http_call *call)
{
    struct access_claim claim = {.authorization = call_header(call->mhd, "Authorization"),
                                 .api_key = call_header(call->mhd, "X-Api-Key"),
                                 .content_type = call_header(call->mhd, "Content-Type"),
                                 .has_body = call->body.follows || !strcmp(call->method, "POST")};
    const char *cookie =
        MHD_lookup_connection_value(call->mhd, MHD_COOKIE_KIND, l->http->sessions.cookie_name);
    pthread_mutex_lock(&l->http->lock);
    struct access_rules rules = l->rules;
    rules.token = l->http->token;
    claim.has_session =
        sessions_check(&l->http->sessions, clock_now(), cookie, call_header(call->mhd, "X-Ringd-Session"));
    call->may_write = access_may_write(&rules, &claim);
    call->may_read = access_may_read(&rules, &claim);
    const char *given = access_given(&claim);
    const struct client_key *key = given && !call->may_read ? client_keys_find(&l->http->keys, given) : NULL;
    if (key)
        snprintf(call->client, sizeof call->client, "%s", key->name);
    call->may_serve = call->may_write || (key && access_has_type(&claim));
    pthread_mutex_unlock(&l->http->lock);
    call->is_local = !rules.is_tcp;
    wipe_header(call->mhd, "Authorization");
    wipe_header(call->mhd, "X-Api-Key");
    wipe_header(call->mhd, "X-Ringd-Session");
}

/* A browser asks before it sends what a page of another origin wants: it may, with a key of its
 * own. */
static enum MHD_Result answer_preflight(struct http_call *call)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    response_allow(r, call->origin);
    MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE");
    const char *wanted = call_header(call->mhd, "Access-Control-Request-Headers");
    if (wanted)
        MHD_add_response_header(r, "Access-Control-Allow-Headers", wanted);
    MHD_add_response_header(r, "Access-Control-Max-Age", "600");
    const enum MHD_Result ok = MHD_queue_response(call->mhd, MHD_HTTP_NO_CONTENT, r);
    MHD_destroy_response(r);
    return ok;
}

/* Headers are complete: is it worth reading the body? */
static enum MHD_Result on_headers(struct listener *l, struct http_call *call)
{
    const char *why;
    guard_set(l->http->guard, call->connection->deadline, l->http->deadline_ms);
    int status =
        access_check(&l->rules, call_header(call->mhd, "Host"), call_header(call->mhd, "Origin"), &why);
    if (status)
        return refuse(call, (unsigned)status, status == 421 ? "wrong-host" : "foreign-origin", why);
    const char *origin = call_header(call->mhd, "Origin");
    if (l->rules.is_tcp && access_is_allowed(&l->rules, origin))
        call->origin = xstrdup(origin);
    if (call->origin && !strcmp(call->method, "OPTIONS"))
        return answer_preflight(call);
    body_begin(&call->body, &l->http->bodies, call_header(call->mhd, "Content-Length"),
               call_header(call->mhd, "Transfer-Encoding"));
    take_rights(l, call);
    if (call->body.follows && !call->may_serve && !call->may_read && !*call->client)
        return refuse(call, MHD_HTTP_UNAUTHORIZED, "token",
                      "over TCP this needs the token (`ringctl token` prints it there) or, for what is "
                      "served, a client's key (`ringctl key add`), as Authorization: Bearer …");
    if (call->body.follows && !call->may_serve)
        return refuse(call, MHD_HTTP_FORBIDDEN, "forbidden",
                      "over TCP a request with a body needs Content-Type: application/json");
    const struct body_refusal *refusal = call->body.refusal;
    return refusal ? refuse(call, refusal->status, refusal->code, refusal->reason) : MHD_YES;
}

/* The answer is there. A client that takes longer for a MiB of it than `deadline_ms` is cut
 * off. */
static enum MHD_Result answer(struct http_call *call)
{
    struct http *http = call->http;
    const uint64_t ms = http->deadline_ms * (2 + (call->n_answer >> 20));
    guard_set(http->guard, call->connection->deadline, ms < UINT_MAX ? (unsigned)ms : UINT_MAX);
    return MHD_queue_response(call->mhd, call->status, call->response);
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
        body_add(&call->body, data, *n);
        *n = 0;
        return MHD_YES;
    }
    if (call->response)
        return answer(call);
    const struct body_refusal *refusal = call->body.refusal;
    if (refusal)
        return refuse(call, refusal->status, refusal->code, refusal->reason);
    return hand_over(l->http, call);
}

/* --- start and stop --- */

/* Takes over fd. */
static int serve(struct listener *l, int fd, struct err *err)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE;
    unsigned most =
        fds_allowed() / FDS_SHARE < CONNECTIONS_MAX ? (unsigned)(fds_allowed() / FDS_SHARE) : CONNECTIONS_MAX;
    l->waiting_max = most * WAITING_MAX / CONNECTIONS_MAX;
    errno = 0;
    l->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, l, MHD_OPTION_LISTEN_SOCKET, fd,
                                 MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                                 l->rules.is_tcp ? most * CONNECTIONS_PER_ADDRESS / CONNECTIONS_MAX : 0,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)INACTIVE_SECONDS,
                                 MHD_OPTION_NOTIFY_COMPLETED, on_completed, l, MHD_OPTION_NOTIFY_CONNECTION,
                                 on_connection, l, MHD_OPTION_END);
    if (l->daemon)
        return 0;
    close(fd);
    return err_set(err, errno ? -errno : -EIO, "the HTTP server cannot be started: %s", strerror(errno));
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
    l->rules = (struct access_rules){.is_tcp = true, .is_loopback = addr.is_loopback};
    l->rules.origins = setup->origins;
    l->rules.norigins = setup->norigins;
    snprintf(l->rules.host, sizeof l->rules.host, "%s", addr.host);
    return serve(l, fd, err);
}

static int start_unix(struct http *http, const struct http_setup *setup, struct err *err)
{
    int fd = listen_inherited(), rc;
    http->unix_socket.http = http;
    if (fd < 0) {
        rc = listen_unix(&fd, setup->unix_path, err);
        if (rc)
            return rc;
        http->unix_path = xstrdup(setup->unix_path); /* ours to remove; an inherited one outlives us */
    }
    return serve(&http->unix_socket, fd, err);
}

int http_start(struct http **ret, const struct http_setup *setup, struct err *err)
{
    struct http *http = xsecret(sizeof *http);
    http->base = setup->base;
    http->mailbox = setup->mailbox;
    http->events = setup->events;
    http->handle = setup->handle;
    http->answered = setup->answered;
    http->owner = setup->owner;
    http->deadline_ms = setup->deadline_ms ? setup->deadline_ms : DEADLINE_MS;
    http->token = setup->token && *setup->token ? xsecret_text(setup->token) : NULL;
    pthread_mutex_init(&http->lock, NULL);
    sessions_init(&http->sessions);
    ledger_register(setup->ledger, &http->bodies, "http_bodies",
                    setup->bodies_max ? setup->bodies_max : BODIES_MAX);
    ledger_register(setup->ledger, &http->answers, "http_answers", ANSWERS_MAX);
    int rc = guard_start(&http->guard);
    if (rc)
        err_set(err, rc, "the HTTP server's guard cannot be started: %s", strerror(-rc));
    else
        rc = client_keys_open(&http->keys, xstrdup(setup->keys_path), err);
    if (!rc)
        http->wake_streams = guard_add(http->guard, stream_on_due, http);
    if (!rc && setup->unix_path)
        rc = start_unix(http, setup, err);
    if (!rc && wants_tcp(setup))
        rc = start_tcp(http, setup, err);
    if (rc) {
        http_stop(http);
        return rc;
    }
    event_log_on_publish(setup->events, stream_on_publish, http);
    *ret = http;
    return 0;
}

static void release_all(struct http *http)
{
    pthread_mutex_lock(&http->lock);
    http->stopping = true;
    for (struct http_call *call = http->calls; call; call = call->next) {
        leave_stop(call);
        if (call->parked && !call->response) {
            call->response = response_error("stopping", "ringd is stopping");
            call->status = MHD_HTTP_SERVICE_UNAVAILABLE;
        }
        call_unpark(call);
    }
    pthread_mutex_unlock(&http->lock);
}

/* What the loop has not been given goes; what it holds learns that nobody waits for the answer. */
static void orphan_all(struct http *http)
{
    for (struct http_call *call = http->calls, *next; call; call = next) {
        next = call->next;
        call->http = NULL;
        call->body.bodies = NULL;
        if (call->posted && call_drop(call))
            call_free(call);
    }
    /* The list itself goes with http: what is left is taken off it, each call pointing at its own
     * link. */
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
    event_log_on_publish(http->events, NULL, NULL);
    release_all(http);
    if (http->tcp.daemon)
        MHD_stop_daemon(http->tcp.daemon);
    if (http->unix_socket.daemon)
        MHD_stop_daemon(http->unix_socket.daemon);
    mailbox_forget(http->mailbox, http);
    orphan_all(http);
    guard_remove(http->guard, http->wake_streams);
    guard_stop(http->guard);
    if (http->unix_path)
        unlink(http->unix_path);
    pthread_mutex_destroy(&http->lock);
    free(http->unix_path);
    client_keys_done(&http->keys);
    secret_free(http->token);
    secret_free(http);
}

void http_set_token(struct http *http, const char *token)
{
    pthread_mutex_lock(&http->lock);
    if (!http->token || strcmp(http->token, token))
        sessions_end_all(&http->sessions);
    secret_free(http->token);
    http->token = xsecret_text(token);
    pthread_mutex_unlock(&http->lock);
}

/* A browser on this machine reaches a listener of all addresses by loopback. */
static const char *host_of_link(const struct access_rules *rules)
{
    if (!strcmp(rules->host, "0.0.0.0"))
        return "127.0.0.1";
    return strcmp(rules->host, "::") ? rules->host : "::1";
}

bool http_make_link(struct http *http, char ret[HTTP_LINK_ROOM])
{
    char ticket[SECRET_ROOM];
    const char *host = host_of_link(&http->tcp.rules);
    const bool is_v6 = strchr(host, ':');
    if (!http->tcp.daemon)
        return false;
    pthread_mutex_lock(&http->lock);
    sessions_ticket(&http->sessions, clock_now(), ticket);
    pthread_mutex_unlock(&http->lock);
    /* Behind a #, which a browser sends to nobody and no log has. */
    snprintf(ret, HTTP_LINK_ROOM, "http://%s%s%s:%u/#ticket=%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
             (unsigned)http->tcp.port, ticket);
    return true;
}

uint16_t http_port(const struct http *http)
{
    return http->tcp.port;
}
