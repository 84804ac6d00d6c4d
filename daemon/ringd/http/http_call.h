/* SPDX-License-Identifier: MIT
 *
 * Inside the HTTP server (http_server.c, http_call.c, http_answer.c, http_stream.c, http_feed.c,
 * http_inside.c, http_leave.c): the server, its connections and the requests under way.
 *
 * A call is held from two sides, the server's threads and the loop's, and goes when both have let
 * go. `lock` covers the list of calls and the fields marked so; it is taken after the guard's and
 * never the other way round. */
#ifndef DAEMON_HTTP_CALL_H
#define DAEMON_HTTP_CALL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/http/client_keys.h"
#include "daemon/ringd/http/http_access.h"
#include "daemon/ringd/http/http_body.h"
#include "daemon/ringd/http/http_session.h"
#include "net/clock.h"

struct event;
struct event_base;
struct event_log;
struct http_call;
struct http_feed;
struct http_inside;
struct mailbox;

struct listener {
    struct http *http;         /* borrowed */
    struct MHD_Daemon *daemon; /* owned */
    struct access_rules rules;
    uint16_t port;
    /* without a whole request, longest first; under http->lock */
    struct connection *waiting, **waiting_end;
    size_t n_waiting, waiting_max;
};

struct http {
    struct event_base *base;  /* borrowed: the loop's */
    struct mailbox *mailbox;  /* borrowed */
    struct event_log *events; /* borrowed */
    void (*handle)(void *owner, struct http_call *call);
    void (*answered)(void *owner, const char *route, unsigned status); /* may be NULL */
    void *owner;
    unsigned deadline_ms;     /* of http_setup */
    char *unix_path;          /* owned */
    char *token;              /* owned, as all of this: net/base/secret.h; under lock */
    struct sessions sessions; /* under lock, as the next */
    struct client_keys keys;
    struct guard *guard; /* owned */
    struct listener unix_socket, tcp;
    pthread_mutex_t lock;
    struct http_call *calls; /* all that live, under lock */
    bool stopping;           /* under lock */
    struct ledger_queue bodies, answers;
    struct guard_entry *wake_streams; /* owned: those of all events, a moment after the last time */
    struct instant woken;             /* when they last were, under lock */
    bool is_wake_due;                 /* wake_streams has been set, under lock */
};

struct connection {
    struct http *http;             /* borrowed */
    struct listener *listener;     /* borrowed */
    struct connection *next, **at; /* in listener->waiting, under http->lock; at NULL = not there */
    int fd;                        /* the server's */
    struct guard_entry *deadline;  /* owned */
    struct http_call *streaming;   /* borrowed: the call whose events flow here, under http->lock */
    struct http_call *upgraded;    /* borrowed: the call that went on in another protocol; server's thread */
};

/* What a stream needs of its feed. */
struct call_feed_ops {
    /* Under lock: what was put into it, for the caller to free, or NULL. ret_last: no more will
     * come. */
    char *(*take)(struct http_feed *f, bool *ret_last);
    void (*leave)(struct http_feed *f); /* without the lock: the call goes */
};

/* Whom to tell that the client has left before its answer. Loop thread. */
struct call_leave {
    void (*left)(void *owner); /* NULL: nobody */
    void *owner;
    struct event *event; /* owned: watches the connection; NULL: there is none, or it is answered */
};

/* Where its connection goes. */
struct call_upgrade {
    void (*take)(void *owner, int fd);
    void *owner;
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
    struct body body;
    bool may_write, may_read, may_serve, is_local, is_anthropic;
    char client[CLIENT_NAME_ROOM]; /* whose key it has; "": nobody's, or the token */
    char *origin;                  /* owned: of a page that may read the answer, NULL = none */
    unsigned retry_after;          /* seconds, of an answer that says so */
    const char *route;             /* borrowed, loop thread */
    struct call_leave leave;
    uint64_t last_event_id;         /* 0 = not given */
    char *if_none_match;            /* owned; NULL = not given */
    char *ticket;                   /* owned; NULL = not given */
    char *upgrade;                  /* owned; the protocol it would rather speak, NULL = none */
    struct session_secrets session; /* begun by this request; empty = none */
    struct MHD_Response *response;  /* owned; set once, before resuming */
    unsigned status;
    uint64_t n_answer; /* bytes of it; 0 for a stream */
    size_t kept;       /* bytes of it that are in memory, in http->answers */

    /* of an event stream; server's thread but for ping_due, which is under http->lock */
    uint64_t job, after;
    char *text; /* owned: what is being sent */
    size_t n_text, sent;
    bool is_last, ping_due;
    struct http_feed
        *feed; /* its text comes from there instead; shared with the feed's owner, under http->lock */
    const struct call_feed_ops *feed_ops; /* of `feed`; borrowed */
    struct call_upgrade upgrade_to;       /* of a request that goes on in another protocol */

    struct http_inside
        *inside; /* owned; NULL = it came over a connection, else all above but the request is unused */
};

/* Server's thread: a request whose headers are complete. */
struct http_call *call_new(struct listener *l, struct MHD_Connection *mhd, const char *method,
                           const char *path);
const char *call_header(struct MHD_Connection *mhd, const char *name); /* NULL if absent */
/* Under lock, or when the server has stopped: one side lets go. True: it was the last, and
 * call_free is due, without the lock. */
bool call_drop(struct http_call *call);
void call_free(struct http_call *call);
void call_unpark(struct http_call *call); /* under lock: the server goes on with it */
/* --- http_answer.c --- */

/* Loop thread: the answer is ready; takes over response. Only from here on may events wake a
 * stream. */
void call_answer(struct http_call *call, unsigned status, struct MHD_Response *response, bool is_stream);

struct MHD_Response *response_dress(struct MHD_Response *r,
                                    const char *content_type); /* common headers; NULL stays NULL */
struct MHD_Response *response_error(const char *code, const char *message);
/* Lets a page of that origin read it; NULL: nothing. */
void response_allow(struct MHD_Response *response, const char *origin);

/* --- http_inside.c --- */

/* The answers to a call with `inside`. They free it. */
void inside_reply(struct http_call *call, int status, const char *content_type, const char *body, size_t n);
void inside_stream(struct http_call *call, uint64_t job, uint64_t after);

/* --- http_leave.c --- */

/* Ends the watch of http_on_leave: the call has its answer, or the server stops. */
void leave_stop(struct http_call *call);

/* --- http_stream.c --- */

void stream_on_due(void *http);     /* the guard's thread */
void stream_on_publish(void *http); /* the event log's, on the publisher's thread */

#endif
