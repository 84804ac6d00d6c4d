/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/enrol_impl.h"
#include "daemon/ringd/timer.h"
#include "net/base/reason.h"

static void finish(struct enrol *e, const char *error)
{
    struct joining j = e->joining;
    char text[512];

    snprintf(text, sizeof text, "%s", error ? error : ""); /* it may lie in what is wiped now */
    timer_stop(e->deadline);
    cluster_forget(e->setup.cluster, &e->joining);
    link_free(j.link);
    sodium_memzero(&e->joining, sizeof e->joining);
    sodium_memzero(&j.token, sizeof j.token);
    sodium_memzero(&j.keys, sizeof j.keys);
    j.done(j.arg, error ? text : NULL);
}

/* This attempt led nowhere: the end of a join at a given address, one of several of a search. What
 * a member says that has proved the cluster is the end of a search too. */
static void give_up(struct enrol *e, bool is_final, const char *why)
{
    struct joining *j = &e->joining;

    link_free(j->link);
    j->link = NULL;
    snprintf(j->why, sizeof j->why, "%s", why);
    if (!j->searching || (is_final && j->is_proved))
        finish(e, j->why);
}

/* The member proves the cluster before we have said who we are. */
static int join_vet(void *owner, struct link *link, const struct link_hello *peer, char *why, size_t size)
{
    struct enrol *e = owner;
    uint8_t id[CERT_ID];
    struct cert cert;

    cert_cluster_id(id, peer->cluster_key);
    if (memcmp(id, e->joining.token.cluster_id, sizeof id))
        snprintf(why, size, "%s is not in the cluster of this token: this node sent no secret to it",
                 peer->name);
    else if (cert_open(peer->cert, sizeof peer->cert, peer->cluster_key, &cert) ||
             sodium_memcmp(cert.pub, link_peer_key(link), sizeof cert.pub))
        snprintf(why, size,
                 "%s cannot prove that it is in the cluster of this token: this node sent no secret to it",
                 peer->name);
    else
        e->joining.is_proved = true;
    return e->joining.is_proved ? 0 : -EPERM;
}

/* The secret itself never leaves this node: a member learns nothing that would let another node
 * in. */
static void join_up(void *owner, struct link *link)
{
    struct enrol *e = owner;
    const struct joining *j = &e->joining;
    const struct token_claim claim = {
        .token = j->token.id, .pub = e->setup.id->pub, .hash = link_hash(link), .name = j->name};
    uint8_t proof[AUTH_SIGNATURE];

    timer_set_ms(e->deadline, e->setup.answer_ms);
    if (token_prove(&j->token, &claim, proof) || link_send(link, ENROL_FRAME_PROOF, proof, sizeof proof))
        give_up(e, false, "the proof of the token cannot be sent: no memory");
}

static void on_kept(void *arg, const char *error)
{
    struct joining *j = arg;
    finish(j->e, error);
}

static void join_frame(void *owner, struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    struct enrol *e = owner;
    struct err err;

    (void)link;
    if (type != ENROL_FRAME_GRANT)
        return;
    if (n < ENROL_GRANT_HEAD) {
        give_up(e, false, "the cluster's answer cannot be read: install the same ringd on both nodes");
        return;
    }
    if (cluster_adopt(e->setup.cluster, e->joining.token.cluster_id, body + CERT_BYTES, body,
                      body + ENROL_GRANT_HEAD, n - ENROL_GRANT_HEAD, &err)) {
        give_up(e, false, err.text);
        return;
    }
    link_free(e->joining.link);
    e->joining.link = NULL;
    e->joining.is_in = true;
    timer_stop(e->deadline);
    cluster_when_kept(e->setup.cluster, on_kept, &e->joining);
    e->setup.changed(e->setup.owner);
}

static void join_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    (void)link;
    give_up(owner, end == LINK_END_REFUSED, text);
}

static const struct link_ops join_ops = {
    .vet = join_vet, .hello = enrol_hello_vetted, .up = join_up, .frame = join_frame, .down = join_down};

static void on_deadline(void *owner)
{
    struct enrol *e = owner;
    char text[512];

    if (e->joining.link)
        snprintf(text, sizeof text, "the member at %s did not answer in time: try again",
                 link_address(e->joining.link));
    else if (*e->joining.why)
        snprintf(text, sizeof text, "%s", e->joining.why);
    else
        snprintf(text, sizeof text,
                 "no member that knows this token was found on any cable within %u s: check the cable and "
                 "that the token is "
                 "not spent, or name a member with --peer HOST:PORT",
                 e->setup.search_ms / 1000);
    finish(e, text);
}

void enrol_try(struct enrol *e, const char *host, uint16_t port)
{
    struct joining *j = &e->joining;
    if (!j->active)
        enrol_return(e, host, port);
    if (!j->active || j->link || j->is_in)
        return;
    j->is_proved = false;
    struct link_setup setup = {.base = e->setup.base,
                               .id = e->setup.id,
                               .psk = j->keys.psk,
                               .kind = LINK_JOIN,
                               .max_segment = LINK_SEGMENT_LEAST, /* whatever is between, it passes */
                               .hello = {.proto_min = 1, .proto_max = 1},
                               .ops = &join_ops,
                               .owner = e};
    snprintf(setup.hello.name, sizeof setup.hello.name, "%s", j->name);
    snprintf(setup.hello.version, sizeof setup.hello.version, "%s", e->setup.version);
    int r = link_dial(&j->link, &setup, host, port);
    if (r)
        snprintf(j->why, sizeof j->why, "%s cannot be dialled: %s", host, reason_of(r).text);
}

bool enrol_is_own(const struct enrol *e, const char *token)
{
    struct token t;
    if (cluster_state(e->setup.cluster) != CLUSTER_MEMBER || token_read(token, &t))
        return false;
    const bool is_own = !memcmp(cluster_roster(e->setup.cluster)->cluster_id, t.cluster_id, CERT_ID);
    sodium_memzero(&t, sizeof t);
    return is_own;
}

int enrol_join(struct enrol *e, const char *token, const char *name, const char *host, uint16_t port,
               void (*done)(void *arg, const char *error), void *arg, struct err *err)
{
    struct joining *j = &e->joining;
    struct token t;
    int r = token_read(token, &t);
    if (r)
        return err_set(err, r,
                       r == -EBADMSG ? "this token has a typing error: copy it again"
                                     : "this is not a token: a token begins with " TOKEN_PREFIX
                                       " and has %d characters",
                       TOKEN_TEXT - 1);
    /* The same cluster again is fine: a node that was removed while it was away does not know
     * it. */
    if (cluster_state(e->setup.cluster) == CLUSTER_MEMBER &&
        memcmp(cluster_roster(e->setup.cluster)->cluster_id, t.cluster_id, CERT_ID))
        return err_set(
            err, -EEXIST,
            "this node is in cluster %s already: to take it out, run `ringctl remove` on another member",
            cluster_roster(e->setup.cluster)->name);
    const struct token_book *own = cluster_tokens(e->setup.cluster);
    for (size_t i = 0; own && i < own->n; i++)
        if (!memcmp(own->at[i].id, t.id, TOKEN_ID))
            return err_set(err, -EEXIST,
                           "this node made the token for another node: run `ringctl join` there");
    if (j->active)
        return err_set(err, -EALREADY, "this node is joining already: wait until that is over");
    *j = (struct joining){.e = e, .active = true, .searching = !host, .token = t, .done = done, .arg = arg};
    snprintf(j->name, sizeof j->name, "%s", name);
    token_derive(&t, &j->keys);
    sodium_memzero(&t, sizeof t);
    timer_set_ms(e->deadline, e->setup.search_ms);
    if (host)
        enrol_try(e, host, port);
    return 0;
}

bool enrol_question(const struct enrol *e, uint8_t ret[static TOKEN_TAG])
{
    if (!e->joining.active || !e->joining.searching || e->joining.is_in)
        return false;
    memcpy(ret, e->joining.keys.question, TOKEN_TAG);
    return true;
}

bool enrol_is_answer(const struct enrol *e, const uint8_t answer[static TOKEN_TAG])
{
    return (e->joining.active && !sodium_memcmp(answer, e->joining.keys.answer, TOKEN_TAG)) ||
           enrol_return_is_answer(e, answer);
}

void enrol_join_init(struct enrol *e)
{
    e->deadline = timer_new(e->setup.base, on_deadline, e);
}

void enrol_join_done(struct enrol *e)
{
    cluster_forget(e->setup.cluster, &e->joining);
    link_free(e->joining.link);
    timer_free(e->deadline);
}
