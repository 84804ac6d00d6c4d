/* SPDX-License-Identifier: MIT
 *
 * The HTTP server: requests, who may ask, streams, and what hostile or idle clients may cost. */
#include "tests/unit/daemon/ringd/http/http_world.h"

static void requests_reach_the_handler(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    expect(dial_unix(f), "GET /a%20b?word=x%26y HTTP/1.1\r\n" HOST "\r\n", "200",
           "GET /a b word=x&y write=1 read=1 n=0 body=");
    expect(dial_unix(f), "POST /p HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", "200",
           "POST /p word=- write=1 read=1 n=5 body=hello");
    expect(dial_tcp(f), "GET /v1/status HTTP/1.1\r\n" HOST "\r\n", "200", "write=0");
    expect(dial_unix(f), "GET /missing HTTP/1.1\r\n" HOST "\r\n", "404",
           "{\"error\":{\"code\":\"not-found\",\"message\":\"there is no \\\"/missing\\\"\"}}");
    expect(dial_unix(f), "GET /a HTTP/1.1\r\n" HOST "\r\n", "200", "X-Content-Type-Options: nosniff");
}

static void a_connection_serves_many_requests(void **state)
{
    struct fixture *f = *state;
    int fd = dial_unix(f);
    for (int i = 0; i < 3; i++) {
        char buf[4096] = "";
        static const char request[] =
            "POST /again HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi";
        say(fd, request, strlen(request));
        assert_true(hear(fd, buf, sizeof buf, "body=hi"));
    }
    close(fd);
}

static void changing_over_tcp_needs_the_token(void **state)
{
    struct fixture *f = *state;
#define POST "POST /j HTTP/1.1\r\n" HOST "Content-Length: 2\r\n"
#define JSON "Content-Type: application/json; charset=utf-8\r\n"
    expect(dial_tcp(f), "POST /j HTTP/1.1\r\n" HOST JSON "\r\n", "200", "write=0");
    expect(dial_tcp(f), POST JSON "\r\n{}", "401", "`ringctl token`");
    expect(dial_tcp(f), POST JSON "Authorization: Bearer wrong!\r\n\r\n{}", "401", "`ringctl token`");
    expect(dial_tcp(f), POST "Authorization: Bearer sesame\r\n\r\n{}", "403", "application/json");
    expect(dial_tcp(f), POST "Content-Type: application/jsonx\r\nAuthorization: Bearer sesame\r\n\r\n{}",
           "403", "application/json");
    expect(dial_tcp(f), POST JSON "Authorization: Bearer sesame\r\n\r\n{}", "200", "write=1");
    expect(dial_tcp(f), "DELETE /j HTTP/1.1\r\n" HOST "Authorization: Bearer sesame\r\n\r\n", "200",
           "write=1");
}

/* What stands between `begin` and the next of `ends`. */
static void cut_out(const char *text, const char *begin, const char *ends, char *ret, size_t size)
{
    const char *from = strstr(text, begin);
    assert_non_null(from);
    from += strlen(begin);
    snprintf(ret, size, "%.*s", (int)strcspn(from, ends), from);
}

/* The link of `ringctl dashboard`, as a browser uses it. */
static void a_ticket_becomes_a_session(void **state)
{
    struct fixture *f = *state;
    char link[HTTP_LINK_ROOM], ticket[64], cookie[128], key[64], request[512], answer[4096];
    expect(dial_tcp(f), "GET /look HTTP/1.1\r\n" HOST "\r\n", "200", "write=0 read=0");
    assert_true(http_make_link(f->http, link));
    snprintf(request, sizeof request, "http://127.0.0.1:%u/#ticket=", (unsigned)http_port(f->http));
    cut_out(link, request, "&", ticket, sizeof ticket);
    snprintf(request, sizeof request, "POST /session HTTP/1.1\r\n" HOST "Authorization: Ticket %s\r\n\r\n",
             ticket);
    ask(dial_tcp(f), request, answer, sizeof answer);
    cut_out(answer, "Set-Cookie: ", ";", cookie, sizeof cookie);
    cut_out(answer, "\r\n\r\n", "\r", key, sizeof key);
    assert_non_null(strstr(answer, "; HttpOnly; SameSite=Strict"));
    assert_int_equal(strlen(key), 32);
    assert_null(strstr(cookie, key));
    expect(dial_tcp(f), request, "401", "refused"); /* a second time */
    snprintf(request, sizeof request, "GET /look HTTP/1.1\r\n" HOST "Cookie: %s\r\n\r\n", cookie);
    expect(dial_tcp(f), request, "200", "write=0 read=0"); /* as the server of another port gets it */
    snprintf(request, sizeof request,
             "GET /look HTTP/1.1\r\n" HOST "Cookie: a=b; %s\r\nX-Ringd-Session: %s\r\n\r\n", cookie, key);
    expect(dial_tcp(f), request, "200", "read=1");
    snprintf(request, sizeof request,
             "POST /do HTTP/1.1\r\n" HOST JSON
             "Content-Length: 2\r\nCookie: %s\r\nX-Ringd-Session: %s\r\n\r\n{}",
             cookie, key);
    expect(dial_tcp(f), request, "200", "write=1 read=1");
    http_set_token(f->http, "sesame");
    expect(dial_tcp(f), request, "200", "write=1 read=1");
    http_set_token(f->http, "another");
    expect(dial_tcp(f), request, "401", "`ringctl token`");
}

static void other_hosts_and_origins_are_refused(void **state)
{
    struct fixture *f = *state;
    char request[256];
    expect(dial_tcp(f), "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421", "wrong-host");
    expect(dial_tcp(f), "GET / HTTP/1.1\r\nHost: 192.168.7.7\r\n\r\n", "421", "wrong-host");
    expect(dial_tcp(f), "GET / HTTP/1.1\r\nHost: localhost.evil.example:80\r\n\r\n", "421", "wrong-host");
    expect(dial_tcp(f), "GET / HTTP/1.1\r\n" HOST "Origin: http://evil.example\r\n\r\n", "403",
           "foreign-origin");
    expect(dial_tcp(f), "GET / HTTP/1.1\r\n" HOST "Origin: null\r\n\r\n", "403", "foreign-origin");
    expect(dial_tcp(f), "GET / HTTP/1.1\r\n" HOST "Origin: http://localhost\r\n\r\n", "200", "GET /");
    snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n",
             http_port(f->http));
    expect(dial_tcp(f), request, "200", "GET /");
    expect(dial_tcp(f), "GET / HTTP/1.1\r\nHost: [::1]:8473\r\nConnection: close\r\n\r\n", "200", "GET /");
    /* Nobody's browser reaches the Unix socket. */
    expect(dial_unix(f), "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", "200", "GET /");
}

static void a_large_body_is_refused(void **state)
{
    struct fixture *f = *state;
    expect(dial_unix(f), "POST / HTTP/1.1\r\n" HOST "Content-Length: 8388609\r\n\r\n", "413", "too-large");
    /* Chunked: no length announced, 9 MiB sent. */
    enum { CHUNK = 1 << 20 };
    static char chunk[CHUNK + 16];
    char buf[4096] = "";
    int fd = dial_unix(f);
    static const char head[] = "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n";
    say(fd, head, strlen(head));
    int n = snprintf(chunk, sizeof chunk, "%x\r\n", CHUNK);
    memset(chunk + n, 'x', CHUNK);
    memcpy(chunk + n + CHUNK, "\r\n", 2);
    for (int i = 0; i < 9; i++)
        say(fd, chunk, (size_t)n + CHUNK + 2);
    say(fd, "0\r\n\r\n", 5);
    hear(fd, buf, sizeof buf, NULL);
    assert_non_null(strstr(buf, "413"));
    close(fd);
    expect(dial_unix(f), "GET /alive HTTP/1.1\r\n" HOST "\r\n", "200", "GET /alive");
}

/* Who has no token is answered before a byte of the body: none is read, so none is kept. */
static void a_body_without_the_token_is_not_awaited(void **state)
{
    struct fixture *f = *state;
    expect(dial_tcp(f), "POST /j HTTP/1.1\r\n" HOST JSON "Content-Length: 8000000\r\n\r\n", "401",
           "`ringctl token`");
    expect(dial_tcp(f), "POST /j HTTP/1.1\r\n" HOST JSON "Transfer-Encoding: chunked\r\n\r\n", "401",
           "`ringctl token`");
    expect(dial_tcp(f), "GET /j HTTP/1.1\r\n" HOST "Content-Length: 8000000\r\n\r\n", "401",
           "`ringctl token`");
}

static void await_held(struct fixture *f)
{
    pthread_mutex_lock(&f->lock);
    while (!f->is_held)
        pthread_cond_wait(&f->changed, &f->lock);
    f->is_held = false;
    pthread_mutex_unlock(&f->lock);
}

/* A request that waits for its answer holds most of what all bodies may take together. */
static void all_bodies_together_have_a_budget(void **state)
{
    enum { BODY = BODIES * 2 / 3 };
    struct fixture *f = *state;
    static char request[256 + BODY + 16];
    static const char length[] = "POST /%s HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n",
                      chunked[] = "POST /c HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n%x\r\n";
    char buf[4096] = "";
    int holder = dial_unix(f), n = snprintf(request, 256, length, "hold", BODY);
    memset(request + n, 'x', BODY);
    say(holder, request, (size_t)n + BODY);
    await_held(f);
    snprintf(request, 256, length, "late", BODY); /* refused by its length alone */
    expect(dial_unix(f), request, "503", "busy");
    n = snprintf(request, 256, chunked, BODY);
    memset(request + n, 'x', BODY);
    strcpy(request + n + BODY, "\r\n0\r\n\r\n");
    expect(dial_unix(f), request, "503", "busy");
    expect(dial_unix(f), "POST /small HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi", "200", "body=hi");
    http_reply(f->held, 200, "text/plain", "done", 4);
    assert_false(hear(holder, buf, sizeof buf, NULL));
    assert_non_null(strstr(buf, "done"));
    close(holder);
    /* The client hears of the end before the server has let go of that body. */
    *buf = '\0';
    while (!strstr(buf, "body=xx"))
        ask(dial_unix(f), request, buf, sizeof buf);
}

static void events_stream_until_the_job_ends(void **state)
{
    struct fixture *f = *state;
    char buf[8192] = "";
    int fd = dial_unix(f);
    static const char request[] = "GET /events?job=4 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    event_log_publish(f->events, 4, "step", "{\"step\":1}");
    say(fd, request, strlen(request));
    assert_true(hear(fd, buf, sizeof buf, "data: {\"step\":1}\n\n"));
    assert_non_null(strstr(buf, "text/event-stream"));
    event_log_publish(f->events, 5, "step", "{\"other\":1}");
    event_log_publish(f->events, 4, "step", "{\"step\":2}");
    assert_true(hear(fd, buf, sizeof buf, "id: 3\nevent: step\ndata: {\"step\":2}\n\n"));
    assert_null(strstr(buf, "other"));
    event_log_publish(f->events, 4, "end", "{\"state\":\"done\"}");
    assert_true(hear(fd, buf, sizeof buf, "event: end\ndata: {\"state\":\"done\"}\n\n"));
    assert_true(hear(fd, buf, sizeof buf, "\r\n0\r\n"));
    close(fd);
}

static void what_is_fed_is_sent_as_it_is_taken(void **state)
{
    struct fixture *f = *state;
    char buf[8192];
    ask(dial_unix(f), "GET /feed HTTP/1.1\r\n" HOST "\r\n", buf, sizeof buf);
    assert_non_null(strstr(buf, "text/event-stream"));
    assert_non_null(strstr(buf, "id: 1\nevent: step\ndata: {}\n\n"));
    assert_non_null(strstr(buf, "id: 3\nevent: step\ndata: {}\n\n"));
    assert_null(strstr(buf, "id: 4"));
    await_held(f);
}

/* What does not fit under the cap is counted, and the last event says so. */
static void steps_that_do_not_fit_are_counted(void **state)
{
    enum { ROOM = 10 << 20 };
    char *buf = calloc(1, ROOM);
    ask(dial_unix(*state), "GET /timelines HTTP/1.1\r\n" HOST "\r\n", buf, ROOM);
    assert_non_null(strstr(buf, "event: timeline\ndata: {\"step\":1,"));
    assert_non_null(strstr(buf, "event: timeline\ndata: {\"step\":2,"));
    assert_null(strstr(buf, "{\"step\":3,"));
    assert_non_null(strstr(buf, "event: end\ndata: {\"written\":2,\"missing\":3}\n\n"));
    free(buf);
}

/* The client leaves a stream that has nothing to say: whoever feeds it hears of that. */
static void who_feeds_hears_that_the_client_left(void **state)
{
    struct fixture *f = *state;
    char buf[8192] = "";
    int fd = dial_unix(f);
    static const char request[] = "GET /silent HTTP/1.1\r\nHost: localhost\r\n\r\n";
    say(fd, request, strlen(request));
    assert_true(hear(fd, buf, sizeof buf, "text/event-stream"));
    close(fd);
    await_held(f);
}

static void a_stream_goes_on_where_it_was_left(void **state)
{
    struct fixture *f = *state;
    char buf[8192] = "";
    for (int i = 0; i < 3; i++)
        event_log_publish(f->events, 4, "step", i == 2 ? "{\"third\":1}" : "{\"early\":1}");
    event_log_publish(f->events, 4, "end", "{}");
    ask(dial_unix(f), "GET /events?job=4 HTTP/1.1\r\n" HOST "Last-Event-ID: 2\r\n\r\n", buf, sizeof buf);
    assert_null(strstr(buf, "early"));
    assert_non_null(strstr(buf, "third"));
    assert_non_null(strstr(buf, "event: end"));
}

static void many_streams_hear_every_event(void **state)
{
    enum { CLIENTS = 20, EVENTS = 50 };
    struct fixture *f = *state;
    int fds[CLIENTS];
    static const char request[] = "GET /events HTTP/1.1\r\n" HOST "\r\n";
    for (int i = 0; i < CLIENTS; i++) {
        char buf[4096] = "";
        fds[i] = dial_tcp(f);
        say(fds[i], request, strlen(request));
        assert_true(hear(fds[i], buf, sizeof buf, "retry:"));
    }
    for (int e = 0; e < EVENTS; e++)
        event_log_publish(f->events, 0, "node", e == EVENTS - 1 ? "{\"final\":1}" : "{}");
    for (int i = 0; i < CLIENTS; i++) {
        char buf[16384] = "";
        int seen = 0;
        assert_true(hear(fds[i], buf, sizeof buf, "final"));
        for (const char *p = buf; (p = strstr(p, "event: node")); p++)
            seen++;
        assert_int_equal(seen, EVENTS);
        close(fds[i]);
    }
}

/* As many dashboards as there may be in an office, all behind one tunnel. */
/* What comes at 200 events a second is sent in few pieces, and none of it is lost. */
static void events_of_all_jobs_come_together(void **state)
{
    enum { CROWD = 20 };
    struct fixture *f = *state;
    char buf[8192] = "", json[32], last[40];
    int fd = dial_unix(f);
    static const char request[] = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    say(fd, request, strlen(request));
    assert_true(hear(fd, buf, sizeof buf, "retry:"));
    event_log_publish(f->events, 1, "step", "{\"n\":0}");
    assert_true(hear(fd, buf, sizeof buf, "{\"n\":0}\n\n"));
    struct instant begun = clock_now();
    for (int i = 1; i <= CROWD; i++) {
        poll(NULL, 0, 5);
        snprintf(json, sizeof json, "{\"n\":%d}", i);
        event_log_publish(f->events, 1, "step", json);
    }
    snprintf(last, sizeof last, "{\"n\":%d}\n\n", CROWD);
    assert_true(hear(fd, buf, sizeof buf, last));
    size_t pieces = 0, events = 0;
    for (const char *p = buf; (p = strstr(p, "\nevent: step")); p++)
        events++;
    for (const char *p = buf; (p = strstr(p, "\r\nid: ")); p++) /* begins a chunk */
        pieces++;
    assert_int_equal(events, 1 + CROWD);
    assert_in_range(pieces, 1, 3 + clock_since_us(clock_now(), begun) / 200000);
    close(fd);
}

static void two_hundred_dashboards_leave_room(void **state)
{
    enum { CLIENTS = 200 };
    struct fixture *f = *state;
    int fds[CLIENTS];
    static const char request[] = "GET /events HTTP/1.1\r\n" HOST "\r\n";
    for (int i = 0; i < CLIENTS; i++) {
        char buf[4096] = "";
        fds[i] = dial_tcp(f);
        say(fds[i], request, strlen(request));
        assert_true(hear(fds[i], buf, sizeof buf, "retry:"));
    }
    expect(dial_tcp(f), "GET /alive HTTP/1.1\r\n" HOST "\r\n", "200", "GET /alive");
    event_log_publish(f->events, 0, "node", "{\"final\":1}");
    for (int i = 0; i < CLIENTS; i++) {
        char buf[4096] = "";
        assert_true(hear(fds[i], buf, sizeof buf, "final"));
        close(fds[i]);
    }
}

/* More than may connect, and none of them asks anything: the oldest make way, those who ask are
 * answered, and a stream stays. */
static void silent_connections_make_way(void **state)
{
    enum { CLIENTS = 480 };
    struct fixture *f = *state;
    static int fds[CLIENTS];
    static const char request[] = "GET /events HTTP/1.1\r\n" HOST "\r\n", half[] = "GET / HT";
    char buf[4096] = "", ended[64] = "";
    int stream = dial_tcp(f);
    say(stream, request, strlen(request));
    assert_true(hear(stream, buf, sizeof buf, "retry:"));
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = dial_tcp(f);
        say(fds[i], half, i % 2 ? strlen(half) : 0);
    }
    expect(dial_tcp(f), "GET /alive HTTP/1.1\r\n" HOST "\r\n", "200", "GET /alive");
    assert_false(
        hear(fds[0], ended, sizeof ended, NULL)); /* ended by the server, long before its time was over */
    event_log_publish(f->events, 0, "node", "{\"final\":1}");
    assert_true(hear(stream, buf, sizeof buf, "final"));
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    close(stream);
}

/* Each of these would hold its place for ever by sending a byte now and then. */
static void slow_clients_are_cut_off(void **state)
{
    struct fixture *f = *state;
    static const char headers[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static const char body[] = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n";
    char buf[2][4096] = {"", ""};
    int fds[2] = {dial_tcp(f), dial_unix(f)};
    say(fds[1], body, strlen(body));
    for (size_t i = 0; i < strlen(headers) && i < 40; i++) {
        say(fds[0], headers + i, 1);
        say(fds[1], "x", 1);
        struct pollfd p = {.fd = fds[0], .events = POLLIN};
        if (poll(&p, 1, DEADLINE_MS / 10) == 1)
            break;
    }
    /* Ended by the server, without an answer. */
    for (int i = 0; i < 2; i++) {
        assert_false(hear(fds[i], buf[i], sizeof buf[i], NULL));
        assert_null(strstr(buf[i], "200"));
        close(fds[i]);
    }
    expect(dial_tcp(f), "GET /alive HTTP/1.1\r\n" HOST "\r\n", "200", "GET /alive");
}

/* It takes a byte of its answer now and then, and would keep all of it in memory. */
static void who_takes_its_answer_slowly_is_cut_off(void **state)
{
    struct fixture *f = *state;
    int fd = dial_unix(f);
    static const char request[] = "GET /large HTTP/1.1\r\n" HOST "\r\n";
    struct instant begun = clock_now();
    struct pollfd p = {.fd = fd};
    char byte;
    say(fd, request, strlen(request));
    while (poll(&p, 1, DEADLINE_MS / 10) == 0) {
        if (clock_since_us(clock_now(), begun) > PATIENCE_MS * 1000)
            fail_msg("it holds its answer of %d bytes for ever", LARGE);
        assert_int_equal(read(fd, &byte, 1), 1);
    }
    assert_true(p.revents & POLLHUP);
    close(fd);
}

/* One address holds ten thousand connections, or tries to: it has taken its own share, and others
 * are served. */
static void ten_thousand_connections_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct rlimit before, wide;
    getrlimit(RLIMIT_NOFILE, &before);
    wide = (struct rlimit){before.rlim_max, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &wide);
    size_t n = before.rlim_max > 10400 ? 10000 : (size_t)before.rlim_max - 400;
    int *fds = calloc(n, sizeof *fds);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(http_port(f->http)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_non_null(fds);
    for (size_t i = 0; i < n; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_true(fds[i] >= 0);
        connect(fds[i], (struct sockaddr *)&a, sizeof a);
    }
    expect(dial_unix(f), "GET /alive HTTP/1.1\r\n" HOST "\r\n", "200", "GET /alive");
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    free(fds);
    setrlimit(RLIMIT_NOFILE, &before);
    /* The server takes note of those ends one by one; until it has, it closes what comes. */
    char buf[4096] = "";
    while (!strstr(buf, "GET /after"))
        ask(dial_tcp(f), "GET /after HTTP/1.1\r\n" HOST "\r\n", buf, sizeof buf);
}

static void stopping_answers_who_waits_and_ends_streams(void **state)
{
    struct fixture *f = *state;
    char stream[4096] = "", waiting[4096] = "";
    int fd_stream = dial_unix(f), fd_waiting = dial_tcp(f);
    static const char events[] = "GET /events HTTP/1.1\r\n" HOST "\r\n",
                      hold[] = "GET /hold HTTP/1.1\r\n" HOST "\r\n";
    say(fd_stream, events, strlen(events));
    assert_true(hear(fd_stream, stream, sizeof stream, "retry:"));
    say(fd_waiting, hold, strlen(hold));
    await_held(f);
    stop(f);
    hear(fd_stream, stream, sizeof stream, NULL);
    hear(fd_waiting, waiting, sizeof waiting, NULL);
    close(fd_stream);
    close(fd_waiting);
    /* Too late for the client, but the owner of the call still ends it. */
    http_reply(f->held, 200, "text/plain", "late", 4);
}

static void a_client_that_left_is_no_harm(void **state)
{
    struct fixture *f = *state;
    int fd = dial_tcp(f);
    static const char hold[] = "GET /hold HTTP/1.1\r\n" HOST "\r\n";
    say(fd, hold, strlen(hold));
    await_held(f);
    close(fd);
    http_reply(f->held, 200, "text/plain", "nobody hears", 12);
    expect(dial_tcp(f), "GET /alive HTTP/1.1\r\n" HOST "\r\n", "200", "GET /alive");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_reach_the_handler, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_connection_serves_many_requests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changing_over_tcp_needs_the_token, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_ticket_becomes_a_session, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_hosts_and_origins_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_large_body_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_body_without_the_token_is_not_awaited, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_bodies_together_have_a_budget, set_up_tight, tear_down),
        cmocka_unit_test_setup_teardown(events_stream_until_the_job_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_fed_is_sent_as_it_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(steps_that_do_not_fit_are_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_feeds_hears_that_the_client_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stream_goes_on_where_it_was_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_hundred_dashboards_leave_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(silent_connections_make_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_streams_hear_every_event, set_up, tear_down),
        cmocka_unit_test_setup_teardown(events_of_all_jobs_come_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slow_clients_are_cut_off, set_up_hasty, tear_down),
        cmocka_unit_test_setup_teardown(who_takes_its_answer_slowly_is_cut_off, set_up_hasty, tear_down),
        cmocka_unit_test_setup_teardown(ten_thousand_connections_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopping_answers_who_waits_and_ends_streams, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_left_is_no_harm, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
