/* SPDX-License-Identifier: MIT
 *
 * Owns the questions under way to other nodes. An answer is asked for part by part, and events
 * batch by batch, as the client here takes them: so a slow client holds back the other node, and no
 * more than a batch waits here. */
#include "daemon/ringd/api/proxy.h"

#include <sodium.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/ringd/cluster/unsent.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_feed.h"
#include "daemon/ringd/api/proxy_answer.h"
#include "daemon/ringd/ledger.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"

enum {
    PATIENCE_S = 10,        /* for each part */
    EVENTS_PATIENCE_S = 20, /* a node without an event answers within 8 s */
    MOST_ERRANDS = 256,
    MOST_BYTES = 32 << 20, /* of all answers that are not complete yet */
    FEED_BYTES = 64 << 10  /* not taken by the client: no more is asked for */
};

struct errand {
    LIST_ENTRY(errand) next;
    struct proxy *p;        /* borrowed: owner */
    struct http_call *call; /* to be answered once; NULL: its events flow into `feed` */
    struct http_feed *feed; /* owned, of events or of a stream */
    bool flows;             /* that stream is the answer: more of it is asked for, and no request again */
    struct timer *timer;    /* owned */
    struct proxy_node *to;  /* owned: the one that is asked now, */
    size_t more;            /* and so many behind it that are asked where it has no such thing */
    struct proxy_node *at;  /* in `to` */
    const char *what;       /* borrowed */
    char *path;             /* owned: at that node */
    json_int_t round;
    bool is_asked; /* an answer is due */
    uint64_t after;
    char *text; /* owned: of the answer, what is here */
    size_t n;
};

struct proxy {
    struct proxy_setup setup;
    struct proxy_answers *answers; /* owned */
    LIST_HEAD(, errand) errands;
    size_t n;
    struct ledger_queue bytes; /* of answers that are not complete yet: what no longer fits is given up */
    json_int_t rounds;
};

/* --- the end of an errand --------------------------------------------------------------------- */

static void errand_free(struct errand *e)
{
    LIST_REMOVE(e, next);
    e->p->n--;
    ledger_give(&e->p->bytes, e->n);
    timer_free(e->timer);
    if (e->feed)
        http_feed_end(e->feed);
    free(e->to);
    free(e->path);
    free(e->text);
    free(e);
}

/* Of a stream that has begun only its end can be seen: the client asks again, and gets the
 * sentence. */
static void give_up_as(struct errand *e, int status, const char *code, const char *why)
{
    if (e->call)
        http_fail(e->call, status, code, "node %s, which %s, %s", e->at->name, e->what, why);
    errand_free(e);
}

static void give_up(struct errand *e, const char *why)
{
    give_up_as(e, 503, "out-of-reach", why);
}

static void on_timer(void *owner)
{
    give_up(owner, "did not answer in time: ask again, and see `ringctl nodes`");
}

/* --- asking ----------------------------------------------------------------------------------- */

static void say(struct errand *e, json_t *message)
{
    struct proxy *p = e->p;
    e->is_asked = true;
    timer_set_ms(e->timer, (e->feed ? EVENTS_PATIENCE_S : PATIENCE_S) * UINT64_C(1000));
    const int r = message ? p->setup.send(p->setup.owner, e->at->id, message) : -ENOMEM;
    if (r == -EHOSTUNREACH || r == -ENOTCONN)
        give_up(e, "is out of reach: ask again when `ringctl nodes` shows it up");
    else if (r == -EMSGSIZE)
        give_up_as(e, 413, "too-large", unsent_why(r));
    else if (r)
        give_up_as(e, 503, "busy", unsent_why(r));
}

static json_t *query_of(const struct errand *e)
{
    static const char *const keys[] = {"from", "to", "after", "series"};
    json_t *query = json_object();
    for (size_t i = 0; e->call && i < sizeof keys / sizeof *keys; i++)
        if (http_query(e->call, keys[i]))
            json_object_set_new(query, keys[i], json_string(http_query(e->call, keys[i])));
    if (e->after)
        json_object_set_new(query, "after", json_sprintf("%llu", (unsigned long long)e->after));
    return query;
}

/* What it works on for nobody, that node need not go on with. */
static void stop_flow(struct errand *e)
{
    const struct proxy_setup *setup = &e->p->setup;
    (void)setup->send(
        setup->owner, e->at->id,
        json_pack("{s:s s:I s:i s:b}", "kind", "api-more", "round", e->round, "at", 0, "stop", 1));
}

/* Before its answer has begun. */
static void on_left(void *owner)
{
    struct errand *e = owner;
    stop_flow(e);
    http_give_up(e->call);
    errand_free(e);
}

static void ask(struct errand *e)
{
    size_t n;
    const char *body = e->call ? http_body(e->call, &n) : NULL;
    e->round = ++e->p->rounds;
    say(e, json_pack("{s:s s:I s:s s:s s:o s:s*}", "kind", "api-ask", "round", e->round, "method",
                     e->call ? http_method(e->call) : "GET", "path", e->path, "query", query_of(e), "body",
                     body && n ? body : NULL));
}

void proxy_ask(struct proxy *p, struct http_call *call, const struct proxy_node *to, size_t n,
               const char *what, const char *path)
{
    size_t bytes;
    const char *body = http_body(call, &bytes);
    if (p->n == MOST_ERRANDS) {
        http_fail(call, 503, "busy", "%d requests to other nodes are under way: ask again in a few seconds",
                  MOST_ERRANDS);
        return;
    }
    if (bytes > PROXY_REQUEST || strlen(body) != bytes) {
        http_fail(call, 413, "too-large",
                  "a request about a job of node %s may have 512 KiB of text: send it on that node",
                  to->name);
        return;
    }
    struct errand *e = xcalloc(1, sizeof *e);
    *e = (struct errand){.p = p,
                         .call = call,
                         .to = xmemdup(to, n * sizeof *to),
                         .more = n - 1,
                         .what = what,
                         .path = xstrdup(path),
                         .after = http_feed_after(call)};
    e->at = e->to;
    e->timer = timer_new(p->setup.base, on_timer, e);
    LIST_INSERT_HEAD(&p->errands, e, next);
    p->n++;
    http_on_leave(call, on_left, e);
    ask(e);
}

/* --- answers of the other node ---------------------------------------------------------------- */

/* The bytes of a part, for the caller to free; NULL: nonsense. */
static char *decode_part(const json_t *body, size_t *ret_n)
{
    const json_t *part = json_object_get(body, "part");
    const size_t n = json_string_length(part);
    if (!json_is_string(part) ||
        n > sodium_base64_ENCODED_LEN((size_t)PROXY_ANSWER / 16, sodium_base64_VARIANT_ORIGINAL))
        return NULL;
    char *text = xmalloc(n + 1);
    if (sodium_base642bin((uint8_t *)text, n, json_string_value(part), n, NULL, ret_n, NULL,
                          sodium_base64_VARIANT_ORIGINAL)) {
        free(text);
        return NULL;
    }
    return text;
}

static void ask_more(struct errand *e)
{
    say(e, json_pack("{s:s s:I s:I}", "kind", "api-more", "round", e->round, "at", (json_int_t)e->n));
}

/* The client has taken its events, or has left. */
static void on_feed(void *owner)
{
    struct errand *e = owner;
    if (!http_feed_is_open(e->feed)) {
        if (e->flows)
            stop_flow(e);
        errand_free(e);
    } else if (!e->is_asked && http_feed_waiting(e->feed) < FEED_BYTES) {
        if (e->flows)
            ask_more(e);
        else
            ask(e);
    }
}

static void feed(struct errand *e, const char *text, size_t n, bool last)
{
    if (e->call) {
        struct http_call *call = e->call;
        e->call = NULL;
        e->feed = http_feed_new(call, on_feed, e);
    }
    http_feed_put(e->feed, text, n);
    if (last)
        errand_free(e);
    else
        on_feed(e);
}

static void take_events(struct errand *e, const json_t *body)
{
    const json_t *next = json_object_get(body, "next");
    size_t n;
    char *text = decode_part(body, &n);
    if (!text || !json_is_integer(next) || memchr(text, '\0', n)) {
        give_up(e, "sent an answer that cannot be read: is it a ringd of another version?");
    } else {
        e->after = (uint64_t)json_integer_value(next);
        feed(e, text, n, json_is_true(json_object_get(body, "last")));
    }
    free(text);
}

/* More of a stream; or, before it begins, the word that the node works on it. */
static void take_flow(struct errand *e, const json_t *body)
{
    const bool begins = e->feed || json_object_get(body, "type");
    size_t n;
    char *text = decode_part(body, &n);
    if (!text || memchr(text, '\0', n) || (e->feed && !e->flows)) {
        give_up(e, "sent an answer that cannot be read: is it a ringd of another version?");
    } else if (begins) {
        e->flows = true;
        feed(e, text, n, json_is_true(json_object_get(body, "last")));
    } else {
        ask_more(e);
    }
    free(text);
}

/* What a browser would do with another type is not for that node to say. */
static const char *type_of(const json_t *body)
{
    static const char *const known[] = {"application/json", "text/event-stream", "text/plain"};
    const char *type = json_string_value(json_object_get(body, "type"));
    for (size_t i = 0; type && i < sizeof known / sizeof *known; i++)
        if (!strcmp(type, known[i]))
            return known[i];
    return "application/octet-stream";
}

static void ask_next(struct errand *e)
{
    ledger_give(&e->p->bytes, e->n);
    e->n = 0;
    e->more--;
    e->at++;
    ask(e);
}

/* All of the answer is here. */
static void complete(struct errand *e, int status, const char *type)
{
    if (e->call && status == 404 && e->more) {
        ask_next(e);
        return;
    }
    if (e->feed) { /* the job's last word, made again from its record, or the end of what can be followed */
        if (status == 200 && e->n && !memchr(e->text, '\0', e->n))
            http_feed_put(e->feed, e->text, e->n);
    } else {
        http_reply(e->call, status, type, e->n ? e->text : "", e->n);
    }
    errand_free(e);
}

static void take_answer(struct errand *e, const json_t *body)
{
    json_int_t size = json_integer_value(json_object_get(body, "size")),
               at = json_integer_value(json_object_get(body, "at")),
               status = json_integer_value(json_object_get(body, "status"));
    size_t n;
    char *text = decode_part(body, &n);
    if (!text || size < at || size > PROXY_ANSWER || at != (json_int_t)e->n || status < 200 || status > 599 ||
        n > (size_t)size - e->n || (!n && size)) {
        give_up(e, "sent an answer that cannot be read: is it a ringd of another version?");
    } else if (!ledger_take(&e->p->bytes, n)) {
        give_up(e, "has a long answer, and many long answers are under way here: ask again in a few seconds");
    } else {
        e->text = xrealloc(e->text, e->n + n + 1);
        memcpy(e->text + e->n, text, n);
        e->n += n;
        if (e->n == (size_t)size)
            complete(e, (int)status, type_of(body));
        else
            ask_more(e);
    }
    free(text);
}

void proxy_take_told(struct proxy *p, const uint8_t from[16], const json_t *body)
{
    json_int_t round = json_integer_value(json_object_get(body, "round"));
    struct errand *e;
    LIST_FOREACH (e, &p->errands, next)
        if (e->round == round && e->is_asked && !memcmp(e->at->id, from, sizeof e->at->id))
            break;
    if (!e)
        return;
    e->is_asked = false;
    timer_stop(e->timer);
    if (json_object_get(body, "status"))
        take_answer(e, body);
    else if (json_is_true(json_object_get(body, "flow")))
        take_flow(e, body);
    else
        take_events(e, body);
}

void proxy_take_ask(struct proxy *p, const uint8_t from[16], const json_t *body)
{
    proxy_answers_ask(p->answers, from, body);
}

void proxy_take_more(struct proxy *p, const uint8_t from[16], const json_t *body)
{
    proxy_answers_more(p->answers, from, body);
}

void proxy_changed(struct proxy *p)
{
    for (struct errand *e = LIST_FIRST(&p->errands), *next; e; e = next) {
        next = LIST_NEXT(e, next);
        if (!p->setup.reaches(p->setup.owner, e->at->id))
            give_up(e, "is out of reach: ask again when `ringctl nodes` shows it up");
    }
}

void proxy_published(struct proxy *p, uint64_t job)
{
    proxy_answers_published(p->answers, job);
}

/* --- opening, closing ------------------------------------------------------------------------- */

struct proxy *proxy_new(const struct proxy_setup *setup)
{
    struct proxy *p = xcalloc(1, sizeof *p);
    p->setup = *setup;
    ledger_register(setup->ledger, &p->bytes, "proxy_questions", MOST_BYTES);
    p->answers = proxy_answers_new(&p->setup);
    LIST_INIT(&p->errands);
    return p;
}

void proxy_free(struct proxy *p)
{
    if (!p)
        return;
    for (struct errand *e; (e = LIST_FIRST(&p->errands));) {
        if (e->call)
            http_fail(e->call, 503, "stopping", "ringd is stopping");
        errand_free(e);
    }
    proxy_answers_free(p->answers);
    free(p);
}
