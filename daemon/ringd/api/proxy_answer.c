/* SPDX-License-Identifier: MIT
 *
 * Owns the answers under way: being made by a handler, waiting for an event of a job or for more
 * of a stream, or waiting for the other node to ask for the next part. Called by proxy.c. */
#include "daemon/ringd/api/proxy_answer.h"

#include <event2/event.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_inside.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/ledger.h"
#include "daemon/ringd/timer.h"

enum {
    MOST_ANSWERS = 256,
    MOST_BYTES = 32 << 20, /* of all answers kept for their next part */
    EVENTS_BYTES = 64 << 10,
    EVENT_WAIT_S = 8, /* a word without a part, so that the asker hears that this node is alive */
    PART_WAIT_S = 15, /* the asker has gone, or lost interest */
    QUERIES = 8,
    PATH_BYTES = 256
};

struct proxy_reply {
    LIST_ENTRY(proxy_reply) next;
    struct proxy_answers *all; /* borrowed: owner; NULL = closing, only the handler still holds it */
    uint8_t to[16];
    json_int_t round;
    /* The handler is through; the asker waits for an event of `job`, or for more of `feed`. */
    bool is_made, is_waiting;
    struct timer *timer;    /* owned */
    struct http_call *call; /* borrowed: until it is made */
    struct http_feed *feed; /* a stream that the handler feeds, held; NULL: it is none */
    uint64_t job, after;
    int status;
    char type[64];
    char *text; /* owned */
    size_t n;
    size_t kept;  /* bytes of it in all->bytes: of an answer, not of a sentence why there is none */
    size_t sent;  /* bytes of it, of a stream; */
    bool is_over; /* its handler puts no more into it */
};

struct proxy_answers {
    const struct proxy_setup *setup; /* borrowed */
    LIST_HEAD(, proxy_reply) list;
    size_t n;
    struct ledger_queue bytes; /* of what is kept for its next part: what no longer fits is refused */
};

static void answer_free(struct proxy_reply *a)
{
    if (a->all) {
        LIST_REMOVE(a, next);
        a->all->n--;
        ledger_give(&a->all->bytes, a->kept);
        timer_free(a->timer);
    }
    if (a->feed)
        http_inside_leave(a->feed);
    free(a->text);
    free(a);
}

static void on_timer(void *owner);

/* --- sending ---------------------------------------------------------------------------------- */

static json_t *encode_part(const char *text, size_t n)
{
    size_t room = sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_ORIGINAL);
    char *code = xmalloc(room);
    sodium_bin2base64(code, room, (const uint8_t *)text, n, sodium_base64_VARIANT_ORIGINAL);
    json_t *part = json_string(code);
    free(code);
    return part;
}

static void wait_for(struct proxy_reply *a, unsigned seconds)
{
    timer_set_ms(a->timer, seconds * UINT64_C(1000));
}

/* The part at that place; the last one ends the answer here. */
static void send_part(struct proxy_reply *a, size_t at)
{
    const struct proxy_setup *setup = a->all->setup;
    const size_t n = a->n - at < PROXY_PART ? a->n - at : PROXY_PART;
    json_t *message = json_pack("{s:s s:I s:i s:s s:I s:I s:o}", "kind", "api-told", "round", a->round,
                                "status", a->status, "type", a->type, "size", (json_int_t)a->n, "at",
                                (json_int_t)at, "part", encode_part(a->text + at, n));
    if (setup->send(setup->owner, a->to, message) || at + n == a->n)
        answer_free(a);
    else
        wait_for(a, PART_WAIT_S);
}

static void refuse(struct proxy_reply *a, int status, const char *code, const char *why)
{
    char *text = http_error_text(code, why);
    a->status = status;
    snprintf(a->type, sizeof a->type, "application/json");
    free(a->text);
    a->text = text;
    a->n = strlen(text);
    send_part(a, 0);
}

static void is_made(struct proxy_reply *a)
{
    a->is_made = true;
    a->call = NULL;
}

static void on_reply(void *owner, int status, const char *content_type, const char *body, size_t n)
{
    struct proxy_reply *a = owner;
    is_made(a);
    if (!a->all) {
        answer_free(a);
        return;
    }
    if (n > PROXY_ANSWER) {
        refuse(a, 413, "too-large",
               "the answer has more than 16 MiB, which no node passes on: ask on the node that is the job's "
               "head");
        return;
    }
    if (!ledger_take(&a->all->bytes, n)) {
        refuse(a, 503, "busy", "that node passes on too much already: ask again in a few seconds");
        return;
    }
    a->status = status;
    snprintf(a->type, sizeof a->type, "%s", content_type);
    a->text = xmemdup(body, n);
    a->n = a->kept = n;
    send_part(a, 0);
}

/* --- events ----------------------------------------------------------------------------------- */

/* What there is of the job's events goes out together; with nothing there the answer waits, unless
 * it `must` go. */
static void send_events(struct proxy_reply *a, bool must)
{
    const struct proxy_setup *setup = a->all->setup;
    char *all = NULL, *text;
    size_t n = 0;
    bool last = false;
    while (n < EVENTS_BYTES && !last &&
           (text = setup->next_event(setup->owner, a->job, a->after, &a->after, &last))) {
        size_t more = strlen(text);
        all = xrealloc(all, n + more);
        memcpy(all + n, text, more);
        n += more;
        free(text);
    }
    if (n || must) {
        n = n < PROXY_ANSWER / 32 ? n : 0; /* one event beyond every measure: the asker goes on behind it */
        json_t *message = json_pack("{s:s s:I s:I s:b s:o}", "kind", "api-told", "round", a->round, "next",
                                    (json_int_t)a->after, "last", (int)last, "part", encode_part(all, n));
        setup->send(setup->owner, a->to, message);
        answer_free(a);
    } else {
        a->is_waiting = true;
        wait_for(a, EVENT_WAIT_S);
    }
    free(all);
}

static void on_stream(void *owner, uint64_t job, uint64_t after)
{
    struct proxy_reply *a = owner;
    is_made(a);
    if (!a->all) {
        answer_free(a);
        return;
    }
    a->job = job;
    a->after = after;
    send_events(a, false);
}

void proxy_answers_published(struct proxy_answers *all, uint64_t job)
{
    for (struct proxy_reply *a = LIST_FIRST(&all->list), *next; a; a = next) {
        next = LIST_NEXT(a, next);
        if (a->is_waiting && a->job == job)
            send_events(a, false);
    }
}

/* --- streams ---------------------------------------------------------------------------------- */

/* A part of a stream, which may be empty; type: only of one that has begun. */
static bool send_flow(struct proxy_reply *a, const char *text, size_t n, bool last)
{
    const struct proxy_setup *setup = a->all->setup;
    return !setup->send(setup->owner, a->to,
                        json_pack("{s:s s:I s:b s:b s:s* s:o}", "kind", "api-told", "round", a->round, "flow",
                                  1, "last", (int)last, "type", a->feed ? "text/event-stream" : NULL, "part",
                                  encode_part(text ? text : "", n)));
}

/* Takes what was put into the feed, once all that was taken before is sent. */
static bool take_flow(struct proxy_reply *a)
{
    bool last = false;
    if (a->sent < a->n)
        return false;
    free(a->text);
    ledger_give(&a->all->bytes, a->kept);
    a->text = http_inside_take(a->feed, &last);
    a->sent = 0;
    a->n = a->text ? strlen(a->text) : 0;
    a->kept = ledger_take(&a->all->bytes, a->n) ? a->n : 0;
    return last || a->kept < a->n; /* without room for it the stream breaks off, as it does for a client */
}

/* The asker waits for more: what there is goes out; with nothing there it waits on, unless a word
 * `must` go. */
static void flow(struct proxy_reply *a, bool must)
{
    a->is_over = take_flow(a) || a->is_over;
    const size_t left = a->n - a->sent, n = left < PROXY_PART ? left : PROXY_PART;
    const bool is_last = a->is_over && n == left;
    if (!n && !is_last && !must) {
        a->is_waiting = true;
        wait_for(a, EVENT_WAIT_S);
        return;
    }
    a->is_waiting = false;
    const bool is_sent = send_flow(a, a->text ? a->text + a->sent : NULL, n, is_last);
    a->sent += n;
    if (!is_sent || is_last)
        answer_free(a);
    else
        wait_for(a, PART_WAIT_S);
}

static void on_feed(void *owner, struct http_feed *f)
{
    struct proxy_reply *a = owner;
    is_made(a);
    a->feed = f;
    if (!a->all) {
        answer_free(a);
        return;
    }
    a->is_waiting = true;
    wait_for(a, EVENT_WAIT_S);
}

static void on_fed(void *owner)
{
    struct proxy_reply *a = owner;
    if (a->is_waiting)
        flow(a, false);
}

static void on_timer(void *owner)
{
    struct proxy_reply *a = owner;
    if (!a->is_made && send_flow(a, NULL, 0, false))
        wait_for(a, EVENT_WAIT_S);
    else if (!a->is_made)
        timer_stop(a->timer); /* the asker is gone, and the handler still holds this */
    else if (a->is_waiting && a->feed)
        flow(a, true);
    else if (a->is_waiting)
        send_events(a, true);
    else
        answer_free(a);
}

/* --- asked ------------------------------------------------------------------------------------ */

static struct proxy_reply *find(struct proxy_answers *all, const uint8_t from[16], json_int_t round)
{
    struct proxy_reply *a;
    LIST_FOREACH (a, &all->list, next)
        if (a->round == round && !memcmp(a->to, from, sizeof a->to))
            return a;
    return NULL;
}

/* One job of this node, by its number, and what belongs to it; or what this node keeps over time.
 */
static bool is_path(const char *path)
{
    static const char jobs[] = "/v1/jobs/";
    if (!strcmp(path, "/v1/history"))
        return true;
    if (strlen(path) > PATH_BYTES || strncmp(path, jobs, sizeof jobs - 1) != 0)
        return false;
    const char *word = path + sizeof jobs - 1;
    const size_t digits = strspn(word, "0123456789");
    return digits && (!word[digits] || word[digits] == '/');
}

static bool is_query(const json_t *query)
{
    const char *key;
    json_t *value;
    if (!query)
        return true;
    if (!json_is_object(query) || json_object_size(query) > QUERIES)
        return false;
    json_object_foreach ((json_t *)query, key, value) {
        if (json_string_length(value) > PATH_BYTES || !json_is_string(value))
            return false;
    }
    return true;
}

static struct proxy_reply *answer_new(struct proxy_answers *all, const uint8_t to[16], json_int_t round)
{
    struct proxy_reply *a = xcalloc(1, sizeof *a);
    *a = (struct proxy_reply){.all = all, .round = round};
    memcpy(a->to, to, sizeof a->to);
    a->timer = timer_new(all->setup->base, on_timer, a);
    LIST_INSERT_HEAD(&all->list, a, next);
    all->n++;
    return a;
}

void proxy_answers_ask(struct proxy_answers *all, const uint8_t from[16], const json_t *body)
{
    const char *method, *path, *text = NULL;
    const json_t *query = json_object_get(body, "query");
    json_int_t round;
    if (json_unpack((json_t *)body, "{s:I s:s s:s s?s}", "round", &round, "method", &method, "path", &path,
                    "body", &text) ||
        !is_path(path) || strlen(method) > 8 || !is_query(query) || find(all, from, round))
        return;
    struct proxy_reply *a = answer_new(all, from, round);
    if (all->n > MOST_ANSWERS) {
        refuse(a, 503, "busy", "that node answers too many others already: ask again in a few seconds");
        return;
    }
    const struct http_inside to = {.reply = on_reply,
                                   .stream = on_stream,
                                   .feed = on_feed,
                                   .fed = on_fed,
                                   .mailbox = all->setup->mailbox,
                                   .owner = a};
    wait_for(a, EVENT_WAIT_S);
    a->call = http_inside_new(method, path, query, text, &to);
    all->setup->handle(all->setup->owner, a->call);
}

/* The asker's client has left. */
static void stop(struct proxy_reply *a)
{
    if (a->is_made)
        answer_free(a);
    else
        http_inside_left(a->call);
}

void proxy_answers_more(struct proxy_answers *all, const uint8_t from[16], const json_t *body)
{
    struct proxy_reply *a = find(all, from, json_integer_value(json_object_get(body, "round")));
    json_int_t at = json_integer_value(json_object_get(body, "at"));
    if (a && json_is_true(json_object_get(body, "stop"))) {
        stop(a);
        return;
    }
    if (!a || !a->is_made || a->is_waiting)
        return;
    if (a->feed)
        flow(a, false);
    else if (at > 0 && (uint64_t)at < a->n)
        send_part(a, (size_t)at);
}

struct proxy_answers *proxy_answers_new(const struct proxy_setup *setup)
{
    struct proxy_answers *all = xcalloc(1, sizeof *all);
    all->setup = setup;
    ledger_register(setup->ledger, &all->bytes, "proxy_answers", MOST_BYTES);
    LIST_INIT(&all->list);
    return all;
}

/* What a handler still holds goes when it answers. */
void proxy_answers_free(struct proxy_answers *all)
{
    for (struct proxy_reply *a = LIST_FIRST(&all->list), *next; a; a = next) {
        next = LIST_NEXT(a, next);
        if (a->is_made) {
            answer_free(a);
            continue;
        }
        LIST_REMOVE(a, next);
        timer_free(a->timer);
        a->all = NULL;
    }
    free(all);
}
