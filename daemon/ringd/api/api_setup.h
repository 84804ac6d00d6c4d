/* SPDX-License-Identifier: MIT
 *
 * What the HTTP API shows, and what it cannot do by itself. */
#ifndef DAEMON_API_SETUP_H
#define DAEMON_API_SETUP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct cables;
struct cluster;
struct coord;
struct desk;
struct doctor;
struct elsewhere;
struct enrol;
struct event_base;
struct event_log;
struct http;
struct intake;
struct loan_desk;
struct members;
struct opts;
struct peers;
struct records;
struct store;
struct supply;

struct api_setup {
    /* all borrowed */
    struct event_base *base;
    const char *state_dir;
    const struct opts *opts;
    struct cluster *cluster;
    struct enrol *enrol;
    struct members *members;
    struct records *records;
    struct cables *cables;
    struct peers *peers;
    struct store *store;
    struct coord *coord;
    struct doctor *doctor;
    struct event_log *events;
    struct elsewhere *elsewhere;
    struct intake *intake;
    struct loan_desk *loan_desk;
    struct desk *desk;
    struct supply *supply;
    void *owner;
    /* Our own record is about to be shown. */
    void (*self_shown)(void *owner);
    json_t *(*cables_elsewhere)(void *owner); /* the cables of the other nodes */
    /* True: the daemon is well. why: a sentence for each thing that is wrong. */
    bool (*healthy)(void *owner, char *why, size_t size);
    char *(*metrics_text)(void *owner); /* the caller frees */
    /* service_reload */
    int (*reload)(void *owner, json_t **ret, struct err *err);
    /* The token as its file has it, or a new one. ret: identity_token.h's room. */
    int (*token)(void *owner, bool renew, char *ret, struct err *err);
    /* That node takes no part in jobs from now on; "": it does again. −EHOSTUNREACH and others of
     * peers_send. */
    int (*drain)(void *owner, const uint8_t id[16], const char *reason);
    /* deputy_adopt */
    int (*adopt)(void *owner, const uint8_t head[16], uint64_t job, bool must_ask,
                 void (*done)(void *arg, uint64_t as, const char *why), void *arg);
    /* http_make_link */
    bool (*link)(void *owner, char *ret);
    struct http *(*http)(void *owner); /* the server, whose keys of clients change (http_keys.h) */
    void (*keys_changed)(void *owner); /* they did: other nodes are to have them too */
};

#endif
