/* SPDX-License-Identifier: MIT
 *
 * Where the HTTP server listens: what is refused, a socket left behind, and which hosts an open
 * listener answers. */
#include "tests/unit/daemon/ringd/http/http_world.h"

static int try_start(struct fixture *f, const char *path, const char *tcp, struct err *err)
{
    struct http *second = NULL;
    struct http_setup setup = {.base = f->base,
                               .mailbox = f->box,
                               .events = f->events,
                               .unix_path = path,
                               .tcp_listen = tcp,
                               .handle = handle,
                               .owner = f};
    int rc = http_start(&second, &setup, err);
    assert_null(second);
    return rc;
}

static void wrong_setups_are_refused_in_words(void **state)
{
    struct fixture *f = *state;
    struct err err;
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    assert_true(try_start(f, f->path, NULL, &err) < 0);
    assert_non_null(strstr(err.text, "another ringd answers on"));
    assert_true(try_start(f, longer, NULL, &err) < 0);
    assert_non_null(strstr(err.text, "more than 107 bytes"));
    assert_true(try_start(f, "/etc/passwd", NULL, &err) < 0);
    assert_non_null(strstr(err.text, "another file has that name"));
    assert_true(try_start(f, NULL, "0.0.0.0:0", &err) < 0);
    assert_non_null(strstr(err.text, "--http-token-file"));
    static const char *const bad[] = {"8473", "127.0.0.1",      "127.0.0.1:x", "127.0.0.1:70000",
                                      "::1",  "example.org:80", ":80",         "[]:80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(try_start(f, NULL, bad[i], &err) < 0);
        assert_non_null(strstr(err.text, "as 127.0.0.1:8473 or [::1]:8473"));
    }
    /* The first server is unharmed. */
    expect(dial_unix(f), "GET /alive HTTP/1.1\r\n" HOST "\r\n", "200", "GET /alive");
}

static void a_stale_socket_is_replaced(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct err err;
    struct http *second = NULL;
    snprintf(a.sun_path, sizeof a.sun_path, "%s/stale", f->dir);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    struct mailbox *box;
    struct event_base *base = event_base_new();
    assert_int_equal(mailbox_new(&box, base), 0);
    struct event_log *events = event_log_new(2, SIZE_MAX);
    struct http_setup setup = {.base = base,
                               .mailbox = box,
                               .events = events,
                               .unix_path = a.sun_path,
                               .handle = handle,
                               .owner = f};
    if (http_start(&second, &setup, &err))
        fail_msg("%s", err.text);
    assert_int_equal(http_port(second), 0);
    http_stop(second);
    mailbox_free(box);
    event_log_free(events);
    event_base_free(base);
}

static void hosts_of_an_open_listener(void **state)
{
    (void)state;
    const char *why = NULL;
    struct access_rules rules = {.is_tcp = true, .is_loopback = false, .host = "192.168.7.7", .token = "t"};
    assert_int_equal(access_check(&rules, "192.168.7.7:8473", NULL, &why), 0);
    assert_int_equal(access_check(&rules, "[fe80::1]:8473", NULL, &why), 0);
    assert_int_equal(access_check(&rules, "LocalHost", NULL, &why), 0);
    assert_int_equal(access_check(&rules, "evil.example", NULL, &why), 421);
    assert_int_equal(access_check(&rules, "[::1", NULL, &why), 421);
    assert_int_equal(access_check(&rules, "", NULL, &why), 421);
    assert_int_equal(access_check(&rules, NULL, NULL, &why), 421);
    assert_int_equal(access_check(&rules, "192.168.7.7:8473", "http://192.168.7.7:80", &why), 403);
    assert_false(access_may_read(&rules, &(struct access_claim){.authorization = NULL}));
    assert_false(access_may_read(&rules, &(struct access_claim){.authorization = "Bearer x"}));
    assert_true(access_may_read(&rules, &(struct access_claim){.authorization = "Bearer t"}));
    assert_true(access_may_read(&rules, &(struct access_claim){.has_session = true}));
    /* Other users of the machine reach its loopback port too. */
    const struct access_rules loopback = {.is_tcp = true, .is_loopback = true, .token = "t"};
    assert_false(access_may_read(&loopback, &(struct access_claim){.authorization = NULL}));
    assert_true(access_may_read(&loopback, &(struct access_claim){.authorization = "Bearer t"}));
    assert_true(access_may_read(&(struct access_rules){.is_tcp = false}, &(struct access_claim){0}));
    rules.token = NULL;
    assert_false(access_may_read(&rules, &(struct access_claim){.authorization = "Bearer "}));
    assert_false(access_may_write(&rules, &(struct access_claim){.authorization = "Bearer "}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wrong_setups_are_refused_in_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stale_socket_is_replaced, set_up, tear_down),
        cmocka_unit_test(hosts_of_an_open_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
