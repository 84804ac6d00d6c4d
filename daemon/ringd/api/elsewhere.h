/* SPDX-License-Identifier: MIT
 *
 * The jobs that other nodes are the heads of, as this node shows them: rows that those heads sent
 * (job_news.h), everything else by asking the head (proxy.h). A job of another node is named
 * NUMBER@NODE. Owned by the node; loop thread. */
#ifndef DAEMON_ELSEWHERE_H
#define DAEMON_ELSEWHERE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cluster;
struct coord;
struct elsewhere;
struct event_base;
struct event_log;
struct http_call;
struct ledger;
struct mailbox;
struct member;
struct members;
struct peers;
struct store;

struct elsewhere_setup {
    /* all borrowed */
    struct event_base *base;
    struct mailbox *mailbox;
    struct cluster *cluster;
    struct members *members;
    struct peers *peers;
    struct store *store;
    struct coord *coord;
    struct event_log *events;
    struct ledger *ledger;
    /* Answers a request of another node: the API's handler. */
    void (*handle)(void *owner, struct http_call *call);
    /* What becomes of a job whose head is out of reach: deputy_describe. */
    void (*describe_lost)(void *owner, const uint8_t head[16], uint64_t job, char *text, size_t size);
    void *owner;
};
/* The recent jobs of earlier lives are asked of the store. */
struct elsewhere *elsewhere_new(const struct elsewhere_setup *setup);
/* Before http_stop: requests that wait are answered. From now on nothing is asked or sent. NULL is
 * fine, also in all below. */
void elsewhere_stop(struct elsewhere *e);
void elsewhere_free(struct elsewhere *e); /* after the store has closed: its last answers come here */

/* True: the request names a job of another node, or of a node that does not exist; it is answered
 * now or later. */
bool elsewhere_route(struct elsewhere *e, struct http_call *call);
/* By name, those in reach first, or by id in hex; NULL: there is none. */
const struct member *elsewhere_node(const struct elsewhere *e, const char *name);
/* Passes the request on to the nodes in reach, one after the other, until one keeps a dossier of
 * that job; the one that its head named comes first. False: no node is in reach, or another node
 * passed the request on to us; nothing was answered. */
bool elsewhere_ask_deputy(struct elsewhere *e, struct http_call *call, const uint8_t head[16], uint64_t job);
/* Passes the request on to that other node, with this path. what: why that one, as "serves this
 * model"; static. */
void elsewhere_pass_on(struct elsewhere *e, struct http_call *call, const char *node, const char *what,
                       const char *path);
/* Messages, whose fields have been checked. */
void elsewhere_take_jobs_ask(struct elsewhere *e, const uint8_t from[16], const json_t *body);
void elsewhere_take_jobs_told(struct elsewhere *e, const uint8_t from[16], const json_t *body);
void elsewhere_take_api_ask(struct elsewhere *e, const uint8_t from[16], const json_t *body);
void elsewhere_take_api_more(struct elsewhere *e, const uint8_t from[16], const json_t *body);
void elsewhere_take_api_told(struct elsewhere *e, const uint8_t from[16], const json_t *body);
void elsewhere_heard(struct elsewhere *e, const uint8_t id[16]); /* a record of this node is news */
void elsewhere_changed(struct elsewhere *e);                     /* nodes came or went */
/* An event of a job of this node, by its type. */
void elsewhere_published(struct elsewhere *e, uint64_t job, const char *type);
uint64_t elsewhere_version(const struct elsewhere *e); /* of our own rows, for our record */

/* Adds rows to a list of jobs: those of other heads, with `node`, `name` and `up`; and ours of
 * earlier lives. */
void elsewhere_add_rows(struct elsewhere *e, json_t *list);
void elsewhere_add_remembered(struct elsewhere *e, json_t *list);
/* {"running":["7@b"],"queued":[]}: of heads that can be reached. */
json_t *elsewhere_in_hand(struct elsewhere *e);
/* The jobs of other heads with that number: "7@b, 7@c", or "". */
void elsewhere_namesakes(struct elsewhere *e, uint64_t job, char *ret, size_t size);

#endif
