/* SPDX-License-Identifier: MIT
 *
 * Clients hand in files that they opened, over a real socket: what is taken, what is refused, and
 * that no descriptor stays with the daemon in any case. */
#include "tests/unit/daemon/ringd/http/http_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>

#include "daemon/common/ipc.h"
#include "daemon/ringd/api/loan_desk.h"
#include "daemon/ringd/ledger.h"
#include "daemon/ringd/job/loan.h"

enum { SOON_MS = 200 };

struct world {
    struct fixture f;
    struct ledger *ledger;
    struct loan_book *book;
    struct loan_desk *desk;
    struct loan *claimed; /* of the last claim; loop thread */
};

/* A claim is answered with the number of descriptors, and the text in the first. */
static void claim(struct world *w, struct http_call *call)
{
    size_t n = 0;
    char text[64] = "", answer[128];
    const char *ticket = http_query(call, "ticket");
    struct loan *loan = loan_desk_claim(w->desk, ticket ? ticket : "");
    const int *fds = loan ? loan_fds(loan, &n) : NULL;
    if (n && pread(fds[0], text, sizeof text - 1, 0) < 0)
        strcpy(text, "?");
    snprintf(answer, sizeof answer, "claimed %zu %s.", n, text);
    loan_drop(loan);
    http_reply(call, 200, "text/plain", answer, strlen(answer));
}

static void serve(void *owner, struct http_call *call)
{
    struct world *w = owner;
    if (!strcmp(http_path(call), "/v1/loans"))
        loan_desk_serve(w->desk, call);
    else if (!strcmp(http_path(call), "/claim"))
        claim(w, call);
    else
        echo(call);
}

static int open_world_with(void **state, unsigned hear_ms, unsigned keep_ms)
{
    struct world *w = calloc(1, sizeof *w);
    struct fixture *f = &w->f;
    struct err err;
    strcpy(f->dir, "/tmp/ringd-loan-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/sock", f->dir);
    f->base = event_base_new();
    f->events = event_log_new(64, SIZE_MAX);
    assert_int_equal(mailbox_new(&f->box, f->base), 0);
    w->ledger = ledger_new();
    w->book = loan_book_new(w->ledger, w->f.dir);
    w->desk = loan_desk_new(&(struct loan_desk_setup){
        .base = f->base, .mailbox = f->box, .book = w->book, .hear_ms = hear_ms, .keep_ms = keep_ms});
    struct http_setup setup = {.base = f->base,
                               .mailbox = f->box,
                               .events = f->events,
                               .unix_path = f->path,
                               .tcp_listen = "127.0.0.1:0",
                               .token = "sesame",
                               .handle = serve,
                               .owner = w};
    if (http_start(&f->http, &setup, &err))
        fail_msg("%s", err.text);
    pthread_create(&f->loop, NULL, run_loop, f);
    *state = w;
    return 0;
}

static int open_world(void **state)
{
    return open_world_with(state, 0, 0);
}

static int open_hasty_world(void **state)
{
    return open_world_with(state, SOON_MS, SOON_MS);
}

static int close_world(void **state)
{
    struct world *w = *state;
    stop(&w->f);
    loan_desk_free(w->desk);
    loan_book_free(w->book);
    ledger_free(w->ledger);
    mailbox_free(w->f.box);
    event_log_free(w->f.events);
    event_base_free(w->f.base);
    rmdir(w->f.dir);
    free(w);
    return 0;
}

/* --- a client --------------------------------------------------------------------------------- */

static int file_with(const char *text, int flags)
{
    char path[] = "/tmp/ringd-loan-file-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    int own = open(path, flags | O_CLOEXEC);
    close(fd);
    unlink(path);
    assert_true(own >= 0);
    return own;
}

static void keep_fds(void *owner)
{
    (void)owner;
}

static void send_fds(int sock, const int *fds, size_t n)
{
    struct ipc_frame *frame;
    assert_int_equal(ipc_frame_new_fds(&frame, fds, n, keep_fds, NULL), 0);
    assert_int_equal(ipc_frame_push(frame, sock), 0);
    ipc_frame_free(frame);
}

static int begin(struct world *w)
{
    static const char request[] = "POST /v1/loans HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "
                                  "ringd-loan\r\nContent-Length: 0\r\n\r\n";
    char head[1024] = "";
    int sock = dial_unix(&w->f);
    say(sock, request, sizeof request - 1);
    assert_true(hear(sock, head, sizeof head, "\r\n\r\n"));
    assert_ptr_equal(strstr(head, "HTTP/1.1 101 "), head);
    assert_non_null(strstr(head, "Upgrade: ringd-loan"));
    return sock;
}

/* One line, and then the end. */
static void answer_of(int sock, char *ret, size_t size)
{
    ret[0] = '\0';
    assert_false(hear(sock, ret, size, NULL));
    assert_non_null(strchr(ret, '\n'));
    close(sock);
}

static void refused(int sock, const char *why)
{
    char answer[2048];
    answer_of(sock, answer, sizeof answer);
    if (!strstr(answer, "\"error\"") || !strstr(answer, why))
        fail_msg("not \"%s\": %s", why, answer);
}

static void ticket_of(int sock, char ret[64])
{
    char answer[1024];
    answer_of(sock, answer, sizeof answer);
    json_t *json = json_loads(answer, 0, NULL);
    const char *ticket = json_string_value(json_object_get(json, "loan"));
    if (!ticket)
        fail_msg("no ticket: %s", answer);
    snprintf(ret, 64, "%s", ticket);
    json_decref(json);
}

static void ask_claim(struct world *w, const char *ticket, const char *want)
{
    char request[256], answer[1024] = "";
    int sock = dial_unix(&w->f);
    snprintf(request, sizeof request, "GET /claim?ticket=%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
             ticket);
    say(sock, request, strlen(request));
    hear(sock, answer, sizeof answer, NULL);
    if (!strstr(answer, want))
        fail_msg("not \"%s\": %s", want, answer);
    close(sock);
}

/* How many descriptors this process has of files that no path leads to: those of file_with. */
static size_t count_files(void)
{
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *e; (e = readdir(dir));) {
        char link[256], path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%.20s", e->d_name);
        ssize_t got = readlink(path, link, sizeof link - 1);
        link[got > 0 ? got : 0] = '\0';
        n += strstr(link, "ringd-loan-file") != NULL;
    }
    closedir(dir);
    return n;
}

/* Descriptors are closed on a thread of their own. */
static void await_files(size_t n)
{
    size_t have = count_files();
    for (int i = 0; i < PATIENCE_MS && have != n; i++) {
        poll(NULL, 0, 1);
        have = count_files();
    }
    assert_int_equal(have, n);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void files_that_were_handed_in_are_claimed_once(void **state)
{
    struct world *w = *state;
    char ticket[64];
    const int fds[] = {file_with("one", O_RDONLY), file_with("two", O_RDONLY)};
    const char line[] = "{\"files\":[\"/m/config.json\",\"/rows\"],\"folders\":[\"/m\"]}\n";
    int sock = begin(w);
    send_fds(sock, fds, 2);
    say(sock, line, sizeof line - 1);
    ticket_of(sock, ticket);
    assert_int_equal(strlen(ticket), 32);
    ask_claim(w, "0123", "claimed 0");
    ask_claim(w, ticket, "claimed 2 one");
    ask_claim(w, ticket, "claimed 0");
    await_files(2); /* our own */
    close(fds[0]);
    close(fds[1]);
}

static void what_nobody_claims_is_given_back(void **state)
{
    struct world *w = *state;
    const int fd = file_with("late", O_RDONLY);
    const char line[] = "{\"files\":[\"/rows\"],\"folders\":[]}\n";
    char ticket[64];
    int sock = begin(w);
    send_fds(sock, &fd, 1);
    say(sock, line, sizeof line - 1);
    ticket_of(sock, ticket);
    await_files(1);
    ask_claim(w, ticket, "claimed 0");
    close(fd);
}

static void a_client_that_says_nothing_is_not_waited_for(void **state)
{
    struct world *w = *state;
    const int fd = file_with("mute", O_RDONLY);
    int sock = begin(w);
    send_fds(sock, &fd, 1);
    refused(sock, "did not come in time");
    await_files(1);
    close(fd);
}

static void a_client_that_leaves_takes_its_files_along(void **state)
{
    struct world *w = *state;
    const int fd = file_with("gone", O_RDONLY);
    char answer[64] = "";
    int sock = begin(w);
    send_fds(sock, &fd, 1);
    shutdown(sock, SHUT_WR);
    assert_false(hear(sock, answer, sizeof answer, NULL)); /* the desk has seen it leave */
    assert_string_equal(answer, "");
    await_files(1);
    close(sock);
    close(fd);
}

static void too_many_are_refused(void **state)
{
    struct world *w = *state;
    int fds[IPC_FDS_MAX];
    fds[0] = file_with("many", O_RDONLY);
    for (size_t i = 1; i < IPC_FDS_MAX; i++)
        fds[i] = fds[0];
    int sock = begin(w);
    send_fds(sock, fds, IPC_FDS_MAX);
    send_fds(sock, fds, 1);
    refused(sock, "at most 253");
    await_files(1);
    close(fds[0]);
}

/* The kernel hands over as many as fit, and says that some are lost (MSG_CTRUNC). */
static void descriptors_that_find_no_room_are_refused(void **state)
{
    struct world *w = *state;
    struct rlimit before, few;
    int fds[64], highest = dup(0);
    fds[0] = file_with("few", O_RDONLY);
    for (size_t i = 1; i < 64; i++)
        fds[i] = fds[0];
    int sock = begin(w);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    close(highest);
    few.rlim_cur = (rlim_t)highest + 32;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    send_fds(sock, fds, 64);
    refused(sock, "at most 253");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    await_files(1);
    close(fds[0]);
}

static void only_files_to_read_are_taken(void **state)
{
    struct world *w = *state;
    static const char line[] = "{\"files\":[\"/rows\"]}\n";
    const int wrong[] = {open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), file_with("written", O_RDWR),
                         open("/dev/null", O_RDONLY | O_CLOEXEC), open("/etc/passwd", O_PATH | O_CLOEXEC)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int sock = begin(w);
        send_fds(sock, &wrong[i], 1);
        say(sock, line, sizeof line - 1);
        refused(sock, "/rows is no regular file that is open for reading alone");
        close(wrong[i]);
    }
    await_files(0);
}

/* As a client could that runs as the daemon's user. */
static void keys_of_the_daemon_are_not_taken(void **state)
{
    struct world *w = *state;
    static const char line[] = "{\"files\":[\"/rows\"]}\n";
    char path[128];
    snprintf(path, sizeof path, "%s/identity", w->f.dir);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int sock = begin(w);
    send_fds(sock, &fd, 1);
    say(sock, line, sizeof line - 1);
    refused(sock, "/rows lies in ringd's own folder");
    close(fd);
    unlink(path);
}

static void a_line_has_to_name_each_file(void **state)
{
    struct world *w = *state;
    static const char *const lines[] = {"{\"files\":[]}\n",
                                        "{\"files\":[\"/a\",\"/b\"]}\n",
                                        "{\"files\":[\"relative\"]}\n",
                                        "{\"files\":[7]}\n",
                                        "{\"files\":[\"/a\"],\"folders\":[\"b\"]}\n",
                                        "[]\n",
                                        "nonsense\n"};
    const int fd = file_with("named", O_RDONLY);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        int sock = begin(w);
        send_fds(sock, &fd, 1);
        say(sock, lines[i], strlen(lines[i]));
        refused(sock, "an absolute path for each");
    }
    await_files(1);
    close(fd);
}

static void descriptors_on_other_routes_are_closed(void **state)
{
    struct world *w = *state;
    static const char *const requests[] = {
        "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "POST /v1/loans HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"};
    const int fd = file_with("astray", O_RDONLY);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        char answer[2048] = "", request[256];
        union {
            char buf[CMSG_SPACE(sizeof fd)];
            struct cmsghdr align;
        } control = {0};
        struct iovec iov = {request, strlen(requests[i])};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.buf,
                             .msg_controllen = sizeof control.buf};
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
        int sock = dial_unix(&w->f);
        memcpy(request, requests[i], iov.iov_len);
        assert_int_equal(sendmsg(sock, &msg, 0), iov.iov_len);
        hear(sock, answer, sizeof answer, NULL);
        if (!strstr(answer, i == 1 ? "HTTP/1.1 400" : "HTTP/1.1 200"))
            fail_msg("request %zu: %s", i, answer);
        close(sock);
    }
    assert_int_equal(count_files(), 1);
    close(fd);
}

static void nothing_is_handed_in_over_tcp(void **state)
{
    struct world *w = *state;
    static const char request[] =
        "POST /v1/loans HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: ringd-loan\r\n"
        "Authorization: Bearer sesame\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n";
    char answer[2048] = "";
    int sock = dial_tcp(&w->f);
    say(sock, request, sizeof request - 1);
    assert_true(hear(sock, answer, sizeof answer, "}}"));
    assert_non_null(strstr(answer, "HTTP/1.1 403"));
    close(sock);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
#define HASTY(name) cmocka_unit_test_setup_teardown(name, open_hasty_world, close_world)
    const struct CMUnitTest tests[] = {
        TEST(files_that_were_handed_in_are_claimed_once),
        HASTY(what_nobody_claims_is_given_back),
        HASTY(a_client_that_says_nothing_is_not_waited_for),
        TEST(a_client_that_leaves_takes_its_files_along),
        TEST(too_many_are_refused),
        TEST(descriptors_that_find_no_room_are_refused),
        TEST(only_files_to_read_are_taken),
        TEST(keys_of_the_daemon_are_not_taken),
        TEST(a_line_has_to_name_each_file),
        TEST(descriptors_on_other_routes_are_closed),
        TEST(nothing_is_handed_in_over_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
