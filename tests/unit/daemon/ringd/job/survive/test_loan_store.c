/* SPDX-License-Identifier: MIT
 *
 * Loans over a restart, with a socket in systemd's place that keeps what it gets. The next life of
 * the daemon is a child, whose descriptors from 3 on are those that were kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/survive/loan_store.h"

enum { KEPT_MAX = 1200, FIRST_FD = 3, JOB = 7 };

struct world {
    char dir[64], socket[96];
    struct event_base *base;
    struct loan_book *book;
    struct loan_store *store;
    int sock; /* systemd's */
    struct {
        char name[64];
        int fd;
    } kept[KEPT_MAX];
    size_t n;
    unsigned removed;
};

/* --- systemd ---------------------------------------------------------------------------------- */

static void forget(struct world *w, const char *name)
{
    w->removed++;
    for (size_t i = 0; i < w->n;)
        if (!strcmp(w->kept[i].name, name)) {
            close(w->kept[i].fd);
            w->kept[i] = w->kept[--w->n];
        } else {
            i++;
        }
}

/* One message, as service_add_fd_store and service_remove_fd_store take it. False: none is here. */
static bool hear_one(struct world *w)
{
    char text[512] = "", name[64] = "";
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } beside = {.room = ""};
    struct iovec io = {text, sizeof text - 1};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = beside.room, .msg_controllen = sizeof beside.room};
    if (recvmsg(w->sock, &m, MSG_DONTWAIT) <= 0)
        return false;
    const char *at = strstr(text, "FDNAME=");
    assert_non_null(at);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 7, "\n"), at + 7);
    if (!strncmp(text, "FDSTOREREMOVE=1\n", 16)) {
        assert_int_equal(m.msg_controllen, 0);
        forget(w, name);
        return true;
    }
    assert_int_equal(strncmp(text, "FDSTORE=1\nFDPOLL=0\n", 19), 0);
    assert_int_equal(beside.head.cmsg_type, SCM_RIGHTS);
    assert_true(w->n < KEPT_MAX);
    memcpy(&w->kept[w->n].fd, CMSG_DATA(&beside.head), sizeof(int));
    strcpy(w->kept[w->n++].name, name);
    return true;
}

static void hear_all(struct world *w)
{
    while (hear_one(w))
        ;
}

static int kept(const struct world *w, const char *name)
{
    for (size_t i = 0; i < w->n; i++)
        if (!strcmp(w->kept[i].name, name))
            return w->kept[i].fd;
    return -1;
}

/* --- the daemon ------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(w->dir, "/tmp/ringd-loans-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->socket, sizeof w->socket, "%s/notify", w->dir);
    strcpy(a.sun_path, w->socket);
    w->sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(w->sock, (struct sockaddr *)&a, sizeof a), 0);
    setenv("NOTIFY_SOCKET", w->socket, 1);
    unsetenv("LISTEN_FDS");
    w->base = event_base_new();
    w->book = loan_book_new(NULL, "/nowhere");
    w->store = loan_store_new(w->base, w->book, 0);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char command[100];
    loan_store_free(w->store);
    loan_book_free(w->book);
    event_base_free(w->base);
    while (w->n)
        close(w->kept[--w->n].fd);
    close(w->sock);
    unsetenv("NOTIFY_SOCKET");
    snprintf(command, sizeof command, "rm -r %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

/* Of so many files, each of which has its number in it. */
static struct loan *lend(struct world *w, size_t n)
{
    json_t *files = json_array();
    int fds[LOAN_FILES_MAX];
    struct loan *loan;
    struct err err;
    for (size_t i = 0; i < n; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%zu", w->dir, i);
        FILE *f = fopen(path, "we");
        fprintf(f, "%zu", i);
        fclose(f);
        fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        json_array_append_new(files, json_string(path));
    }
    json_t *about = json_pack("{s:o}", "files", files);
    if (loan_new(&loan, w->book, about, fds, n, &err))
        fail_msg("%s", err.text);
    json_decref(about);
    return loan;
}

/* Another life, in a child: it gets what is kept. Returns what `live` says. */
static int next_life(struct world *w, const json_t *about,
                     int (*live)(struct loan_store *s, const json_t *about))
{
    fflush(NULL);
    const pid_t child = fork();
    int status = 0;
    if (!child) {
        char names[8192] = "", number[24];
        size_t len = 0;
        for (size_t i = 0; i < w->n; i++) /* out of the way of those below */
            w->kept[i].fd = fcntl(w->kept[i].fd, F_DUPFD, 500);
        for (size_t i = 0; i < w->n; i++) {
            if (dup2(w->kept[i].fd, FIRST_FD + (int)i) < 0)
                _exit(90);
            len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", i ? ":" : "", w->kept[i].name);
        }
        snprintf(number, sizeof number, "%zu", w->n);
        setenv("LISTEN_FDS", number, 1);
        setenv("LISTEN_FDNAMES", names, 1);
        snprintf(number, sizeof number, "%d", (int)getpid());
        setenv("LISTEN_PID", number, 1);
        struct loan_store *s = loan_store_new(event_base_new(), w->book, 0);
        const int r = live(s, about);
        loan_store_free(s);
        _exit(r);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    hear_all(w);
    return WEXITSTATUS(status);
}

/* 0: the job has its files, each in its place. */
static int take_back(struct loan_store *s, const json_t *about)
{
    size_t n;
    struct loan *loan = loan_store_take(s, JOB, about);
    loan_store_tidy(s);
    if (!loan)
        return 1;
    const int *fds = loan_fds(loan, &n);
    for (size_t i = 0; i < n; i++) {
        char text[16] = "";
        if (pread(fds[i], text, sizeof text - 1, 0) <= 0 || strtoul(text, NULL, 10) != i)
            return 2;
    }
    return n == json_array_size(json_object_get(about, "files")) ? 0 : 3;
}

static int take_nothing(struct loan_store *s, const json_t *about)
{
    (void)about;
    loan_store_tidy(s);
    for (int fd = FIRST_FD; fd < FIRST_FD + 3; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return 1;
    return 0;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void files_of_a_job_come_back_in_their_places(void **state)
{
    struct world *w = *state;
    struct loan *loan = lend(w, 3);
    loan_store_add(w->store, JOB, loan);
    hear_all(w);
    assert_int_equal(w->n, 3);
    assert_true(kept(w, "loan-7-2") >= 0);
    for (size_t i = 0; i < 2; i++) { /* in any order, and as often as need be */
        assert_int_equal(next_life(w, loan_about(loan), take_back), 0);
        assert_int_equal(w->removed, 0);
        const int fd = w->kept[0].fd;
        w->kept[0].fd = w->kept[2].fd;
        w->kept[2].fd = fd;
        char name[64];
        strcpy(name, w->kept[0].name);
        strcpy(w->kept[0].name, w->kept[2].name);
        strcpy(w->kept[2].name, name);
    }
    loan_store_remove(w->store, JOB, loan);
    hear_all(w);
    assert_int_equal(w->n, 0);
    loan_drop(loan);
}

/* As when the store was full: a job has all of its files or none. */
static void a_job_of_which_a_file_is_missing_gets_none(void **state)
{
    struct world *w = *state;
    struct loan *loan = lend(w, 3);
    loan_store_add(w->store, JOB, loan);
    hear_all(w);
    forget(w, "loan-7-1");
    assert_int_equal(next_life(w, loan_about(loan), take_back), 1);
    assert_int_equal(w->n, 0);
    loan_drop(loan);
}

static void another_file_of_that_name_is_refused(void **state)
{
    struct world *w = *state;
    struct loan *loan = lend(w, 2);
    loan_store_add(w->store, JOB, loan);
    hear_all(w);
    close(w->kept[1].fd);
    w->kept[1].fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_int_equal(next_life(w, loan_about(loan), take_back), 1);
    assert_int_equal(w->n, 0);
    loan_drop(loan);
}

static void what_no_job_claims_is_closed(void **state)
{
    struct world *w = *state;
    struct loan *loan = lend(w, 1);
    loan_store_add(w->store, JOB, loan);
    loan_store_add(w->store, JOB + 1, loan);
    hear_all(w);
    strcpy(w->kept[w->n].name, "stored");
    w->kept[w->n++].fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(next_life(w, loan_about(loan), take_nothing), 0);
    assert_int_equal(w->n, 0);
    loan_drop(loan);
}

/* Its socket takes a few messages at once; the rest follow as it reads, in their order. */
static void systemd_that_is_slow_gets_all_of_it(void **state)
{
    struct world *w = *state;
    const size_t n = LOAN_FILES_MAX;
    struct loan *loan = lend(w, n);
    for (uint64_t job = 1; job <= 4; job++)
        loan_store_add(w->store, job, loan);
    loan_store_remove(w->store, 1, loan);
    assert_true(hear_one(w));
    while (w->n < 3 * n || w->removed < n) {
        event_base_loop(w->base, EVLOOP_NONBLOCK);
        hear_all(w);
    }
    assert_int_equal(kept(w, "loan-1-0"), -1);
    assert_true(kept(w, "loan-4-252") >= 0);
    loan_drop(loan);
}

static void systemd_that_does_not_read_is_given_up(void **state)
{
    struct world *w = *state;
    struct loan *loan = lend(w, LOAN_FILES_MAX);
    loan_store_free(w->store);
    w->store = loan_store_new(w->base, w->book, 1);
    for (uint64_t job = 1; job <= 40; job++)
        loan_store_add(w->store, job, loan);
    event_base_dispatch(w->base); /* nothing is left to wait for */
    hear_all(w);
    assert_true(w->n < KEPT_MAX);
    loan_drop(loan);
}

static void without_systemd_nothing_is_kept(void **state)
{
    struct world *w = *state;
    struct loan *loan = lend(w, 1);
    unsetenv("NOTIFY_SOCKET");
    struct loan_store *s = loan_store_new(w->base, w->book, 0);
    loan_store_add(s, JOB, loan);
    loan_store_remove(s, JOB, loan);
    loan_store_add(NULL, JOB, loan);
    assert_null(loan_store_take(s, JOB, loan_about(loan)));
    loan_store_tidy(s);
    loan_store_free(s);
    assert_false(hear_one(w));
    loan_drop(loan);
}

#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(files_of_a_job_come_back_in_their_places),
        IN_WORLD(a_job_of_which_a_file_is_missing_gets_none),
        IN_WORLD(another_file_of_that_name_is_refused),
        IN_WORLD(what_no_job_claims_is_closed),
        IN_WORLD(systemd_that_is_slow_gets_all_of_it),
        IN_WORLD(systemd_that_does_not_read_is_given_up),
        IN_WORLD(without_systemd_nothing_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
