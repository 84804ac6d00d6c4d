/* SPDX-License-Identifier: MIT
 *
 * Requests that one node answers for another: two proxies and a wire of messages between them,
 * which the test may cut. The requests come from inside, as the handlers' answers go there: no
 * server is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_feed.h"
#include "daemon/ringd/http/http_inside.h"
#include "daemon/ringd/api/proxy.h"
#include "daemon/ringd/api/proxy_answer.h"
#include "daemon/ringd/mailbox.h"

enum { WIRE = 64, A = 1, B = 2, C = 3 };

struct world {
    struct event_base *base;
    struct mailbox *mailbox;
    struct proxy *a, *b, *c; /* a asks, b answers, or c */
    size_t without;          /* so many of the next requests are for what is not there */
    struct letter {
        json_t *message;
        uint8_t from[16], to[16];
    } wire[WIRE];
    size_t n_wire;
    bool is_cut;
    int unsent; /* why nothing can be sent, though the other is reached */
    char *body; /* what b's handler answers with */
    size_t n_body;
    struct http_call *held;  /* by b's handler, for the path …/held */
    struct http_call *asked; /* of a's last client, until it is answered */
    struct http_feed *source,
        *sink;           /* for the path …/stream: where b's handler puts, and where a's client takes */
    size_t fed, changed; /* words to the client, and to the handler */
    /* what came of the last request */
    size_t answers;
    int status;
    char type[64];
    char *text;
    size_t n;
};

static int post(struct world *w, uint8_t from, const uint8_t to[16], json_t *message)
{
    if (w->is_cut || w->unsent || w->n_wire == WIRE) {
        json_decref(message);
        return w->unsent ? w->unsent : -EHOSTUNREACH;
    }
    struct letter *l = &w->wire[w->n_wire++];
    l->message = message;
    memset(l->from, from, 16);
    memcpy(l->to, to, 16);
    return 0;
}

static int send_from_a(void *owner, const uint8_t to[16], json_t *message)
{
    return post(owner, A, to, message);
}

static int send_from_b(void *owner, const uint8_t to[16], json_t *message)
{
    return post(owner, B, to, message);
}

static int send_from_c(void *owner, const uint8_t to[16], json_t *message)
{
    return post(owner, C, to, message);
}

static bool reaches(void *owner, const uint8_t id[16])
{
    (void)id;
    return !((struct world *)owner)->is_cut;
}

static void on_source(void *owner)
{
    ((struct world *)owner)->changed++;
}

static void on_held_left(void *owner)
{
    struct world *w = owner;
    http_give_up(w->held);
    w->held = NULL;
}

/* b's API. */
static void handle(void *owner, struct http_call *call)
{
    struct world *w = owner;
    size_t n;
    if (!strcmp(http_path(call), "/v1/jobs/7/held"))
        http_on_leave(w->held = call, on_held_left, w);
    else if (!strcmp(http_path(call), "/v1/jobs/7/stream"))
        w->source = http_feed_new(call, on_source, w);
    else if (w->without && w->without--)
        http_fail(call, 404, "no-dossier", "nothing of it is here");
    else if (!strcmp(http_path(call), "/v1/jobs/7/missing"))
        http_fail(call, 404, "no-such-job", "there is no job 7");
    else if (!strcmp(http_method(call), "POST"))
        http_reply(call, 200, "application/json", http_body(call, &n), strlen(http_body(call, &n)));
    else
        http_reply(call, 200, http_query(call, "from") ? http_query(call, "from") : "application/json",
                   w->body, w->n_body);
}

static char *no_event(void *owner, uint64_t job, uint64_t after, uint64_t *ret_id, bool *ret_last)
{
    (void)owner, (void)job;
    *ret_id = after;
    *ret_last = false;
    return NULL;
}

static void on_reply(void *owner, int status, const char *type, const char *body, size_t n)
{
    struct world *w = owner;
    w->answers++;
    w->status = status;
    snprintf(w->type, sizeof w->type, "%s", type);
    free(w->text);
    w->text = calloc(1, n + 1);
    memcpy(w->text, body, n);
    w->n = n;
}

static void on_stream(void *owner, uint64_t job, uint64_t after)
{
    (void)owner, (void)job, (void)after;
    fail_msg("nobody asked for events");
}

static void on_feed(void *owner, struct http_feed *f)
{
    ((struct world *)owner)->sink = f;
}

static void on_fed(void *owner)
{
    ((struct world *)owner)->fed++;
}

static void ask_nodes(struct world *w, size_t nodes, const char *method, const char *path, const char *from,
                      const char *body)
{
    struct proxy_node to[2] = {{.name = "b"}, {.name = "c"}};
    json_t *query = from ? json_pack("{s:s}", "from", from) : NULL;
    memset(to[0].id, B, sizeof to[0].id);
    memset(to[1].id, C, sizeof to[1].id);
    const struct http_inside inside = {.reply = on_reply,
                                       .stream = on_stream,
                                       .feed = on_feed,
                                       .fed = on_fed,
                                       .mailbox = w->mailbox,
                                       .owner = w};
    struct http_call *call = w->asked = http_inside_new(method, path, query, body, &inside);
    json_decref(query);
    proxy_ask(w->a, call, to, nodes, "is the head of this job", path);
}

static void ask(struct world *w, const char *method, const char *path, const char *from, const char *body)
{
    ask_nodes(w, 1, method, path, from, body);
}

static void deliver_one(struct world *w)
{
    struct letter l = w->wire[0];
    memmove(w->wire, w->wire + 1, --w->n_wire * sizeof *w->wire);
    struct proxy *to = l.to[0] == A ? w->a : l.to[0] == B ? w->b : w->c;
    const char *kind = json_string_value(json_object_get(l.message, "kind"));
    if (!strcmp(kind, "api-ask"))
        proxy_take_ask(to, l.from, l.message);
    else if (!strcmp(kind, "api-more"))
        proxy_take_more(to, l.from, l.message);
    else
        proxy_take_told(to, l.from, l.message);
    json_decref(l.message);
}

/* Everything on the wire arrives, and what is sent because of it. Returns how many messages. */
static size_t deliver(struct world *w)
{
    size_t n = 0;
    for (; w->n_wire; n++)
        deliver_one(w);
    return n;
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->base = event_base_new();
    assert_int_equal(mailbox_new(&w->mailbox, w->base), 0);
    struct proxy_setup setup = {.base = w->base,
                                .mailbox = w->mailbox,
                                .send = send_from_a,
                                .reaches = reaches,
                                .handle = handle,
                                .next_event = no_event,
                                .owner = w};
    w->a = proxy_new(&setup);
    setup.send = send_from_b;
    w->b = proxy_new(&setup);
    setup.send = send_from_c;
    w->c = proxy_new(&setup);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    proxy_free(w->a);
    proxy_free(w->b);
    proxy_free(w->c);
    while (w->n_wire)
        json_decref(w->wire[--w->n_wire].message);
    mailbox_free(w->mailbox);
    event_base_free(w->base);
    free(w->text);
    free(w->body);
    free(w);
    return 0;
}

static void fill(struct world *w, size_t n)
{
    w->body = realloc(w->body, n + 1);
    for (size_t i = 0; i < n; i++)
        w->body[i] = (char)(i * 7 + i / 251);
    w->n_body = n;
}

static void answers_come_whole(void **state)
{
    static const size_t sizes[] = {0, 1, PROXY_PART - 1, PROXY_PART, PROXY_PART + 1, 5 * PROXY_PART + 3};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(w, sizes[i]);
        w->answers = 0;
        ask(w, "GET", "/v1/jobs/7/steps", NULL, NULL);
        const size_t parts = sizes[i] ? (sizes[i] + PROXY_PART - 1) / PROXY_PART : 1;
        assert_int_equal(deliver(w), 2 * parts); /* each is asked for */
        assert_int_equal(w->answers, 1);
        assert_int_equal(w->status, 200);
        assert_string_equal(w->type, "application/json");
        assert_int_equal(w->n, sizes[i]);
        assert_memory_equal(w->text, w->body, sizes[i]);
    }
}

static void a_refusal_and_a_body_go_through(void **state)
{
    struct world *w = *state;
    ask(w, "GET", "/v1/jobs/7/missing", NULL, NULL);
    deliver(w);
    assert_int_equal(w->status, 404);
    assert_string_equal(w->text, "{\"error\":{\"code\":\"no-such-job\",\"message\":\"there is no job 7\"}}");
    ask(w, "POST", "/v1/jobs/7/turn", NULL, "{\"messages\":[]}");
    deliver(w);
    assert_int_equal(w->status, 200);
    assert_string_equal(w->text, "{\"messages\":[]}");
    fill(w, 3);
    ask(w, "GET", "/v1/jobs/7", "text/html",
        NULL); /* what a browser would show is not the other node's to say */
    deliver(w);
    assert_string_equal(w->type, "application/octet-stream");
    assert_int_equal(w->answers, 3);
}

/* The question goes with its body; whoever has the thing is the last. */
static void the_next_node_is_asked_for_what_one_has_not(void **state)
{
    struct world *w = *state;
    for (size_t without = 0; without < 3; without++) {
        w->without = without;
        ask_nodes(w, 2, "POST", "/v1/jobs/7/adopt/d", NULL, "{\"force\":true}");
        assert_int_equal(deliver(w), without ? 4 : 2);
        assert_int_equal(w->answers, without + 1);
        assert_int_equal(w->status, without < 2 ? 200 : 404);
        assert_string_equal(
            w->text, without < 2
                         ? "{\"force\":true}"
                         : "{\"error\":{\"code\":\"no-dossier\",\"message\":\"nothing of it is here\"}}");
    }
    w->without = 1;
    ask_nodes(w, 2, "POST", "/v1/jobs/7/adopt/d", NULL, NULL);
    deliver_one(w);
    deliver_one(w); /* b has it not; the question to c is on its way */
    w->is_cut = true;
    proxy_changed(w->a);
    assert_non_null(strstr(w->text, "node c, which is the head of this job, is out of reach"));
}

static void what_is_too_large_is_refused(void **state)
{
    struct world *w = *state;
    fill(w, PROXY_ANSWER + 1);
    ask(w, "GET", "/v1/jobs/7/steps", NULL, NULL);
    deliver(w);
    assert_int_equal(w->status, 413);
    assert_non_null(strstr(w->text, "16 MiB"));
    char *body = calloc(1, PROXY_REQUEST + 2);
    memset(body, 'x', PROXY_REQUEST + 1);
    ask(w, "POST", "/v1/jobs/7/turn", NULL, body);
    assert_int_equal(w->status, 413);
    assert_non_null(strstr(w->text, "512 KiB"));
    assert_int_equal(deliver(w), 0);
    free(body);
}

/* Each part says how long the whole is. */
static void a_whole_that_shrinks_is_refused(void **state)
{
    struct world *w = *state;
    fill(w, 3 * PROXY_PART);
    ask(w, "GET", "/v1/jobs/7/steps", NULL, NULL);
    for (size_t i = 0; i < 3; i++)
        deliver_one(w); /* the question, a part, the question for more */
    assert_int_equal(w->n_wire, 1);
    json_object_set_new(w->wire[0].message, "size", json_integer(PROXY_PART - 1));
    deliver_one(w);
    assert_int_equal(w->answers, 1);
    assert_int_equal(w->status, 503);
    assert_non_null(strstr(w->text, "sent an answer that cannot be read"));
    assert_int_equal(deliver(w), 0);
}

static void what_a_node_keeps_over_time_is_passed_on(void **state)
{
    struct world *w = *state;
    fill(w, 3);
    ask(w, "GET", "/v1/history", NULL, NULL);
    deliver(w);
    assert_int_equal(w->status, 200);
    assert_int_equal(w->answers, 1);
}

static void only_jobs_of_that_node_are_answered_for(void **state)
{
    static const char *const paths[] = {"/v1/token",     "/v1/cluster/remove", "/v1/jobs/7@c", "/v1/jobs/",
                                        "/v1/jobs/7x/y", "/v1/jobs",           "/v1/history/", ""};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        ask(w, "POST", paths[i], NULL, NULL);
        assert_int_equal(deliver(w), 1); /* the question alone */
    }
    assert_int_equal(w->answers, 0);
}

static void who_is_gone_is_named(void **state)
{
    struct world *w = *state;
    w->is_cut = true;
    ask(w, "GET", "/v1/jobs/7", NULL, NULL);
    assert_int_equal(w->status, 503);
    assert_non_null(strstr(w->text, "node b, which is the head of this job, is out of reach"));
    w->is_cut = false;
    ask(w, "GET", "/v1/jobs/7", NULL, NULL);
    assert_int_equal(w->answers, 1);
    w->is_cut = true; /* with the question on its way */
    proxy_changed(w->a);
    assert_int_equal(w->answers, 2);
    assert_int_equal(w->status, 503);
}

static void what_cannot_be_sent_is_named(void **state)
{
    static const struct {
        int error, status;
        const char *code, *words;
    } cases[] = {
        {-EHOSTUNREACH, 503, "out-of-reach", "is out of reach"},
        {-ENOTCONN, 503, "out-of-reach", "is out of reach"},
        {-EMSGSIZE, 413, "too-large", "cannot be sent this message: it has more than 1 MiB"},
        {-ENOBUFS, 503, "busy", "takes no messages now: 16 MiB wait for it already"},
        {-ENOMEM, 503, "busy", "no memory is left for it"},
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w->unsent = cases[i].error;
        ask(w, "POST", "/v1/jobs/7/turn", NULL, "{}");
        assert_int_equal(w->answers, i + 1);
        assert_int_equal(w->status, cases[i].status);
        assert_non_null(strstr(w->text, cases[i].code));
        assert_non_null(strstr(w->text, "node b, which is the head of this job, "));
        assert_non_null(strstr(w->text, cases[i].words));
    }
}

static void the_end_of_either_side_leaves_nothing_behind(void **state)
{
    struct world *w = *state;
    ask(w, "GET", "/v1/jobs/7/held", NULL, NULL);
    deliver(w);
    assert_non_null(w->held);
    proxy_free(w->b);
    w->b = NULL;
    http_fail(w->held, 500, "internal", "late"); /* nobody is there to hear it */
    assert_int_equal(w->n_wire, 0);
    proxy_free(w->a);
    w->a = NULL;
    assert_int_equal(w->answers, 1);
    assert_int_equal(w->status, 503);
}

static void no_more_than_so_many_at_once(void **state)
{
    struct world *w = *state;
    size_t sent = 0;
    for (; sent < 1000 && !w->answers; sent++) {
        ask(w, "GET", "/v1/jobs/7/held", NULL, NULL);
        while (w->n_wire)
            json_decref(w->wire[--w->n_wire].message);
    }
    assert_int_equal(sent, 257);
    assert_int_equal(w->status, 503);
    assert_non_null(strstr(w->text, "busy"));
}

/* Letters and mail, until neither is left. */
static void settle(struct world *w)
{
    do
        event_base_loop(w->base, EVLOOP_NONBLOCK);
    while (deliver(w));
}

static void assert_taken(struct world *w, const char *text, bool is_last)
{
    bool last;
    char *taken = http_inside_take(w->sink, &last);
    assert_string_equal(taken ? taken : "", text);
    assert_int_equal(last, is_last);
    free(taken);
}

static void put(struct world *w, const char *text)
{
    http_feed_put(w->source, text, strlen(text));
}

static void a_stream_flows_as_it_is_fed(void **state)
{
    struct world *w = *state;
    ask(w, "POST", "/v1/jobs/7/stream", NULL, "{}");
    deliver(w);
    assert_non_null(w->source);
    assert_null(w->sink); /* nothing was said yet */
    put(w, "one");
    settle(w);
    assert_non_null(w->sink);
    assert_taken(w, "one", false);
    put(w, "two");
    put(w, "three");
    settle(w);
    assert_taken(w, "twothree", false);
    put(w, "four");
    http_feed_end(w->source);
    settle(w);
    assert_taken(w, "four", true);
    assert_int_equal(w->answers, 0); /* the stream was the answer */
    assert_true(w->fed >= 3 && w->changed >= 2);
    http_inside_leave(w->sink);
}

static void a_long_part_comes_whole(void **state)
{
    struct world *w = *state;
    const size_t n = 3 * PROXY_PART + 5;
    char *text = malloc(n + 1);
    memset(text, 'x', n);
    text[n] = 0;
    ask(w, "POST", "/v1/jobs/7/stream", NULL, "{}");
    deliver(w);
    put(w, text);
    http_feed_end(w->source);
    size_t have = 0;
    bool last = false;
    for (int i = 0; i < 100 && !last; i++) {
        settle(w);
        char *part = http_inside_take(w->sink, &last); /* a slow client: more is asked for as it takes */
        have += part ? strlen(part) : 0;
        free(part);
    }
    assert_true(last);
    assert_int_equal(have, n);
    http_inside_leave(w->sink);
    free(text);
}

static void who_leaves_a_stream_stops_it(void **state)
{
    struct world *w = *state;
    ask(w, "POST", "/v1/jobs/7/stream", NULL, "{}");
    deliver(w);
    put(w, "one");
    settle(w);
    assert_true(http_feed_is_open(w->source));
    http_inside_leave(w->sink);
    settle(w);
    assert_false(http_feed_is_open(w->source));
    http_feed_end(w->source);
}

static void who_leaves_before_its_answer_stops_the_work(void **state)
{
    struct world *w = *state;
    ask(w, "POST", "/v1/jobs/7/held", NULL, "{}");
    deliver(w);
    assert_non_null(w->held);
    http_inside_left(w->asked);
    assert_int_equal(w->answers, 1); /* which nobody reads */
    deliver(w);
    assert_null(w->held);
    assert_int_equal(w->answers, 1);
    fill(w, 3 * PROXY_PART);
    ask(w, "GET", "/v1/jobs/7/steps", NULL, NULL);
    for (int i = 0; i < 2; i++)
        deliver_one(w); /* the question, a part */
    http_inside_left(w->asked);
    assert_int_equal(deliver(w), 3); /* "more", a part that nobody takes, "stop" */
    assert_int_equal(w->answers, 2);
}

/* A part that was asked for in another way than streams are, or from nobody. */
static void a_stream_is_no_answer_and_no_events(void **state)
{
    struct world *w = *state;
    ask(w, "GET", "/v1/jobs/7/held", NULL, NULL);
    deliver(w);
    json_t *told = json_pack("{s:s s:i s:b s:s}", "kind", "api-told", "round", 1, "flow", 1, "part", "!!!");
    uint8_t from[16];
    memset(from, B, sizeof from);
    proxy_take_told(w->a, from, told);
    json_decref(told);
    assert_int_equal(w->answers, 1);
    assert_int_equal(w->status, 503);
    assert_non_null(strstr(w->text, "cannot be read"));
    http_fail(w->held, 500, "internal", "late");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers_come_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refusal_and_a_body_go_through, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_next_node_is_asked_for_what_one_has_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_too_large_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_whole_that_shrinks_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_node_keeps_over_time_is_passed_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_jobs_of_that_node_are_answered_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_gone_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_sent_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_either_side_leaves_nothing_behind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_more_than_so_many_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stream_flows_as_it_is_fed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_part_comes_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_leaves_a_stream_stops_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_leaves_before_its_answer_stops_the_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stream_is_no_answer_and_no_events, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
