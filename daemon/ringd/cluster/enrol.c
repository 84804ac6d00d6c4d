/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/enrol.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ringd/cluster/enrol_impl.h"
#include "daemon/ringd/cluster/unsent.h"
#include "daemon/ringd/log.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "net/base/secret.h"
#include "daemon/common/xsecret.h"

static uint64_t now_s(const struct enrol *e)
{
    return e->setup.now_s ? e->setup.now_s(e->setup.owner) : (uint64_t)time(NULL);
}

/* --- bytes in messages --- */

static json_t *hex(const uint8_t *data, size_t n)
{
    char *text = xmalloc(2 * n + 1);
    json_t *json;

    sodium_bin2hex(text, 2 * n + 1, data, n);
    json = json_string(text);
    sodium_memzero(text, 2 * n);
    free(text);
    return json;
}

/* Bytes of a hex field, at most cap; −EBADMSG. */
static int unhex(const json_t *object, const char *key, uint8_t *out, size_t cap)
{
    const char *text = json_string_value(json_object_get(object, key));
    size_t n;

    if (!text || sodium_hex2bin(out, cap, text, strlen(text), NULL, &n, NULL) || 2 * n != strlen(text))
        return -EBADMSG;
    return (int)n;
}

static bool has_bytes(const json_t *object, const char *key, uint8_t *out, size_t n)
{
    return unhex(object, key, out, n) == (int)n;
}

/* --- tokens --- */

static uint64_t tag_of(const uint8_t id[static TOKEN_ID])
{
    uint32_t number;

    memcpy(&number, id, sizeof number);
    return ENROL_TAG_TOKEN | number;
}

static void token_of(uint64_t tag, uint8_t ret[static TOKEN_ID])
{
    uint32_t number = (uint32_t)tag;

    memcpy(ret, &number, sizeof number);
}

static bool is_token(uint64_t tag)
{
    return tag & ENROL_TAG_TOKEN;
}

bool enrol_is_key(uint64_t tag)
{
    return is_token(tag) || enrol_is_return(tag);
}

size_t enrol_link_keys(const struct enrol *e, struct link_key *ret, size_t cap)
{
    const struct token_book *own = cluster_tokens(e->setup.cluster);
    size_t n = 0;

    if (cluster_state(e->setup.cluster) != CLUSTER_MEMBER)
        return 0;
    for (size_t i = 0; i < own->n && n < cap; i++, n++) {
        memcpy(ret[n].psk, own->at[i].keys.psk, sizeof ret[n].psk);
        ret[n].tag = tag_of(own->at[i].id);
    }
    for (size_t i = 0; i < e->n_foreign && n < cap; i++, n++) {
        memcpy(ret[n].psk, e->foreign[i].token.keys.psk, sizeof ret[n].psk);
        ret[n].tag = tag_of(e->foreign[i].token.id);
    }
    if (n < cap)
        enrol_return_key(e, &ret[n++]);
    return n;
}

/* Also of a spent or expired token: its holder hears the reason and stops searching. */
static bool answers(const struct token_entry *t, const uint8_t question[static TOKEN_TAG],
                    uint8_t ret[static TOKEN_TAG])
{
    if (sodium_memcmp(t->keys.question, question, TOKEN_TAG))
        return false;
    memcpy(ret, t->keys.answer, TOKEN_TAG);
    return true;
}

bool enrol_answers(const struct enrol *e, const uint8_t question[static TOKEN_TAG],
                   uint8_t ret[static TOKEN_TAG])
{
    const struct token_book *own = cluster_tokens(e->setup.cluster);

    if (cluster_state(e->setup.cluster) != CLUSTER_MEMBER)
        return false;
    for (size_t i = 0; i < own->n; i++)
        if (answers(&own->at[i], question, ret))
            return true;
    for (size_t i = 0; i < e->n_foreign; i++)
        if (answers(&e->foreign[i].token, question, ret))
            return true;
    return enrol_return_answers(e, question, ret);
}

static const struct foreign *find_foreign(const struct enrol *e, const uint8_t id[static TOKEN_ID])
{
    for (size_t i = 0; i < e->n_foreign; i++)
        if (!memcmp(e->foreign[i].token.id, id, TOKEN_ID))
            return &e->foreign[i];
    return NULL;
}

void enrol_share(struct enrol *e)
{
    const struct token_book *own = cluster_tokens(e->setup.cluster);
    if (!cluster_is_authority(e->setup.cluster))
        return;
    json_t *list = json_array();
    for (size_t i = 0; i < own->n; i++) {
        const struct token_entry *t = &own->at[i];
        json_int_t left = token_is_live(t, now_s(e)) ? (json_int_t)(t->expires_s - now_s(e)) : 0;
        json_array_append_new(list, json_pack("{s:o s:o s:o s:o s:o s:I}", "id", hex(t->id, sizeof t->id),
                                              "psk", hex(t->keys.psk, sizeof t->keys.psk), "question",
                                              hex(t->keys.question, sizeof t->keys.question), "answer",
                                              hex(t->keys.answer, sizeof t->keys.answer), "claim",
                                              hex(t->keys.sign_pub, sizeof t->keys.sign_pub), "ttl", left));
    }
    e->setup.broadcast(e->setup.owner, json_pack("{s:s s:o}", "kind", "tokens", "tokens", list));
}

/* All tokens of that authority, instead of those it told us before. */
void enrol_take_tokens(struct enrol *e, const uint8_t issuer[16], const json_t *body)
{
    const json_t *list = json_object_get(body, "tokens");
    size_t i, kept = 0;
    json_t *item;
    for (i = 0; i < e->n_foreign; i++)
        if (memcmp(e->foreign[i].issuer, issuer, 16))
            e->foreign[kept++] = e->foreign[i];
    e->n_foreign = kept;
    json_array_foreach (list, i, item) {
        struct foreign f = {.token.used = false};
        json_int_t ttl = json_integer_value(json_object_get(item, "ttl"));
        if (e->n_foreign == ENROL_FOREIGN_MAX)
            break;
        if (!has_bytes(item, "id", f.token.id, TOKEN_ID) || !has_bytes(item, "psk", f.token.keys.psk, 32) ||
            !has_bytes(item, "question", f.token.keys.question, TOKEN_TAG) ||
            !has_bytes(item, "answer", f.token.keys.answer, TOKEN_TAG) ||
            !has_bytes(item, "claim", f.token.keys.sign_pub, AUTH_KEY))
            continue;
        memcpy(f.issuer, issuer, sizeof f.issuer);
        f.token.expires_s = now_s(e) + (ttl > 0 ? (uint64_t)ttl : 0);
        e->foreign[e->n_foreign++] = f;
    }
}

/* --- granting: on the authority --- */

/* Who asks for another may be hostile: what counts is what the newcomer has signed. */
static int check_own(const struct enrol *e, const struct application *a, struct err *err)
{
    const struct token_book *own = cluster_tokens(e->setup.cluster);
    const struct token_claim claim = enrol_claim(a);

    for (size_t i = 0; i < own->n; i++)
        if (!memcmp(own->at[i].id, a->token, TOKEN_ID) && !token_is_proof(&own->at[i].keys, &claim, a->proof))
            return err_set(err, -EPERM, "%s did not prove that it was given this token", a->name);
    return 0; /* a token that is not there is refused later, with a better sentence */
}

/* 1: it is a member by this token already, and has lost the answer. Its claim can be repeated by
 * all who heard it, so that changes nothing: a new serial would shut out the member itself. */
static int let_in(const struct enrol *e, const struct application *a, uint8_t *frame, struct err *err)
{
    struct cluster *c = e->setup.cluster;
    uint8_t id[CERT_ID];

    auth_node_id(id, a->pub);
    int r = check_own(e, a, err);
    if (!r)
        r = cluster_spend(c, a->token, id, now_s(e), err);
    if (r > 0 && !cluster_issue_again(c, id, now_s(e), frame, err))
        return 1;
    return r < 0 ? r : cluster_issue(c, a->pub, a->name, now_s(e), frame, err);
}

/* Nobody will let it in with this token. */
static void refuse(struct serving *s, const char *why)
{
    timer_stop(s->timer);
    link_close(s->link, LINK_END_REFUSED, why);
}

/* Not here and not now: another member may be able to. */
static void send_on(struct serving *s, const char *why)
{
    timer_stop(s->timer);
    link_close(s->link, LINK_END_LOCAL, why);
}

static void hand_out(struct serving *s, const uint8_t *frame, size_t n)
{
    s->granted = true;
    if (link_send(s->link, ENROL_FRAME_GRANT, frame, n))
        send_on(s, "the answer cannot be sent: no memory");
}

/* What the joiner gets. */
static void make_frame(struct granting *g, const uint8_t cert[static CERT_BYTES])
{
    const struct cluster *c = g->e->setup.cluster;
    size_t n;
    const uint8_t *roster = cluster_roster_made(c, &n);
    g->n = ENROL_GRANT_HEAD + n;
    g->frame = xmalloc(g->n);
    memcpy(g->frame, cert, CERT_BYTES);
    memcpy(g->frame + CERT_BYTES, cluster_key(c), CERT_CLUSTER_KEY);
    memcpy(g->frame + ENROL_GRANT_HEAD, roster, n);
}

static void granting_free(struct granting *g)
{
    json_decref(g->number);
    free(g->frame);
    free(g);
}

/* To the member that asks for another node: key "grant" or "error". Takes over the value. */
static void answer_member(struct enrol *e, const uint8_t to[static CERT_ID], json_t *number, const char *key,
                          json_t *value)
{
    e->setup.send(e->setup.owner, to,
                  json_pack("{s:s s:O s:o}", "kind", "join-answer", "number", number, key, value));
}

static void on_granted(void *arg, const char *error)
{
    struct granting *g = arg;
    LIST_REMOVE(g, next); /* the end of a link drops those in the list */
    if (error && g->s)
        refuse(g->s, error);
    else if (error)
        answer_member(g->e, g->from, g->number, "error", json_string(error));
    else if (g->s)
        hand_out(g->s, g->frame, g->n);
    else
        answer_member(g->e, g->from, g->number, "grant", hex(g->frame, g->n));
    granting_free(g);
}

/* The whole decision: 0 and the answer goes out later, or why not. */
static int grant(struct enrol *e, const struct application *a, const struct granting *to, struct err *err)
{
    struct granting *g = xmemdup(to, sizeof *to);
    uint8_t id[CERT_ID], cert[CERT_BYTES];
    g->e = e;
    int r = let_in(e, a, cert, err);
    if (r < 0) {
        free(g);
        return r;
    }
    make_frame(g, cert);
    json_incref(g->number);
    LIST_INSERT_HEAD(&e->grantings, g, next);
    if (!r) {
        auth_node_id(id, a->pub);
        const struct roster_entry *entry = roster_find(cluster_roster(e->setup.cluster), id);
        log_info("%s has joined cluster %s", entry ? entry->name : a->name,
                 cluster_roster(e->setup.cluster)->name);
        enrol_share(e);
    }
    cluster_when_kept(e->setup.cluster, on_granted, g);
    return 0;
}

void enrol_take_join_ask(struct enrol *e, const uint8_t from[16], const json_t *body)
{
    const char *name = json_string_value(json_object_get(body, "name"));
    struct granting to = {.number = json_object_get(body, "number")};
    struct application a = {.name = ""};
    struct err err = {""};
    if (!name || strlen(name) >= sizeof a.name || !has_bytes(body, "token", a.token, sizeof a.token) ||
        !has_bytes(body, "pub", a.pub, sizeof a.pub) || !has_bytes(body, "hash", a.hash, sizeof a.hash) ||
        !has_bytes(body, "proof", a.proof, sizeof a.proof))
        return;
    memcpy(a.name, name, strlen(name));
    memcpy(to.from, from, sizeof to.from);
    if (grant(e, &a, &to, &err))
        answer_member(e, from, to.number, "error", json_string(err.text));
}

/* --- serving: on the member the joiner found --- */

static struct serving *find_serving(struct enrol *e, const struct link *link)
{
    struct serving *s;
    LIST_FOREACH (s, &e->servings, next)
        if (s->link == link)
            return s;
    return NULL;
}

static void on_no_answer(void *owner)
{
    struct serving *s = owner;

    send_on(s, s->granted ? "the answer was not taken in time"
               : s->asked ? "the node that made this token did not answer in time"
                          : "the newcomer did not prove in time that it was given this token");
}

static void ask_issuer(struct serving *s, const struct foreign *f, const struct application *a)
{
    struct enrol *e = s->e;
    const struct roster_entry *issuer = roster_find(cluster_roster(e->setup.cluster), f->issuer);
    char why[200];
    json_t *ask =
        json_pack("{s:s s:I s:o s:o s:s s:o s:o}", "kind", "join-ask", "number", (json_int_t)s->number,
                  "token", hex(a->token, TOKEN_ID), "pub", hex(a->pub, AUTH_KEY), "name", a->name, "hash",
                  hex(a->hash, AUTH_HASH), "proof", hex(a->proof, AUTH_SIGNATURE));

    const int r = ask ? e->setup.send(e->setup.owner, f->issuer, ask) : -ENOMEM;
    if (r && !token_is_live(&f->token, now_s(e))) {
        refuse(s,
               "this token has let a node in already, or has expired: make a new one with `ringctl invite`");
    } else if (r) {
        const bool is_away = r == -EHOSTUNREACH || r == -ENOTCONN;
        snprintf(why, sizeof why, "%s, which made this token, %s%s", issuer ? issuer->name : "the node",
                 unsent_why(r), is_away ? " from here now: try again when it is up" : "");
        send_on(s, why);
    }
}

/* A token speaks for whoever has it; who comes back speaks for himself. */
int enrol_hello(struct enrol *e, struct link *link, const struct link_hello *peer, char *why, size_t size)
{
    return enrol_is_return(link_key_tag(link))
               ? cluster_judge(e->setup.cluster, link_peer_key(link), peer, why, size)
               : 0;
}

void enrol_serve(struct enrol *e, struct link *link)
{
    struct serving *s = xcalloc(1, sizeof *s);

    *s = (struct serving){.e = e, .link = link, .number = ++e->last_number};
    s->timer = timer_new(e->setup.base, on_no_answer, s);
    LIST_INSERT_HEAD(&e->servings, s, next);
    timer_set_ms(s->timer, e->setup.answer_ms);
    if (enrol_is_return(link_key_tag(link))) {
        s->granted = true;
        enrol_return_serve(e, link);
    }
}

/* The newcomer's word, bound to this connection: all that the authority needs. */
static void take_proof(struct serving *s, const uint8_t *body, size_t n)
{
    struct enrol *e = s->e;
    struct application a = {.name = ""};
    struct err err = {""};

    if (s->asked || n != sizeof a.proof)
        return;
    s->asked = true;
    token_of(link_key_tag(s->link), a.token);
    memcpy(a.pub, link_peer_key(s->link), sizeof a.pub);
    memcpy(a.hash, link_hash(s->link), sizeof a.hash);
    memcpy(a.proof, body, sizeof a.proof);
    snprintf(a.name, sizeof a.name, "%s", link_peer(s->link)->name);
    const struct foreign *f = find_foreign(e, a.token);
    if (f) {
        ask_issuer(s, f, &a);
        return;
    }
    if (grant(e, &a, &(struct granting){.s = s}, &err))
        refuse(s, err.text);
}

void enrol_frame(struct enrol *e, struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    struct serving *s = find_serving(e, link);
    const bool returns = enrol_is_return(link_key_tag(link));

    if (type == ENROL_FRAME_ROSTER && returns)
        enrol_return_frame(e, link, body, n);
    else if (type == ENROL_FRAME_PROOF && !returns && s)
        take_proof(s, body, n);
}

/* Nobody waits for their answer any more. NULL: all of them. */
static void drop_grantings(struct enrol *e, const struct serving *s)
{
    struct granting *g, *next;
    for (g = LIST_FIRST(&e->grantings); g; g = next) {
        next = LIST_NEXT(g, next);
        if (s && g->s != s)
            continue;
        cluster_forget(e->setup.cluster, g);
        LIST_REMOVE(g, next);
        granting_free(g);
    }
}

void enrol_left(struct enrol *e, const struct link *link)
{
    struct serving *s = find_serving(e, link);

    if (!s)
        return;
    drop_grantings(e, s);
    LIST_REMOVE(s, next);
    timer_free(s->timer);
    free(s);
}

void enrol_take_join_answer(struct enrol *e, const json_t *body)
{
    json_int_t number = json_integer_value(json_object_get(body, "number"));
    const char *error = json_string_value(json_object_get(body, "error"));
    struct serving *s;
    LIST_FOREACH (s, &e->servings, next)
        if (s->number == (uint64_t)number && !s->granted)
            break;
    if (!s)
        return;
    uint8_t *frame = xmalloc(ENROL_GRANT_MAX);
    int n = unhex(body, "grant", frame, ENROL_GRANT_MAX);
    if (n > 0)
        hand_out(s, frame, (size_t)n);
    else
        refuse(s, error ? error
                        : "the node that made this token gave an answer that cannot be read: make a new one "
                          "with `ringctl invite`");
    free(frame);
}

/* --- opening --- */

struct enrol *enrol_new(const struct enrol_setup *setup)
{
    struct enrol *e = xsecret(sizeof *e);

    e->setup = *setup;
    e->setup.search_ms = setup->search_ms ? setup->search_ms : ENROL_SEARCH_MS;
    e->setup.answer_ms = setup->answer_ms ? setup->answer_ms : ENROL_ANSWER_MS;
    LIST_INIT(&e->servings);
    LIST_INIT(&e->grantings);
    enrol_join_init(e);
    enrol_return_init(e);
    return e;
}

void enrol_free(struct enrol *e)
{
    if (!e)
        return;
    drop_grantings(e, NULL);
    for (struct serving *s; (s = LIST_FIRST(&e->servings));) {
        LIST_REMOVE(s, next);
        timer_free(s->timer);
        free(s);
    }
    enrol_join_done(e);
    enrol_return_done(e);
    secret_free(e);
}
