/* SPDX-License-Identifier: MIT
 *
 * Whether a job may be taken over: this node asks its other nodes, or answers one of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/deputy/deputy_impl.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/timer.h"

enum {
    ANSWERS_MS = 5000, /* for the other nodes' words */
    AGAIN_US = 30000000
};

enum vote { VOTE_NONE, VOTE_ASKED, VOTE_YES, VOTE_NO };

struct claim {
    struct deputy *deputy; /* borrowed, as the next */
    struct dossier *dossier;
    bool by_hand, must_ask;
    json_int_t round;
    enum vote vote[RING_MAX_NODES]; /* by rank of the dossier's nodes; ours is VOTE_YES once it is written */
    struct timer *timer;            /* owned */
    struct written *written;        /* the store is asked; NULL: it is not */
    char why[300];                  /* the first refusal */
    void (*done)(void *arg, uint64_t as, const char *why);
    void *arg;
};

/* What an answer of the store leads back to. */
struct written {
    struct claim *claim; /* NULL: it is over */
};

bool claim_may_begin(const struct dossier *x)
{
    return x->may_shrink && x->nodes.n > 2 && x->has_inputs && !x->claim;
}

static struct takeover wanted_of(const struct dossier *x)
{
    struct takeover t = {.attempt = x->attempt};
    memcpy(t.from, x->head, sizeof t.from);
    return t;
}

/* --- the end of a claim ----------------------------------------------------------------------- */

void claim_free(struct claim *claim)
{
    if (!claim)
        return;
    if (claim->written)
        claim->written->claim = NULL;
    timer_free(claim->timer);
    free(claim);
}

void claim_release(struct deputy *d, const struct origin *of, const struct job_nodes *nodes)
{
    ballots_release(d->setup.ballots, of, deputy_self(d), time(NULL));
    for (size_t r = 0; r < nodes->n; r++)
        if (memcmp(nodes->id[r], deputy_self(d), 16) != 0)
            deputy_send(d, nodes->id[r],
                        json_pack("{s:s s:o}", "kind", "claim-release", "origin", origin_encode(of)));
}

void claim_end(struct deputy *d, struct dossier *x, const char *why)
{
    struct claim *c = x->claim;
    if (!c)
        return;
    void (*done)(void *, uint64_t, const char *) = c->done;
    void *arg = c->arg;
    char text[400];
    snprintf(text, sizeof text, "%s", why);
    claim_release(d, &x->of, &x->nodes);
    x->claim = NULL;
    x->retry.us = clock_now().us + AGAIN_US;
    log_job(LOG_LEVEL_INFO, x->job, "this job of %s is not taken over: %s", x->name, text);
    claim_free(c);
    deputy_arm(d);
    if (done)
        done(arg, 0, text);
}

void claim_void(struct deputy *d, struct dossier *x)
{
    if (x->claim)
        claim_end(d, x, "its head is back");
    else
        claim_release(d, &x->of, &x->nodes);
}

/* --- counting --------------------------------------------------------------------------------- */

static size_t votes(const struct claim *c, enum vote v)
{
    size_t n = 0;
    for (size_t r = 0; r < c->dossier->nodes.n; r++)
        n += c->vote[r] == v;
    return n;
}

static void succeed(struct claim *c)
{
    struct deputy *d = c->deputy;
    struct dossier *x = c->dossier;
    void (*done)(void *, uint64_t, const char *) = c->done;
    void *arg = c->arg;
    x->claim = NULL;
    claim_free(c);
    taken_begin(d, x, done, arg);
}

/* By hand, every node that was asked has to promise it; else more than half of all. */
static void look(struct claim *c)
{
    const size_t n = c->dossier->nodes.n, yes = votes(c, VOTE_YES), open = votes(c, VOTE_ASKED);
    if (c->by_hand ? !open && !votes(c, VOTE_NO) : 2 * yes > n)
        succeed(c);
    else if (c->by_hand ? votes(c, VOTE_NO) > 0 : 2 * (yes + open) <= n)
        claim_end(c->deputy, c->dossier, *c->why ? c->why : "too few of its nodes are in reach");
}

static void on_late(void *owner)
{
    const struct claim *c = owner;
    claim_end(c->deputy, c->dossier,
              c->written ? "the disk of this node does not answer" : "not all of its nodes have answered");
}

/* --- asking ----------------------------------------------------------------------------------- */

static void ask(struct claim *c, size_t rank)
{
    struct deputy *d = c->deputy;
    const struct dossier *x = c->dossier;
    const struct takeover wanted = wanted_of(x);
    c->vote[rank] = VOTE_ASKED;
    deputy_send(d, x->nodes.id[rank],
                json_pack("{s:s s:I s:o s:o}", "kind", "claim-ask", "round", c->round, "origin",
                          origin_encode(&x->of), "wanted", takeover_encode(&wanted)));
}

static void refuse(struct claim *c, size_t rank, const char *why)
{
    c->vote[rank] = VOTE_NO;
    if (!*c->why)
        snprintf(c->why, sizeof c->why, "node %s %.200s", c->dossier->nodes.name[rank], why);
}

static void ask_all(struct claim *c)
{
    const struct dossier *x = c->dossier;
    for (size_t r = 0; r < x->nodes.n; r++) {
        const uint8_t *id = x->nodes.id[r];
        if (!memcmp(id, x->head, 16) || !memcmp(id, deputy_self(c->deputy), 16))
            continue;
        if (deputy_reaches(c->deputy, id))
            ask(c, r);
        else if (!c->by_hand || c->must_ask)
            refuse(
                c, r,
                "is out of reach, and may know of later steps; `ringctl adopt --force` does not wait for it");
    }
    timer_set_ms(c->timer, ANSWERS_MS);
    look(c);
}

static void on_written(void *arg, const char *nothing)
{
    struct written *w = arg;
    struct claim *c = w->claim;
    (void)nothing;
    free(w);
    if (!c || c->deputy->is_stopped)
        return;
    c->written = NULL;
    if (store_trouble(c->deputy->setup.store)) {
        claim_end(c->deputy, c->dossier, "this node cannot write its promise to its disk");
        return;
    }
    c->vote[job_nodes_find(&c->dossier->nodes, deputy_self(c->deputy))] = VOTE_YES;
    ask_all(c);
}

static void begin(struct deputy *d, struct dossier *x, struct claim *c)
{
    struct written *w = xmalloc(sizeof *w);
    w->claim = c;
    c->written = w;
    c->round = ++d->rounds;
    timer_set_ms(c->timer, ANSWERS_MS); /* a disk may hang */
    log_job(LOG_LEVEL_INFO, x->job,
            "the head %s of this job is out of reach: its other nodes are asked whether "
            "this node may take it over",
            x->name);
    store_sync(d->setup.store, on_written, w);
}

void claim_begin(struct deputy *d, struct dossier *x, bool by_hand, bool must_ask,
                 void (*done)(void *arg, uint64_t as, const char *why), void *arg)
{
    const struct takeover wanted = wanted_of(x);
    struct claim *c = xcalloc(1, sizeof *c);
    char why[200], text[400] = "";
    *c = (struct claim){
        .deputy = d, .dossier = x, .by_hand = by_hand, .must_ask = must_ask, .done = done, .arg = arg};
    c->timer = timer_new(d->setup.base, on_late, c);
    x->claim = c;
    if (deputy_reaches(d, x->head))
        snprintf(text, sizeof text, "node %s is up, and goes on with the job itself", x->name);
    else if (!x->nodes.n || !x->has_inputs)
        snprintf(text, sizeof text, "this node has not got all that it takes to go on with the job%s%s",
                 *x->why_none ? ": " : "", x->why_none);
    else if (d->setup.works(d->setup.owner, &x->of))
        snprintf(text, sizeof text,
                 "a stage of the job is still at work on this node: try again in a moment");
    else if (job_nodes_find(&x->nodes, deputy_self(d)) == x->nodes.n)
        snprintf(text, sizeof text, "this node is none of the job's");
    else if (!ballots_vote(d->setup.ballots, &x->of, deputy_self(d), &wanted, time(NULL), why, sizeof why))
        snprintf(text, sizeof text, "this node %s", why);
    if (*text)
        claim_end(d, x, text);
    else
        begin(d, x, c);
}

/* A promise that comes when nobody waits for it any more: its node stood still, and may have missed
 * the release. Without another it would refuse the job's head for ever. While this node asks again,
 * or has the job, the promise is good. */
static void give_back(struct deputy *d, const uint8_t from[16], const json_t *body)
{
    struct origin of;
    if (!origin_read(&of, json_object_get(body, "origin")))
        return;
    const struct ballot *own = ballots_find(d->setup.ballots, &of);
    bool is_wanted = own && !memcmp(own->head, deputy_self(d), 16);
    for (const struct dossier *x = d->dossiers; x; x = x->next)
        is_wanted |= x->claim && origin_is(&x->of, &of);
    if (!is_wanted)
        deputy_send(d, from, json_pack("{s:s s:o}", "kind", "claim-release", "origin", origin_encode(&of)));
}

void deputy_take_claim_answer(struct deputy *d, const uint8_t from[16], const json_t *body)
{
    const json_int_t round = json_integer_value(json_object_get(body, "round"));
    const char *why = json_string_value(json_object_get(body, "why"));
    struct dossier *x = d->dossiers;
    while (x && (!x->claim || x->claim->round != round))
        x = x->next;
    const size_t rank = x ? job_nodes_find(&x->nodes, from) : 0;
    if (!x && !*why)
        give_back(d, from, body);
    if (!x || rank == x->nodes.n || x->claim->vote[rank] != VOTE_ASKED)
        return;
    char clean[200];
    text_clean(clean, sizeof clean, why, true);
    if (*clean)
        refuse(x->claim, rank, clean);
    else
        x->claim->vote[rank] = VOTE_YES;
    look(x->claim);
}

/* --- answering -------------------------------------------------------------------------------- */

struct promise {
    struct deputy *deputy;
    uint8_t to[16];
    json_int_t round;
    struct origin of;
};

static void answer(const struct promise *p, const char *why)
{
    deputy_send(p->deputy, p->to,
                json_pack("{s:s s:I s:o s:s}", "kind", "claim-answer", "round", p->round, "origin",
                          origin_encode(&p->of), "why", why));
}

static void on_promised(void *arg, const char *nothing)
{
    struct promise *p = arg;
    struct deputy *d = p->deputy;
    (void)nothing;
    if (store_trouble(d->setup.store)) {
        ballots_release(d->setup.ballots, &p->of, p->to, time(NULL));
        answer(p, "cannot write its promise to its disk");
    } else {
        answer(p, "");
    }
    free(p);
}

void deputy_take_claim_ask(struct deputy *d, const uint8_t from[16], const json_t *body)
{
    struct promise p = {.deputy = d, .round = json_integer_value(json_object_get(body, "round"))};
    struct takeover wanted;
    char why[200] = "";
    memcpy(p.to, from, sizeof p.to);
    if (!origin_read(&p.of, json_object_get(body, "origin")) ||
        !takeover_read(&wanted, json_object_get(body, "wanted")))
        return;
    if (deputy_reaches(d, wanted.from) || !memcmp(wanted.from, deputy_self(d), 16))
        snprintf(why, sizeof why, "reaches the head of the job");
    else if (d->setup.works(d->setup.owner, &p.of))
        snprintf(why, sizeof why, "still has a stage of the job at work");
    else
        ballots_vote(d->setup.ballots, &p.of, from, &wanted, time(NULL), why, sizeof why);
    if (*why) {
        answer(&p, why);
        return;
    }
    struct promise *kept = xmalloc(sizeof *kept);
    *kept = p;
    store_sync(d->setup.store, on_promised, kept);
}

void deputy_take_claim_release(struct deputy *d, const uint8_t from[16], const json_t *body)
{
    struct origin of;
    if (origin_read(&of, json_object_get(body, "origin")))
        ballots_release(d->setup.ballots, &of, from, time(NULL));
}
