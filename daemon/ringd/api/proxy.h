/* SPDX-License-Identifier: MIT
 *
 * Requests of the HTTP API about a job that another node is the head of: they are passed to that
 * node and its answer is passed back, in messages (PROTOCOL.md §6). proxy.c asks, proxy_answer.c
 * answers. Knows no node: messages, handler and events come through the setup. Loop thread. */
#ifndef DAEMON_PROXY_H
#define DAEMON_PROXY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct http_call;
struct ledger;
struct mailbox;
struct proxy;

struct proxy_setup {
    struct event_base *base; /* borrowed */
    struct mailbox *mailbox; /* borrowed */
    struct ledger *ledger;   /* borrowed: gets the queues proxy_questions and proxy_answers; may be NULL */
    /* Takes the message's reference. Not 0 as peers_send: it was not sent. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    bool (*reaches)(void *owner, const uint8_t id[16]);
    /* Answers a request of another node: the API's handler. The path names a job of this node by
     * its number. */
    void (*handle)(void *owner, struct http_call *call);
    /* The next event of a job, as event_log_next gives it. */
    char *(*next_event)(void *owner, uint64_t job, uint64_t after, uint64_t *ret_id, bool *ret_last);
    void *owner;
};
struct proxy *proxy_new(const struct proxy_setup *setup);
/* All that wait are answered; streams end. Before http_stop. */
void proxy_free(struct proxy *p);

struct proxy_node {
    uint8_t id[16];
    char name[64];
};
/* Passes the request on to node to[0]; path: what it is there. Where a node answers 404, the next
 * of these n ≥ 1 is asked. Answers and frees the call, now or later: with the answer of the last
 * that was asked, or with 503 and a sentence when none comes in time. what: the nodes are to this
 * job, for such a sentence, as in "is the head of"; stays. */
void proxy_ask(struct proxy *p, struct http_call *call, const struct proxy_node *to, size_t n,
               const char *what, const char *path);
/* The messages "api-ask", "api-more" and "api-told", whose fields have been checked. */
void proxy_take_ask(struct proxy *p, const uint8_t from[16], const json_t *body);
void proxy_take_more(struct proxy *p, const uint8_t from[16], const json_t *body);
void proxy_take_told(struct proxy *p, const uint8_t from[16], const json_t *body);
void proxy_changed(struct proxy *p);                 /* nodes came or went */
void proxy_published(struct proxy *p, uint64_t job); /* the event log has a new event of this job */

#endif
