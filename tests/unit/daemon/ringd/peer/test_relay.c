/* SPDX-License-Identifier: MIT
 *
 * Connections passed on: a row of relays between two links, on one loop, with messages that go from
 * one to the next without a network. */
#include "tests/unit/net/link_world.h"

#include <event2/listener.h>
#include <jansson.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/peer/relay.h"

enum { MAX_NODES = RELAY_MAX_LEGS + 4, JOB = 7, PATIENCE_US = 10000000 };

struct row;
struct node_at { /* number `at` of the row; the first asks, the last is the end that is asked for */
    struct row *row;
    size_t at;
    struct relay *relay; /* owned */
    struct event *listen;
    int fd; /* owned */
    uint16_t port;
    bool no_path, idle, lost; /* it knows no way on; it has no part in the job; the cable behind it is out */
    int unsent;               /* why it cannot send */
    struct link_setup setup;
};
struct row {
    struct world *w;
    struct node_at node[MAX_NODES];
    size_t n;
    struct relay_ask *ask;
    struct relay_way way;
    char refused[256];
    unsigned lines;
    unsigned carried; /* messages on their way */
    char last[32];    /* the kind of the last that was sent */
};
struct post { /* a message between two of them */
    struct node_at *to;
    uint8_t from[16];
    json_t *body;
};

static void id_of(uint8_t ret[16], size_t at)
{
    memset(ret, 0, 16);
    ret[0] = (uint8_t)(at + 1);
}

static void deliver(evutil_socket_t fd, short what, void *arg)
{
    struct post *post = arg;
    (void)fd;
    (void)what;
    post->to->row->carried--;
    const char *kind = json_string_value(json_object_get(post->body, "kind"));
    if (!strcmp(kind, "relay-open"))
        relay_take_open(post->to->relay, post->from, post->body);
    else if (!strcmp(kind, "relay-ready"))
        relay_take_ready(post->to->relay, post->from, post->body);
    else
        relay_take_refused(post->to->relay, post->from, post->body);
    json_decref(post->body);
    free(post);
}

static int node_send(void *owner, const uint8_t to[16], json_t *message)
{
    struct node_at *n = owner;
    if (n->unsent) {
        json_decref(message);
        return n->unsent;
    }
    struct post *post = calloc(1, sizeof *post);
    *post = (struct post){.to = &n->row->node[to[0] - 1], .body = message};
    id_of(post->from, n->at);
    n->row->carried++;
    snprintf(n->row->last, sizeof n->row->last, "%s", json_string_value(json_object_get(message, "kind")));
    return event_base_once(n->row->w->base, -1, EV_TIMEOUT, deliver, post, &(struct timeval){0, 0});
}

static int node_next(void *owner, const uint8_t to[16], struct relay_hop *ret)
{
    struct node_at *n = owner;
    if (n->no_path || n->lost)
        return -EHOSTUNREACH;
    size_t next = (size_t)(to[0] - 1) > n->at ? n->at + 1 : n->at - 1;
    *ret = (struct relay_hop){.path = 100 + next, .host = "127.0.0.1", .port = n->row->node[next].port};
    id_of(ret->id, next);
    return 0;
}

static bool node_has_path(void *owner, uint64_t path)
{
    (void)path;
    return !((struct node_at *)owner)->lost;
}

static uint64_t node_path_at(void *owner, const char *address)
{
    (void)owner;
    assert_non_null(strstr(address, "127.0.0.1:"));
    return 5;
}

static bool node_works(void *owner, const uint8_t id[16], const uint8_t head[16], uint64_t job)
{
    struct node_at *n = owner;
    (void)id;
    (void)head;
    return job == JOB && !n->idle;
}

static const char *node_name(void *owner, const uint8_t *id)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    const struct node_at *n = owner;
    size_t at = id ? id[0] - 1U : n->at;
    return at < sizeof names / sizeof *names ? names[at] : "z";
}

static void node_log(void *owner, const char *text)
{
    struct node_at *n = owner;
    assert_non_null(strstr(text, "job 7: "));
    n->row->lines++;
}

/* --- listeners of the nodes between ----------------------------------------------------------- */

static void on_relayed(void *owner, struct link *link)
{
    struct node_at *n = owner;
    char address[80];
    snprintf(address, sizeof address, "%s", link_address(link));
    relay_accept(n->relay, link_surrender(link), address);
}

static void on_no_link(void *owner, struct link *link, enum link_end end, const char *text)
{
    (void)owner;
    (void)end;
    (void)text;
    link_free(link);
}

static const struct link_ops hop_ops = {.relayed = on_relayed, .down = on_no_link};

static void on_caller(evutil_socket_t fd, short what, void *arg)
{
    struct node_at *n = arg;
    struct link *link;
    (void)what;
    int caller = accept(fd, NULL, NULL);
    assert_true(caller >= 0);
    assert_int_equal(link_accept(&link, &n->setup, caller), 0);
}

static int loopback(uint16_t *ret_port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sin;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof sin), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
    *ret_port = ntohs(sin.sin_port);
    return fd;
}

static void row_open(struct row *row, struct world *w, size_t between, uint64_t patience_us)
{
    *row = (struct row){.w = w, .n = between + 2};
    for (size_t i = 0; i < row->n; i++) {
        struct node_at *n = &row->node[i];
        *n = (struct node_at){.row = row, .at = i, .fd = -1, .setup = w->b.setup};
        n->setup.ops = &hop_ops;
        n->setup.owner = n;
        n->relay = relay_new(&(struct relay_setup){.base = w->base,
                                                   .patience_us = patience_us,
                                                   .owner = n,
                                                   .send = node_send,
                                                   .next = node_next,
                                                   .has_path = node_has_path,
                                                   .path_at = node_path_at,
                                                   .works = node_works,
                                                   .name = node_name,
                                                   .log = node_log});
        if (i + 1 == row->n) {
            n->port = w->port;
        } else {
            n->fd = loopback(&n->port);
            n->listen = event_new(w->base, n->fd, EV_READ | EV_PERSIST, on_caller, n);
            event_add(n->listen, NULL);
        }
    }
}

/* What is still on its way between the nodes is delivered first. */
static void row_close(struct row *row)
{
    while (row->carried)
        assert_int_equal(event_base_loop(row->w->base, EVLOOP_ONCE), 0);
    relay_ask_free(row->ask);
    for (size_t i = 0; i < row->n; i++) {
        relay_free(row->node[i].relay);
        if (row->node[i].listen)
            event_free(row->node[i].listen);
        if (row->node[i].fd >= 0)
            close(row->node[i].fd);
    }
}

static void on_ready(void *owner, const struct relay_way *way)
{
    struct row *row = owner;
    row->way = *way;
    relay_ask_free(row->ask);
    row->ask = NULL;
    event_base_loopbreak(row->w->base);
}

static void on_refused(void *owner, const char *why)
{
    struct row *row = owner;
    snprintf(row->refused, sizeof row->refused, "%s", why);
    relay_ask_free(row->ask);
    row->ask = NULL;
    event_base_loopbreak(row->w->base);
}

static const struct relay_ask_ops ask_ops = {on_ready, on_refused};

static void ask(struct row *row, uint64_t job)
{
    struct relay_want want = {.job = job};
    id_of(want.from, 0);
    id_of(want.to, row->n - 1);
    *row->refused = 0;
    row->ask = relay_ask(row->node[0].relay, &want, &ask_ops, row);
    run(row->w);
}

static void expect_refusal(struct row *row, uint64_t job, const char *why)
{
    ask(row, job);
    if (!strstr(row->refused, why))
        fail_msg("\"%s\" is not in \"%s\"", why, row->refused);
}

/* Until `count` connections are relayed at the first node between. */
static void await_count(struct row *row, size_t count)
{
    evtimer_add(row->w->guard, &(struct timeval){.tv_sec = GUARD_S});
    while (relay_count(row->node[1].relay) != count && !row->w->stuck)
        event_base_loop(row->w->base, EVLOOP_ONCE);
    event_del(row->w->guard);
    assert_int_equal(relay_count(row->node[1].relay), count);
}

static void dial_through(struct row *row)
{
    struct world *w = row->w;
    w->a.setup.preamble = row->way.relayed ? row->way.preamble : NULL;
    w->a.setup.kind = LINK_DATA;
    assert_int_equal(link_dial(&w->a.link, &w->a.setup, row->way.hop.host, row->way.hop.port), 0);
}

static void detach_here(struct side *side)
{
    assert_int_equal(link_detach(side->link, &side->fd, &side->tx, &side->rx), 0);
    side->link = NULL;
    if (side->world->a.fd >= 0 && side->world->b.fd >= 0)
        stop(side);
}

static void bring_up_through(struct row *row)
{
    row->w->a.on_up = row->w->b.on_up = detach_here;
    row->w->a.on_down = row->w->b.on_down = stop;
    dial_through(row);
    run(row->w);
    assert_int_equal(row->w->a.ups + row->w->b.ups, 2);
}

/* --- bytes ------------------------------------------------------------------------------------ */

enum { BULK = 3 << 20 };

struct flow_test {
    struct world *w;
    struct side *from, *to;
    uint8_t *sent, *got;
    size_t nsent, ngot;
    struct event *out, *in;
};

static void on_out(evutil_socket_t fd, short what, void *arg)
{
    struct flow_test *f = arg;
    (void)what;
    ssize_t n = send(fd, f->sent + f->nsent, BULK - f->nsent, MSG_DONTWAIT | MSG_NOSIGNAL);
    f->nsent += n > 0 ? (size_t)n : 0;
    if (f->nsent == BULK) {
        event_del(f->out);
        shutdown(fd, SHUT_WR);
    }
}

static void on_in(evutil_socket_t fd, short what, void *arg)
{
    struct flow_test *f = arg;
    (void)what;
    ssize_t n = recv(fd, f->got + f->ngot, BULK + 1 - f->ngot, MSG_DONTWAIT);
    f->ngot += n > 0 ? (size_t)n : 0;
    if (n == 0) {
        event_del(f->in);
        event_base_loopbreak(f->w->base);
    }
}

static void flow_start(struct flow_test *f, struct world *w, struct side *from, struct side *to)
{
    *f = (struct flow_test){.w = w, .from = from, .to = to, .sent = malloc(BULK), .got = malloc(BULK + 1)};
    randombytes_buf(f->sent, BULK);
    f->out = event_new(w->base, from->fd, EV_WRITE | EV_PERSIST, on_out, f);
    f->in = event_new(w->base, to->fd, EV_READ | EV_PERSIST, on_in, f);
    event_add(f->out, NULL);
    event_add(f->in, NULL);
}

static void flow_check(struct flow_test *f)
{
    assert_int_equal(f->ngot, BULK);
    assert_memory_equal(f->sent, f->got, BULK);
    event_free(f->out);
    event_free(f->in);
    free(f->sent);
    free(f->got);
}

static void passes_everything(struct world *w, size_t between, const char *through)
{
    struct row row;
    struct flow_test there, back;
    row_open(&row, w, between, PATIENCE_US);
    ask(&row, JOB);
    assert_true(row.way.relayed);
    assert_string_equal(row.way.through, through);
    bring_up_through(&row);
    assert_int_equal(row.lines, between);
    flow_start(&there, w, &w->a, &w->b);
    run(w);
    flow_check(&there);
    flow_start(&back, w, &w->b, &w->a); /* an end that has said all still listens */
    run(w);
    flow_check(&back);
    await_count(&row, 0); /* both ends have closed */
    row_close(&row);
}

static void test_through_one(void **state)
{
    passes_everything(*state, 1, "b");
}

static void test_through_four(void **state)
{
    passes_everything(*state, 4, "b, c, d, e");
}

static void test_a_neighbour_needs_no_relay(void **state)
{
    struct row row;
    row_open(&row, *state, 0, PATIENCE_US);
    ask(&row, JOB);
    assert_false(row.way.relayed);
    bring_up_through(&row);
    row_close(&row);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    struct row row;
    row_open(&row, *state, 2, PATIENCE_US);
    expect_refusal(&row, JOB + 1, "b has not heard that both ends work on job 8");
    row.node[2].idle = true;
    expect_refusal(&row, JOB, "c has not heard that both ends work on job 7");
    row.node[2].idle = false;
    row.node[2].no_path = true;
    expect_refusal(&row, JOB, "no way leads from c to d");
    row.node[1].no_path = true;
    expect_refusal(&row, JOB, "no way leads from b to d");
    row.node[0].no_path = true;
    expect_refusal(&row, JOB, "no way leads from a to d");
    assert_int_equal(relay_count(row.node[1].relay), 0);
    row_close(&row);
}

static void test_a_way_that_turns_round_is_none(void **state)
{
    struct row row;
    uint8_t asker[16];
    row_open(&row, *state, 1, PATIENCE_US);
    id_of(asker, 2); /* it leads back to who asks */
    json_t *open = json_pack("{s:s s:s s:s s:s s:s s:i s:i}", "kind", "relay-open", "token",
                             "000102030405060708090a0b0c0d0e0f", "from", "01000000000000000000000000000000",
                             "to", "03000000000000000000000000000000", "head",
                             "01000000000000000000000000000000", "job", JOB, "hops", 4);
    relay_take_open(row.node[1].relay, asker, open);
    await_count(&row, 0);
    assert_string_equal(row.last, "relay-refused");
    *row.last = 0;
    json_object_set_new(open, "hops", json_integer(1)); /* used up */
    id_of(asker, 0);
    relay_take_open(row.node[1].relay, asker, open);
    await_count(&row, 0);
    assert_string_equal(row.last, "relay-refused");
    *row.last = 0;
    json_object_del(open, "to");
    relay_take_open(row.node[1].relay, asker, open);
    assert_int_equal(relay_count(row.node[1].relay), 0);
    json_decref(open);
    row_close(&row);
}

static void test_no_more_than_so_many(void **state)
{
    struct row row;
    row_open(&row, *state, 1, PATIENCE_US);
    for (size_t i = 0; i < RELAY_MAX_LEGS; i++)
        ask(&row, JOB);
    assert_string_equal(row.refused, "");
    expect_refusal(&row, JOB, "b relays 16 connections already");
    row_close(&row);
}

static void test_who_cannot_be_asked_is_named(void **state)
{
    struct row row;
    row_open(&row, *state, 1, PATIENCE_US);
    row.node[0].unsent = -EHOSTUNREACH;
    expect_refusal(&row, JOB, "b cannot be asked to relay: it cannot be reached");
    row.node[0].unsent = -ENOBUFS;
    expect_refusal(&row, JOB, "b cannot be asked to relay: it takes no messages now");
    row_close(&row);
}

static void test_an_offer_expires(void **state)
{
    struct row row;
    row_open(&row, *state, 1, 30000);
    ask(&row, JOB);
    assert_string_equal(row.refused, "");
    await_count(&row, 0);
    row.w->a.on_down = stop;
    dial_through(&row);
    run(row.w);
    expect_end(&row.w->a, LINK_END_HANDSHAKE, "closed the connection during the handshake");
    row_close(&row);
}

static void test_a_token_is_good_once(void **state)
{
    struct row row;
    row_open(&row, *state, 1, PATIENCE_US);
    ask(&row, JOB);
    bring_up_through(&row);
    struct side *a = &row.w->a;
    close(a->fd);
    a->fd = -1;
    await_count(&row, 1);
    a->on_up = NULL;
    a->downs = 0;
    dial_through(&row);
    run(row.w);
    expect_end(a, LINK_END_HANDSHAKE, "closed the connection during the handshake");
    row_close(&row);
}

/* One that says nothing is sent away; many of them do not keep out one who has a token. */
static void test_strangers(void **state)
{
    struct row row;
    int fds[2 * RELAY_MAX_GUESTS];
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    row_open(&row, *state, 1, PATIENCE_US);
    sin.sin_port = htons(row.node[1].port);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&sin, sizeof sin), 0);
        write_all(fds[i], (const uint8_t *)"RNGRxy", 6);
        event_base_loop(row.w->base, EVLOOP_NONBLOCK);
    }
    ask(&row, JOB);
    bring_up_through(&row);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        close(fds[i]);
    row_close(&row);
}

/* --- ends ------------------------------------------------------------------------------------- */

static void expect_closed(struct side *side)
{
    uint8_t byte;
    struct pollfd wait = {.fd = side->fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, GUARD_S * 1000), 1);
    assert_true(recv(side->fd, &byte, 1, 0) <= 0);
}

static void test_ends_with_the_job(void **state)
{
    struct row row;
    row_open(&row, *state, 1, PATIENCE_US);
    ask(&row, JOB);
    bring_up_through(&row);
    relay_changed(row.node[1].relay);
    assert_int_equal(relay_count(row.node[1].relay), 1);
    row.node[1].idle = true;
    relay_changed(row.node[1].relay);
    assert_int_equal(relay_count(row.node[1].relay), 0);
    expect_closed(&row.w->a);
    expect_closed(&row.w->b);
    row_close(&row);
}

static void test_ends_with_the_cable(void **state)
{
    struct row row;
    row_open(&row, *state, 2, PATIENCE_US);
    ask(&row, JOB);
    bring_up_through(&row);
    row.node[2].lost = true;
    relay_changed(row.node[2].relay);
    await_count(&row, 0); /* the one before it sees its connection close */
    expect_closed(&row.w->a);
    expect_closed(&row.w->b);
    row_close(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_through_one),
        TEST(test_through_four),
        TEST(test_a_neighbour_needs_no_relay),
        TEST(test_refusals),
        TEST(test_a_way_that_turns_round_is_none),
        TEST(test_no_more_than_so_many),
        TEST(test_who_cannot_be_asked_is_named),
        TEST(test_an_offer_expires),
        TEST(test_a_token_is_good_once),
        TEST(test_strangers),
        TEST(test_ends_with_the_job),
        TEST(test_ends_with_the_cable),
    };

    signal(SIGPIPE, SIG_IGN);
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
