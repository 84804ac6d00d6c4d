/* SPDX-License-Identifier: MIT
 *
 * Owns the socket to systemd, the messages that it has not taken yet, and descriptors that no job
 * has claimed yet. A message that waits holds its loan, so the queue of loans bounds them all. */
#include "daemon/ringd/job/survive/loan_store.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/systemd.h"
#include "daemon/ringd/timer.h"

enum { NAME_SIZE = 256 };

/* One that systemd handed over. */
struct stored_file {
    char name[NAME_SIZE];
    int fd; /* owned; −1: its job has it */
    bool is_claimed;
};

/* Files on their way to systemd, or names that it is to forget. */
struct store_order {
    STAILQ_ENTRY(store_order) next;
    uint64_t job;
    struct loan *loan; /* held */
    bool removes;
    size_t done;
};

struct loan_store {
    struct loan_book *book; /* borrowed */
    int sock;               /* owned; −1: there is no systemd */
    struct event *writable; /* owned; NULL without a socket */
    struct timer *late;     /* owned: systemd has taken nothing for so long */
    unsigned late_ms;
    struct stored_file *stored; /* owned */
    size_t n_stored;
    STAILQ_HEAD(store_orders, store_order) orders;
};

static void name_of(char ret[NAME_SIZE], uint64_t job, size_t file)
{
    snprintf(ret, NAME_SIZE, "loan-%" PRIu64 "-%zu", job, file);
}

/* --- to systemd ------------------------------------------------------------------------------- */

static void drop_first(struct loan_store *s)
{
    struct store_order *o = STAILQ_FIRST(&s->orders);
    STAILQ_REMOVE_HEAD(&s->orders, next);
    loan_drop(o->loan);
    free(o);
}

/* What is left stays where it is: after a restart the job asks for what is missing. */
static void give_up(struct loan_store *s, const char *why)
{
    const struct store_order *o = STAILQ_FIRST(&s->orders);
    log_warning("systemd does not take the open files of job %" PRIu64 ": %s; if ringd is started again, the "
                "job may wait until `ringctl attach %" PRIu64 "` hands them in",
                o->job, why, o->job);
    while (STAILQ_FIRST(&s->orders))
        drop_first(s);
    timer_stop(s->late);
}

/* 0, −EAGAIN: the rest later; or another negative errno. */
static int push(const struct loan_store *s, struct store_order *o)
{
    size_t n;
    const int *fds = loan_fds(o->loan, &n);
    int r = 0;
    while (o->done < n && !r) {
        char name[NAME_SIZE];
        name_of(name, o->job, o->done);
        r = systemd_store(s->sock, name, o->removes ? -1 : fds[o->done]);
        o->done += !r;
    }
    return r;
}

static void push_all(struct loan_store *s)
{
    int r = 0;
    while (STAILQ_FIRST(&s->orders) && !(r = push(s, STAILQ_FIRST(&s->orders)))) {
        timer_stop(s->late);
        drop_first(s);
    }
    if (r == -EAGAIN) {
        event_add(s->writable, NULL);
        if (!timer_is_pending(s->late))
            timer_set_ms(s->late, s->late_ms);
    } else if (r) {
        give_up(s, strerror(-r));
    }
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    push_all(arg);
}

static void on_late(void *owner)
{
    struct loan_store *s = owner;
    event_del(s->writable);
    give_up(s, "it has not read its socket for a while");
}

static void order(struct loan_store *s, uint64_t job, struct loan *loan, bool removes)
{
    if (!s || s->sock < 0 || !loan)
        return;
    struct store_order *o = xcalloc(1, sizeof *o);
    *o = (struct store_order){.job = job, .loan = loan_hold(loan), .removes = removes};
    const bool is_first = STAILQ_EMPTY(&s->orders);
    STAILQ_INSERT_TAIL(&s->orders, o, next);
    if (is_first)
        push_all(s);
}

void loan_store_add(struct loan_store *s, uint64_t job, struct loan *loan)
{
    order(s, job, loan, false);
}

void loan_store_remove(struct loan_store *s, uint64_t job, struct loan *loan)
{
    order(s, job, loan, true);
}

/* --- from systemd ----------------------------------------------------------------------------- */

static struct stored_file *find(const struct loan_store *s, uint64_t job, size_t file)
{
    char name[NAME_SIZE];
    name_of(name, job, file);
    for (size_t i = 0; i < s->n_stored; i++)
        if (!s->stored[i].is_claimed && !strcmp(s->stored[i].name, name))
            return &s->stored[i];
    return NULL;
}

/* All files of that list, or none. */
static bool claim(struct loan_store *s, uint64_t job, size_t n, int fds[LOAN_FILES_MAX])
{
    for (size_t i = 0; i < n; i++)
        if (!find(s, job, i))
            return false;
    for (size_t i = 0; i < n; i++) {
        struct stored_file *f = find(s, job, i);
        f->is_claimed = true;
        fds[i] = f->fd;
        f->fd = -1;
    }
    return true;
}

struct loan *loan_store_take(struct loan_store *s, uint64_t job, const json_t *about)
{
    const size_t n = json_array_size(json_object_get(about, "files"));
    int fds[LOAN_FILES_MAX];
    struct err err;
    struct loan *loan = NULL;
    if (!s || !n || n > LOAN_FILES_MAX || !claim(s, job, n, fds))
        return NULL;
    if (!loan_new(&loan, s->book, about, fds, n, &err) && !loan_match(loan, about, &err))
        return loan;
    log_warning("the files that systemd kept open for job %" PRIu64 " cannot be used: %s", job, err.text);
    for (size_t i = 0; i < n; i++) {
        char name[NAME_SIZE];
        name_of(name, job, i);
        (void)systemd_store(s->sock, name, -1);
    }
    loan_drop(loan);
    return NULL;
}

/* A name that systemd does not take now is handed over again at the next start. */
void loan_store_tidy(struct loan_store *s)
{
    for (size_t i = 0; s && i < s->n_stored; i++) {
        if (s->stored[i].is_claimed)
            continue;
        close(s->stored[i].fd);
        if (s->sock >= 0)
            (void)systemd_store(s->sock, s->stored[i].name, -1);
    }
    if (s) {
        free(s->stored);
        s->stored = NULL;
        s->n_stored = 0;
    }
}

static void on_stored(void *owner, const char *name, int fd)
{
    struct loan_store *s = owner;
    s->stored = xrealloc(s->stored, (s->n_stored + 1) * sizeof *s->stored);
    struct stored_file *f = &s->stored[s->n_stored++];
    *f = (struct stored_file){.fd = fd};
    snprintf(f->name, sizeof f->name, "%s", name);
}

/* --- opening, closing ------------------------------------------------------------------------- */

struct loan_store *loan_store_new(struct event_base *base, struct loan_book *book, unsigned late_ms)
{
    struct loan_store *s = xcalloc(1, sizeof *s);
    s->book = book;
    s->late_ms = late_ms ? late_ms : STORE_LATE_MS;
    STAILQ_INIT(&s->orders);
    s->late = timer_new(base, on_late, s);
    s->sock = systemd_connect();
    if (s->sock >= 0)
        s->writable = event_new(base, s->sock, EV_WRITE, on_writable, s);
    systemd_stored(on_stored, s);
    return s;
}

void loan_store_free(struct loan_store *s)
{
    if (!s)
        return;
    while (STAILQ_FIRST(&s->orders))
        drop_first(s);
    for (size_t i = 0; i < s->n_stored; i++)
        if (!s->stored[i].is_claimed)
            close(s->stored[i].fd);
    free(s->stored);
    timer_free(s->late);
    if (s->writable)
        event_free(s->writable);
    if (s->sock >= 0)
        close(s->sock);
    free(s);
}
