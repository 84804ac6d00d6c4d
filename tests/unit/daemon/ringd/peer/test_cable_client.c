/* SPDX-License-Identifier: MIT
 *
 * ringd's side of ringd-link against a fake one on the same loop, that keeps a set of addresses,
 * refuses what it is told to and misbehaves on request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/ringd/peer/cable_client.h"

enum { MAX = 16 };
enum manner { HONEST, REFUSES, DENIES, WRONG_SEQ, GARBAGE, SILENT };

struct world {
    struct event_base *base;
    char dir[32], path[64];
    struct event *listener, *client; /* of the fake */
    enum manner manner;
    struct prefix has[MAX];
    size_t n, asked[RLINK_LIST + 1];
    struct linkctl *l;
    bool close_on_news;
    size_t news;
};

static const struct prefix ula = {AF_INET6, 48, {0xfd, 1, 2, 3, 4, 5}};
static const struct linkctl_want six = {.verb = RLINK_ADDR_ADD,
                                        .ifindex = 7,
                                        .addr = {AF_INET6, 127, {0xfd, 1, 2, 3, 4, 5, 0x72, 0x62, [15] = 1}}};
static const struct linkctl_want four = {
    .verb = RLINK_ADDR_ADD, .ifindex = 7, .addr = {AF_INET, 31, {10, 98, 0, 1}}};
static const struct linkctl_want up = {.verb = RLINK_SET_UP, .ifindex = 7};

/* --- the fake --------------------------------------------------------------------------------- */

static void keep(struct world *w, const struct rlink_request *r)
{
    size_t at = 0;

    while (at < w->n && !prefix_equal(&w->has[at], &r->addr))
        at++;
    if (r->verb == RLINK_ADDR_ADD && at == w->n)
        w->has[w->n++] = r->addr;
    if (r->verb == RLINK_ADDR_DEL && at < w->n)
        w->has[at] = w->has[--w->n];
}

static void reply(int fd, const struct rlink_reply *a)
{
    uint8_t out[RLINK_REPLY];

    rlink_reply_encode(a, out);
    assert_int_equal(send(fd, out, sizeof out, MSG_NOSIGNAL), sizeof out);
}

static void hang_up(struct world *w)
{
    if (w->client) {
        close(event_get_fd(w->client));
        event_free(w->client);
    }
    w->client = NULL;
}

static void on_request(evutil_socket_t fd, short what, void *arg)
{
    uint8_t in[RLINK_REQUEST];
    struct world *w = arg;
    struct rlink_reply a = {0};
    const char *wrong;

    (void)what;
    if (recv(fd, in, sizeof in, 0) <= 0) {
        hang_up(w);
        return;
    }
    assert_int_equal(rlink_request_decode(in, sizeof in, &a.to, &wrong), 0);
    w->asked[a.to.verb]++;
    a.to.seq += w->manner == WRONG_SEQ;
    if (w->manner == GARBAGE)
        assert_int_equal(send(fd, in, sizeof in, 0), sizeof in);
    if (w->manner == GARBAGE || w->manner == SILENT)
        return;
    if (w->manner == REFUSES && a.to.verb == RLINK_ADDR_ADD) {
        a.code = RLINK_NOT_OURS;
        strcpy(a.text, "somebody else has it");
    } else {
        keep(w, &a.to);
    }
    for (size_t i = 0; a.to.verb == RLINK_LIST && i < w->n; i++) {
        struct rlink_reply one = a;

        one.to.addr = w->has[i];
        one.to.ifindex = 7;
        one.more = true;
        reply(fd, &one);
    }
    reply(fd, &a);
}

static void on_connection(evutil_socket_t listener, short what, void *arg)
{
    struct rlink_reply a = {.code = RLINK_DENIED, .text = "not for you"};
    struct world *w = arg;
    int fd = accept(listener, NULL, NULL);

    (void)what;
    assert_true(fd >= 0);
    if (w->manner == DENIES) {
        reply(fd, &a);
        close(fd);
        return;
    }
    hang_up(w);
    w->client = event_new(w->base, fd, EV_READ | EV_PERSIST, on_request, w);
    event_add(w->client, NULL);
}

static void fake_start(struct world *w)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", w->path);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 4), 0);
    w->listener = event_new(w->base, fd, EV_READ | EV_PERSIST, on_connection, w);
    event_add(w->listener, NULL);
}

static void fake_stop(struct world *w)
{
    hang_up(w);
    if (w->listener) {
        close(event_get_fd(w->listener));
        event_free(w->listener);
        unlink(w->path);
    }
    w->listener = NULL;
}

/* --- the world -------------------------------------------------------------------------------- */

static void on_news(void *owner)
{
    struct world *w = owner;

    w->news++;
    if (w->close_on_news) {
        linkctl_close(w->l);
        w->l = NULL;
    }
}

static void open_world(struct world *w, bool with_fake)
{
    struct linkctl_setup setup = {.path = w->path, .changed = on_news, .owner = w};

    *w = (struct world){.base = event_base_new(), .dir = "/tmp/linkctlXXXXXX"};
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof w->path, "%s/sock", w->dir);
    if (with_fake)
        fake_start(w);
    setup.base = w->base;
    assert_int_equal(linkctl_open(&w->l, &setup), 0);
    linkctl_scope(w->l, &ula, NULL);
}

static void close_world(struct world *w)
{
    linkctl_close(w->l);
    fake_stop(w);
    rmdir(w->dir);
    event_base_free(w->base);
}

enum { WAIT_MS = 30000 }; /* for what has to come: a busy machine takes its time */

/* Lets the loop run until `done` or the deadline. */
static bool run_until(struct world *w, bool (*done)(struct world *w), int ms)
{
    for (int i = 0; i < ms / 5 && !done(w); i++) {
        event_base_loopexit(w->base, &(struct timeval){.tv_usec = 5000});
        event_base_dispatch(w->base);
    }
    return done(w);
}

static size_t count_set(struct world *w)
{
    size_t n = 0;

    for (size_t i = 0; i < linkctl_count(w->l); i++) {
        struct linkctl_state s;

        linkctl_at(w->l, i, &s);
        assert_true(!s.is_set || !s.reason);
        n += s.is_set;
    }
    return n;
}
static bool has_set_one(struct world *w)
{
    return count_set(w) == 1;
}
static bool all_set(struct world *w)
{
    return linkctl_count(w->l) > 0 && count_set(w) == linkctl_count(w->l);
}
static bool has_problem(struct world *w)
{
    return linkctl_problem(w->l) != NULL;
}
static bool has_reason(struct world *w)
{
    struct linkctl_state s;

    linkctl_at(w->l, 0, &s);
    return !s.is_set && s.reason;
}
static bool has_nothing(struct world *w)
{
    return w->n == 0;
}
static bool has_any(struct world *w)
{
    return w->n > 0;
}
static bool has_both(struct world *w)
{
    return w->n == 2;
}
static bool is_closed(struct world *w)
{
    return !w->l;
}
static bool has_listed(struct world *w)
{
    return w->asked[RLINK_LIST] > 0;
}

static void test_set_and_removed(void **state)
{
    struct world w;

    (void)state;
    open_world(&w, true);
    linkctl_want(w.l, (struct linkctl_want[]){up, six, four}, 3);
    assert_true(run_until(&w, all_set, WAIT_MS));
    assert_int_equal(w.n, 2);
    assert_int_equal(w.asked[RLINK_SCOPE], 1);
    assert_null(linkctl_problem(w.l));
    linkctl_want(w.l, (struct linkctl_want[]){four, up}, 2); /* the order does not matter */
    assert_int_equal(linkctl_count(w.l), 2);
    linkctl_want(w.l, (struct linkctl_want[]){four}, 1);
    run_until(&w, has_nothing, 200);
    assert_int_equal(w.n, 1);
    assert_true(prefix_equal(&w.has[0], &four.addr));
    assert_int_equal(w.asked[RLINK_ADDR_ADD], 2); /* what stays wanted is not touched */
    linkctl_want(w.l, NULL, 0);
    linkctl_want(w.l, &six, 1); /* and back before the loop has run */
    linkctl_want(w.l, NULL, 0);
    assert_true(run_until(&w, has_nothing, WAIT_MS));
    assert_int_equal(linkctl_count(w.l), 0);
    close_world(&w);
}

static bool has_only_six(struct world *w)
{
    return w->n == 1 && prefix_equal(&w->has[0], &six.addr);
}

/* An address of an earlier run stays as long as it stands in nobody's way: its cable may be about
 * to be heard. */
static void test_lapsing(void **state)
{
    struct linkctl_want out = six;
    struct world w;

    (void)state;
    open_world(&w, true);
    out.lapses = true;
    linkctl_want(w.l, &six, 1);
    assert_true(run_until(&w, all_set, WAIT_MS));
    linkctl_want(w.l, &out, 1);
    w.n = 0; /* its lease has ended */
    linkctl_recheck(w.l);
    assert_true(run_until(&w, has_listed, WAIT_MS));
    run_until(&w, has_both, 100);
    assert_int_equal(w.asked[RLINK_ADDR_ADD], 1);
    assert_int_equal(w.asked[RLINK_ADDR_DEL], 0);
    linkctl_want(w.l, &six, 1); /* the cable is back */
    assert_true(run_until(&w, has_any, WAIT_MS));
    linkctl_want(w.l, &out, 1);
    linkctl_want(w.l, NULL, 0);
    assert_true(run_until(&w, has_nothing, WAIT_MS));
    linkctl_want(w.l, &out, 1); /* what was never there is not set */
    assert_int_equal(linkctl_count(w.l), 0);
    close_world(&w);
}

static void test_leftover(void **state)
{
    struct world w;

    (void)state;
    open_world(&w, true);
    w.has[w.n++] = four.addr;
    linkctl_want(w.l, (struct linkctl_want[]){six}, 1);
    assert_true(run_until(&w, all_set, WAIT_MS));
    linkctl_recheck(w.l);
    run_until(&w, has_nothing, 200);
    assert_int_equal(w.n, 2);
    w.has[w.n] = six.addr; /* another place on the same port */
    w.has[w.n++].at[14] = 9;
    linkctl_recheck(w.l);
    run_until(&w, has_only_six, 300);
    assert_int_equal(w.n, 2);
    w.has[0] = w.has[0].family == AF_INET ? w.has[1] : w.has[0];
    w.n = 1;
    assert_true(has_only_six(&w));
    assert_true(all_set(&w));
    close_world(&w);
}

static void test_flushed(void **state)
{
    struct world w;

    (void)state;
    open_world(&w, true);
    linkctl_want(w.l, (struct linkctl_want[]){six, four, up}, 3);
    assert_true(run_until(&w, all_set, WAIT_MS));
    for (int i = 0; i < 50; i++)
        linkctl_recheck(w.l);
    assert_true(run_until(&w, has_listed, WAIT_MS));
    run_until(&w, is_closed, 100);
    assert_int_equal(w.asked[RLINK_LIST], 1); /* a burst is one look */
    assert_int_equal(w.asked[RLINK_ADDR_ADD], 2);
    assert_int_equal(w.asked[RLINK_SET_UP], 2); /* looking is setting, for these */
    w.n = 0;
    linkctl_recheck(w.l);
    assert_true(run_until(&w, has_both, 500)); /* the first time at once */
    assert_true(run_until(&w, all_set, 500));
    w.n = 0;
    linkctl_recheck(w.l);
    run_until(&w, is_closed, 200);
    assert_int_equal(w.n, 0); /* the second time after a second, with a reason meanwhile */
    assert_true(has_reason(&w));
    assert_true(run_until(&w, all_set, WAIT_MS));
    assert_int_equal(w.n, 2);
    close_world(&w);
}

static void test_refused(void **state)
{
    struct linkctl_state s;
    struct world w;

    (void)state;
    open_world(&w, true);
    w.manner = REFUSES;
    linkctl_want(w.l, (struct linkctl_want[]){six, up}, 2);
    assert_true(run_until(&w, has_reason, WAIT_MS));
    linkctl_at(w.l, 0, &s);
    assert_string_equal(s.reason, "somebody else has it");
    assert_int_equal(w.asked[RLINK_ADDR_ADD], 1);
    assert_true(run_until(&w, has_set_one, WAIT_MS)); /* one refusal does not hold up the rest */
    w.manner = HONEST;
    assert_true(run_until(&w, all_set, WAIT_MS));
    close_world(&w);
}

static void test_not_there(void **state)
{
    struct world w;

    (void)state;
    open_world(&w, false);
    linkctl_want(w.l, &six, 1);
    assert_true(run_until(&w, has_reason, WAIT_MS));
    assert_non_null(strstr(linkctl_problem(w.l), w.path));
    assert_true(w.news > 0);
    fake_start(&w);
    assert_true(run_until(&w, all_set, WAIT_MS));
    assert_null(linkctl_problem(w.l));
    fake_stop(&w);
    assert_true(run_until(&w, has_problem, WAIT_MS));
    assert_true(has_reason(&w));
    fake_start(&w);
    assert_true(run_until(&w, all_set, 5000));
    assert_int_equal(w.asked[RLINK_SCOPE], 2); /* a new one has to be told */
    close_world(&w);
}

static void test_misbehaves(void **state)
{
    static const enum manner manners[] = {DENIES, WRONG_SEQ, GARBAGE};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct world w;

        open_world(&w, true);
        w.manner = manners[i];
        linkctl_want(w.l, &six, 1);
        assert_true(run_until(&w, has_problem, WAIT_MS));
        assert_true(manners[i] != DENIES || strcmp(linkctl_problem(w.l), "not for you") == 0);
        w.manner = HONEST;
        assert_true(run_until(&w, all_set, 5000));
        close_world(&w);
    }
}

static void test_silent(void **state)
{
    struct world w;

    (void)state;
    open_world(&w, true);
    w.manner = SILENT;
    linkctl_want(w.l, &six, 1);
    assert_true(run_until(&w, has_problem, 7000));
    assert_non_null(strstr(linkctl_problem(w.l), "5 s"));
    close_world(&w);
}

static void test_closed_from_callback(void **state)
{
    (void)state;
    for (int with_fake = 0; with_fake < 2; with_fake++) {
        struct world w;

        open_world(&w, with_fake);
        w.close_on_news = true;
        linkctl_want(w.l, &six, 1);
        assert_true(run_until(&w, is_closed, WAIT_MS));
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_and_removed),
        cmocka_unit_test(test_leftover),
        cmocka_unit_test(test_lapsing),
        cmocka_unit_test(test_flushed),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_misbehaves),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_closed_from_callback),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
