/* SPDX-License-Identifier: MIT
 *
 * What other nodes may say about jobs: rows with any fields, and questions and answers of requests
 * that are passed on, in any order. Every request of ours is
 * answered once, whatever is told; rows that were taken are fit for a terminal. Input: (u8 who,
 * which message ‖ its fields)*. Nothing is sent anywhere, and no server is there. */
#include "tests/fuzz/lib/message.h"

#include <event2/event.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_feed.h"
#include "daemon/ringd/http/http_inside.h"
#include "daemon/ringd/api/job_news.h"
#include "daemon/ringd/api/job_row.h"
#include "daemon/ringd/api/proxy.h"
#include "daemon/ringd/api/proxy_answer.h"
#include "net/wire.h"

enum { MESSAGES = 24 };

struct world {
    struct job_news *news;
    struct proxy *proxy;
    size_t asked, answered, handled;
    struct http_call *held;
};

/* --- the server: a stream takes all at once, or its client has left --- */

struct http_feed {
    struct world *w;
    bool is_open;
};
static struct world *the_world; /* feeds are made from calls, which know it not */

struct http_feed *http_feed_new(struct http_call *call, void (*changed)(void *owner), void *owner)
{
    struct http_feed *f = calloc(1, sizeof *f);
    (void)changed, (void)owner;
    expect(f != NULL);
    *f = (struct http_feed){the_world, true};
    http_stream(call, 0, 0);
    return f;
}

void http_feed_put(struct http_feed *f, const char *text, size_t n)
{
    expect(n < PROXY_ANSWER);
    f->is_open = f->is_open && (n == 0 || text[0] != 'x');
}

size_t http_feed_waiting(struct http_feed *f)
{
    return f->is_open ? 0 : 1 << 20;
}

bool http_feed_is_open(struct http_feed *f)
{
    return f->is_open;
}

void http_feed_end(struct http_feed *f)
{
    free(f);
}

char *http_inside_take(struct http_feed *f, bool *ret_last)
{
    *ret_last = !f->is_open;
    return NULL;
}

void http_inside_leave(struct http_feed *f)
{
    f->is_open = false;
}

uint64_t http_feed_after(const struct http_call *call)
{
    (void)call;
    return 0;
}

/* --- what the halves need --- */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    (void)owner;
    expect(json_is_string(json_object_get(message, "kind")));
    char *text = json_dumps(message, JSON_COMPACT);
    expect(text && strlen(text) < 1 << 20);
    free(text);
    json_decref(message);
    return to[0] == 3 ? -1 : 0;
}

static bool reaches(void *owner, const uint8_t id[16])
{
    (void)owner;
    return id[0] != 2;
}

static void handle(void *owner, struct http_call *call)
{
    struct world *w = owner;
    expect(!strncmp(http_path(call), "/v1/jobs/", 9) && !strchr(http_path(call), '@'));
    switch (w->handled++ % 4) {
    case 0: http_reply(call, 200, "application/json", "{}", 2); break;
    case 1: http_stream(call, 7, 0); break;
    case 2: http_fail(call, 404, "no-such-job", "there is none"); break;
    default:
        if (w->held)
            http_fail(w->held, 503, "late", "another is held");
        w->held = call;
    }
}

static char *next_event(void *owner, uint64_t job, uint64_t after, uint64_t *ret_id, bool *ret_last)
{
    (void)owner, (void)job;
    *ret_id = after + 1;
    *ret_last = after == 5;
    return after % 2 ? NULL : strdup("id: 1\nevent: step\ndata: {}\n\n");
}

static json_t *short_form(void *owner, uint64_t job)
{
    (void)owner;
    return json_pack("{s:I s:s s:s s:n}", "id", (json_int_t)job, "type", "train", "state", "running",
                     "created");
}

static void changed(void *owner, const uint8_t head[16], const json_t *row)
{
    (void)owner, (void)head;
    const char *key;
    json_t *value;
    expect(json_integer_value(json_object_get(row, "id")) > 0);
    json_object_foreach ((json_t *)row, key, value)
        expect(!json_is_string(value) || (json_string_length(value) <= JOB_ROW_TEXT &&
                                          wire_is_text(json_string_value(value), json_string_length(value))));
}

static void on_reply(void *owner, int status, const char *type, const char *body, size_t n)
{
    expect(status >= 200 && status <= 599 && type && (body || !n));
    ((struct world *)owner)->answered++;
}

static void on_stream(void *owner, uint64_t job, uint64_t after)
{
    (void)job, (void)after;
    ((struct world *)owner)->answered++;
}

/* --- what is said --- */

static void ask(struct world *w, uint8_t to)
{
    struct proxy_node nodes[2] = {{.name = "n"}, {.name = "m"}};
    memset(nodes[0].id, to, sizeof nodes[0].id);
    memset(nodes[1].id, to ^ 3, sizeof nodes[1].id);
    w->asked++;
    proxy_ask(w->proxy,
              http_inside_new("GET", "/v1/jobs/7/events", NULL, NULL,
                              &(struct http_inside){.reply = on_reply, .stream = on_stream, .owner = w}),
              nodes, 1 + to % 2, "is the head of", "/v1/jobs/7/events");
}

static void tell(struct world *w, struct input *in)
{
    static const char *const keys[] = {"id",   "type", "state", "error", "loss",    "step",
                                       "idle", "name", "from",  "after", "created", NULL};
    static const char *const texts[] = {
        "running", "done",     "train", "GET",    "/v1/jobs/7",   "/v1/jobs/7/events",
        "e30=",    "eHh4eA==", "",      "DELETE", "/v1/jobs/7@b", "application/json",
        NULL};
    static const struct input_words words = {keys, texts};
    const uint8_t what = input_u8(in);
    uint8_t from[16];
    memset(from, what / 8 % 3 + 1, sizeof from);
    if (what % 8 >= 5) {
        ask(w, from[0]);
        return;
    }
    const enum message_kind kind = (enum message_kind)(MESSAGE_JOBS_ASK + what % 8);
    json_t *body = message_of(in, kind, &words);
    if (!body)
        return;
    if (what & 0x80)
        json_object_set_new(body, "boot", json_integer(1000));
    json_object_set_new(body, "round", json_integer(input_u8(in) % 4));
    switch (kind) {
    case MESSAGE_JOBS_ASK: job_news_take_ask(w->news, from, body); break;
    case MESSAGE_JOBS_TOLD: job_news_take_told(w->news, from, body); break;
    case MESSAGE_API_ASK: proxy_take_ask(w->proxy, from, body); break;
    case MESSAGE_API_MORE: proxy_take_more(w->proxy, from, body); break;
    default: proxy_take_told(w->proxy, from, body);
    }
    json_decref(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct input in = {data, n};
    struct world w = {0};
    struct event_base *base = event_base_new();
    the_world = &w;
    w.news = job_news_new(&(struct job_news_setup){
        .send = send_message, .short_form = short_form, .changed = changed, .owner = &w, .boot = 5});
    w.proxy = proxy_new(&(struct proxy_setup){.base = base,
                                              .send = send_message,
                                              .reaches = reaches,
                                              .handle = handle,
                                              .next_event = next_event,
                                              .owner = &w});
    job_news_touch(w.news, 1);
    for (size_t i = 0; i < MESSAGES && in.left; i++) {
        static const uint8_t head[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        job_news_heard(w.news, head, 1000, 1000 + i, (struct instant){(i + 1) * 10000000});
        tell(&w, &in);
        proxy_published(w.proxy, 7);
        expect(json_array_size(job_news_of(w.news, head)) <= JOB_NEWS_ROWS);
    }
    proxy_changed(w.proxy);
    proxy_free(w.proxy);
    expect(w.asked == w.answered);
    if (w.held)
        http_fail(w.held, 503, "late", "the node is gone");
    job_news_free(w.news);
    event_base_free(base);
    return 0;
}
