/* SPDX-License-Identifier: MIT
 *
 * Clients that leave before they are answered: whoever works for them hears of it at once. */
#include "tests/unit/daemon/ringd/http/http_world.h"

static const char watched[] = "GET /watched HTTP/1.1\r\nHost: localhost\r\n\r\n";

/* Its handler has the request. */
static int ask_watched(struct fixture *f, int fd)
{
    pthread_mutex_lock(&f->lock);
    f->is_held = false;
    pthread_mutex_unlock(&f->lock);
    say(fd, watched, strlen(watched));
    pthread_mutex_lock(&f->lock);
    while (!f->is_held)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return fd;
}

/* Returns how many have left, n at least. */
static unsigned await_left(struct fixture *f, unsigned n)
{
    pthread_mutex_lock(&f->lock);
    while (f->left < n)
        pthread_cond_wait(&f->changed, &f->lock);
    const unsigned left = f->left;
    pthread_mutex_unlock(&f->lock);
    return left;
}

static void who_works_for_a_client_hears_that_it_left(void **state)
{
    struct fixture *f = *state;
    const struct linger at_once = {.l_onoff = 1};
    close(ask_watched(f, dial_tcp(f)));
    assert_int_equal(await_left(f, 1), 1);
    close(ask_watched(f, dial_unix(f)));
    assert_int_equal(await_left(f, 2), 2);
    int fd = ask_watched(f, dial_tcp(f));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd); /* a reset */
    assert_int_equal(await_left(f, 3), 3);
    fd = ask_watched(f, dial_tcp(f));
    say(fd, watched, strlen(watched)); /* its next request, which is no sign of leaving */
    expect(dial_tcp(f), "GET /alive HTTP/1.1\r\n" HOST "\r\n", "200", "GET /alive");
    assert_int_equal(await_left(f, 3), 3);
    close(fd);
    await_left(f, 4); /* or 5: its next request may have begun by then */
    expect(dial_tcp(f), "GET /alive HTTP/1.1\r\n" HOST "\r\n", "200", "GET /alive");
}

static void answer(void *arg)
{
    struct fixture *f = arg;
    http_reply(f->watched, 200, "text/plain", "here", 4);
}

/* Behind everything that the loop does for a client that has left. */
static void who_has_its_answer_may_leave(void **state)
{
    struct fixture *f = *state;
    char buf[4096] = "";
    int fd = ask_watched(f, dial_tcp(f));
    mailbox_post(f->box, answer, f);
    assert_true(hear(fd, buf, sizeof buf, "here"));
    close(fd);
    close(ask_watched(f, dial_tcp(f)));
    assert_int_equal(await_left(f, 1), 1);
}

static void a_server_that_stops_forgets_who_may_leave(void **state)
{
    struct fixture *f = *state;
    char buf[4096] = "";
    int fd = ask_watched(f, dial_tcp(f));
    stop(f);
    hear(fd, buf, sizeof buf, NULL);
    close(fd);
    http_give_up(f->watched);
    assert_int_equal(f->left, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_works_for_a_client_hears_that_it_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_has_its_answer_may_leave, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_stops_forgets_who_may_leave, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
