/* SPDX-License-Identifier: MIT
 *
 * Wires the rooms doctor and http: what they borrow, and what they cannot do by themselves. Called
 * by node.c. Loop thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/optable.h"
#include "daemon/ringd/cluster/identity_token.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/doctor/doctor_setup.h"
#include "daemon/ringd/api/api.h"
#include "daemon/ringd/api/api_setup.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/http/http_keys.h"
#include "daemon/ringd/http/http_server.h"
#include "daemon/ringd/api/intake.h"
#include "daemon/ringd/api/loan_desk.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/cluster/keys_process.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/deputy/deputy.h"
#include "daemon/ringd/node_impl.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/serve/desk.h"
#include "daemon/ringd/service.h"
#include "daemon/ringd/api/metrics_text.h"
#include "daemon/ringd/store/metrics.h"

/* --- the token -------------------------------------------------------------------------------- */

enum { TOKEN_PATH = 3200 };

/* Beside the identity, unless --http-token-file says otherwise: then it is there already. */
static const char *token_path(const struct node *n, const struct opts *opts, char own[TOKEN_PATH])
{
    const char *path = opts_str(opts, "http-token-file");
    snprintf(own, TOKEN_PATH, "%s/http-token", n->state_dir);
    return path ? path : own;
}

static int load_token(const struct node *n, const struct opts *opts, char token[TOKEN_ROOM], struct err *err)
{
    char own[TOKEN_PATH];
    const char *path = token_path(n, opts, own);
    return token_load(token, path, path == own, err);
}

static int on_token(void *owner, bool renew, char *ret, struct err *err)
{
    struct node *n = owner;
    char own[TOKEN_PATH];
    if (!renew)
        return load_token(n, n->opts, ret, err);
    int r = token_renew(ret, token_path(n, n->opts, own), err);
    if (!r)
        http_set_token(n->http, ret);
    return r;
}

int node_reload_token(struct node *n, const struct opts *opts, struct err *err)
{
    char token[TOKEN_ROOM];
    int r = load_token(n, opts, token, err);
    if (!r)
        http_set_token(n->http, token);
    token_wipe(token);
    return r;
}

/* --- the server ------------------------------------------------------------------------------- */

static void on_answered(void *owner, const char *route, unsigned status)
{
    struct node *n = owner;
    metrics_request(n->metrics, route, status);
}

static void on_request(void *owner, struct http_call *call)
{
    struct node *n = owner;
    api_handle(n->api, call);
}

int node_open_http(struct node *n, struct err *err)
{
    const char *tcp = opts_str(n->opts, "http-listen");
    char token[TOKEN_ROOM];
    int r = load_token(n, n->opts, token, err);
    if (r)
        return r;
    char keys[TOKEN_PATH];
    const char *const *origins;
    const size_t norigins = opts_list(n->opts, "allow-origin", &origins);
    snprintf(keys, sizeof keys, "%s/client-keys", n->state_dir);
    struct http_setup setup = {.base = n->base,
                               .mailbox = n->mailbox,
                               .events = n->events,
                               .ledger = n->ledger,
                               .unix_path = opts_str(n->opts, "socket"),
                               .tcp_listen = tcp && strcmp(tcp, "none") ? tcp : NULL,
                               .token = token,
                               .keys_path = keys,
                               .origins = origins,
                               .norigins = norigins,
                               .handle = on_request,
                               .answered = on_answered,
                               .owner = n};
    r = http_start(&n->http, &setup, err);
    token_wipe(token);
    return r;
}

/* --- the API ---------------------------------------------------------------------------------- */

static void on_self_shown(void *owner)
{
    node_refresh_self(owner);
}

static json_t *cables_elsewhere(void *owner)
{
    return cables_elsewhere_encode(owner);
}

static bool healthy(void *owner, char *why, size_t size)
{
    struct node *n = owner;
    return service_healthy(n->service, why, size);
}

static char *text_of_metrics(void *owner)
{
    struct metrics_sources from;
    node_refresh_self(owner);
    node_metrics_sources(owner, &from);
    return metrics_text(&from);
}

static int on_reload(void *owner, json_t **ret, struct err *err)
{
    struct node *n = owner;
    return service_reload(n->service, ret, err);
}

static bool on_link(void *owner, char *ret)
{
    struct node *n = owner;
    return http_make_link(n->http, ret);
}

static struct http *server_of(void *owner)
{
    return ((struct node *)owner)->http;
}

void node_share_keys(struct node *n)
{
    json_t *keys =
        n->desk ? http_tell_keys(n->http) : NULL; /* not before the API is open, nor while it ends */
    if (json_array_size(keys))
        peers_broadcast(n->peers, json_pack("{s:s s:O}", "kind", "client-keys", "keys", keys));
    json_decref(keys);
}

void node_take_keys(struct node *n, const uint8_t from[16], const json_t *keys)
{
    struct err err;
    bool news = false;
    const struct member *other = members_find(n->members, from);
    const int r = n->desk ? http_merge_keys(n->http, keys, &news, &err) : 0;
    if (r) /* nonsense can come at any rate */
        log_line(r == -EBADMSG ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING,
                 "keys of clients that another node has are not taken over: %s", err.text);
    else if (news)
        log_info("keys of clients are now as %s has them", other ? other->name : "another node");
}

static void on_keys_changed(void *owner)
{
    node_share_keys(owner);
}

static int on_drain(void *owner, const uint8_t id[16], const char *reason)
{
    struct node *n = owner;
    const struct member *self = members_self(n->members);
    if (memcmp(id, self->id, 16) != 0)
        return peers_send(n->peers, id, json_pack("{s:s s:s}", "kind", "drain", "reason", reason));
    node_drain(n, self->id, reason);
    return 0;
}

static int on_adopt(void *owner, const uint8_t head[16], uint64_t job, bool must_ask,
                    void (*done)(void *arg, uint64_t as, const char *why), void *arg)
{
    struct node *n = owner;
    return deputy_adopt(n->deputy, head, job, must_ask, done, arg);
}

static void describe_lost(void *owner, const uint8_t head[16], uint64_t job, char *text, size_t size)
{
    const struct node *n = owner;
    deputy_describe(n->deputy, head, job, text, size);
}

static void open_elsewhere(struct node *n)
{
    n->elsewhere = elsewhere_new(&(struct elsewhere_setup){.base = n->base,
                                                           .mailbox = n->mailbox,
                                                           .cluster = n->cluster,
                                                           .members = n->members,
                                                           .peers = n->peers,
                                                           .store = n->store,
                                                           .coord = n->coord,
                                                           .events = n->events,
                                                           .ledger = n->ledger,
                                                           .handle = on_request,
                                                           .describe_lost = describe_lost,
                                                           .owner = n});
}

static void open_doctor(struct node *n)
{
    n->doctor = doctor_new(&(struct doctor_setup){.base = n->base,
                                                  .mailbox = n->mailbox,
                                                  .state_dir = n->state_dir,
                                                  .opts = n->opts,
                                                  .cluster = n->cluster,
                                                  .members = n->members,
                                                  .cables = n->cables,
                                                  .peers = n->peers,
                                                  .store = n->store,
                                                  .spawner = n->spawner,
                                                  .workers = n->workers,
                                                  .keys_pid = keys_process_pid(n->keys_process)});
}

static int ask_stage(void *owner, uint64_t job, json_t *message)
{
    const struct node *n = owner;
    return workers_ask(n->workers, job, message);
}

static void on_asked(void *owner, uint64_t job, bool has_asks)
{
    const struct node *n = owner;
    coord_asked(n->coord, job, has_asks);
}

void node_open_api(struct node *n)
{
    n->desk = desk_new(&(struct desk_setup){
        .base = n->base, .ledger = n->ledger, .say = ask_stage, .asked = on_asked, .owner = n});
    open_elsewhere(n);
    open_doctor(n);
    n->loan_desk =
        loan_desk_new(&(struct loan_desk_setup){.base = n->base, .mailbox = n->mailbox, .book = n->loans});
    n->intake = intake_new(&(struct intake_setup){.base = n->base,
                                                  .mailbox = n->mailbox,
                                                  .state_dir = n->state_dir,
                                                  .coord = n->coord,
                                                  .plan_request = n->plan_request,
                                                  .store = n->store,
                                                  .ledger = n->ledger});
    n->api = api_new(&(struct api_setup){.base = n->base,
                                         .state_dir = n->state_dir,
                                         .opts = n->opts,
                                         .cluster = n->cluster,
                                         .enrol = n->enrol,
                                         .members = n->members,
                                         .records = n->records,
                                         .cables = n->cables,
                                         .peers = n->peers,
                                         .store = n->store,
                                         .coord = n->coord,
                                         .doctor = n->doctor,
                                         .events = n->events,
                                         .elsewhere = n->elsewhere,
                                         .intake = n->intake,
                                         .loan_desk = n->loan_desk,
                                         .desk = n->desk,
                                         .supply = n->supply,
                                         .owner = n,
                                         .self_shown = on_self_shown,
                                         .cables_elsewhere = cables_elsewhere,
                                         .healthy = healthy,
                                         .metrics_text = text_of_metrics,
                                         .reload = on_reload,
                                         .token = on_token,
                                         .drain = on_drain,
                                         .adopt = on_adopt,
                                         .link = on_link,
                                         .http = server_of,
                                         .keys_changed = on_keys_changed});
}
