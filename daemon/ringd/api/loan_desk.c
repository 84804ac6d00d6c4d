/* SPDX-License-Identifier: MIT
 *
 * Owns clients that are handing in (guests), and what they handed in until a job claims it. */
#include "daemon/ringd/api/loan_desk.h"

#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/timer.h"

enum { GUESTS_MAX = 16, TICKET_BYTES = 16, TICKET_ROOM = 2 * TICKET_BYTES + 1, READ = 65536 };

/* A client that is handing in. */
struct desk_guest {
    LIST_ENTRY(desk_guest) next;
    struct loan_desk *desk; /* borrowed */
    int fd;                 /* owned */
    struct event *on_read;  /* owned */
    struct timer *late;     /* owned */
    char *text;             /* owned: what has come of the line */
    size_t n, n_fds;
    int fds[LOAN_FILES_MAX]; /* owned */
};

/* What was handed in. */
struct desk_loan {
    LIST_ENTRY(desk_loan) next;
    struct loan_desk *desk; /* borrowed */
    char ticket[TICKET_ROOM];
    struct loan *loan;    /* held */
    struct timer *expiry; /* owned */
};

struct loan_desk {
    struct loan_desk_setup setup;
    LIST_HEAD(, desk_guest) guests;
    LIST_HEAD(, desk_loan) kept;
    size_t n_guests, n_kept;
    pthread_mutex_t lock;
    int arrived[GUESTS_MAX]; /* owned: from the server's threads, under lock as the next */
    size_t n_arrived;
};

/* --- what was handed in ----------------------------------------------------------------------- */

static void kept_free(struct desk_loan *k)
{
    LIST_REMOVE(k, next);
    k->desk->n_kept--;
    timer_free(k->expiry);
    loan_drop(k->loan);
    explicit_bzero(k->ticket, sizeof k->ticket);
    free(k);
}

static struct desk_loan *find(struct loan_desk *desk, const char *ticket)
{
    struct desk_loan *k;
    LIST_FOREACH (k, &desk->kept, next)
        if (!strcmp(k->ticket, ticket))
            return k;
    return NULL;
}

struct loan *loan_desk_claim(struct loan_desk *desk, const char *ticket)
{
    struct desk_loan *k = find(desk, ticket);
    struct loan *loan = k ? loan_hold(k->loan) : NULL;
    if (k)
        kept_free(k);
    return loan;
}

/* Its client never submitted a job. */
static void on_expiry(void *owner)
{
    kept_free(owner);
}

/* Takes the loan over. The ticket is the client's alone: nobody else can use its files. */
static const char *keep(struct loan_desk *desk, struct loan *loan)
{
    uint8_t random[TICKET_BYTES];
    struct desk_loan *k = xcalloc(1, sizeof *k);
    *k = (struct desk_loan){.desk = desk, .loan = loan};
    arc4random_buf(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(k->ticket + 2 * i, 3, "%02x", random[i]);
    k->expiry = timer_new(desk->setup.base, on_expiry, k);
    timer_set_ms(k->expiry, desk->setup.keep_ms);
    LIST_INSERT_HEAD(&desk->kept, k, next);
    desk->n_kept++;
    return k->ticket;
}

/* --- guests ----------------------------------------------------------------------------------- */

static void guest_free(struct desk_guest *g)
{
    LIST_REMOVE(g, next);
    g->desk->n_guests--;
    event_free(g->on_read);
    timer_free(g->late);
    for (size_t i = 0; i < g->n_fds; i++)
        close(g->fds[i]);
    close(g->fd);
    free(g->text);
    free(g);
}

/* Takes the text over. A line is short, and nothing was sent before it: the socket takes it. */
static void say(const struct desk_guest *g, char *text)
{
    char *line = xasprintf("%s\n", text ? text : "{}");
    (void)send(g->fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT);
    free(line);
    free(text);
}

static void refuse(struct desk_guest *g, const char *code, const char *why)
{
    say(g, http_error_text(code, why));
    guest_free(g);
}

static void hand_in(struct desk_guest *g)
{
    struct loan_desk *desk = g->desk;
    struct err err;
    struct loan *loan;
    json_t *about = json_loadb(g->text, g->n, 0, NULL);
    const size_t n_fds = g->n_fds;
    g->n_fds = 0; /* taken by the loan, whatever becomes of it */
    int r = loan_new(&loan, desk->setup.book, about, g->fds, n_fds, &err);
    json_decref(about);
    if (r) {
        refuse(g, r == -ENOBUFS ? "busy" : "bad-request", err.text);
        return;
    }
    json_t *answer =
        json_pack("{s:s s:i}", "loan", keep(desk, loan), "seconds", (int)(desk->setup.keep_ms / 1000));
    say(g, json_dumps(answer, JSON_COMPACT));
    json_decref(answer);
    guest_free(g);
}

/* Takes over what came. False: it was more than there may be, and the guest has gone. */
static bool take_fds(struct desk_guest *g, const int *fds, size_t n, bool is_cut)
{
    const size_t room = LOAN_FILES_MAX - g->n_fds, fits = n < room ? n : room;
    char why[160];
    memcpy(g->fds + g->n_fds, fds, fits * sizeof *fds);
    g->n_fds += fits;
    for (size_t i = fits; i < n; i++)
        close(fds[i]);
    if (fits == n && !is_cut)
        return true;
    snprintf(why, sizeof why, "these are more descriptors than ringd takes: at most %d for a job",
             LOAN_FILES_MAX);
    refuse(g, "too-large", why);
    return false;
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
    struct desk_guest *g = arg;
    int fds[LOAN_FILES_MAX];
    size_t n_fds;
    bool is_cut;
    (void)what;
    g->text = xrealloc(g->text, g->n + READ + 1);
    const ssize_t n = ipc_read_fds(fd, g->text + g->n, READ, MSG_DONTWAIT, fds, &n_fds, &is_cut);
    if (n == -EAGAIN || !take_fds(g, fds, n_fds, is_cut))
        return;
    if (n <= 0) { /* it has left */
        guest_free(g);
        return;
    }
    g->n += (size_t)n;
    if (memchr(g->text + g->n - n, '\n', (size_t)n))
        hand_in(g);
    else if (g->n > LOAN_TEXT_MAX)
        refuse(g, "too-large", "the line that names the files is longer than 1 MiB");
}

static void on_late(void *owner)
{
    refuse(owner, "bad-request", "the line that names the files did not come in time");
}

/* Takes over fd. */
static void welcome(struct loan_desk *desk, int fd)
{
    struct desk_guest *g = xcalloc(1, sizeof *g);
    g->desk = desk;
    g->fd = fd;
    g->on_read = event_new(desk->setup.base, fd, EV_READ | EV_PERSIST, on_read, g);
    g->late = timer_new(desk->setup.base, on_late, g);
    event_add(g->on_read, NULL);
    timer_set_ms(g->late, desk->setup.hear_ms);
    LIST_INSERT_HEAD(&desk->guests, g, next);
    desk->n_guests++;
}

static void on_arrived(void *owner)
{
    struct loan_desk *desk = owner;
    int fds[GUESTS_MAX];
    pthread_mutex_lock(&desk->lock);
    const size_t n = desk->n_arrived;
    memcpy(fds, desk->arrived, n * sizeof *fds);
    desk->n_arrived = 0;
    pthread_mutex_unlock(&desk->lock);
    for (size_t i = 0; i < n; i++)
        welcome(desk, fds[i]);
}

/* The server's thread. */
static void arrive(void *owner, int fd)
{
    struct loan_desk *desk = owner;
    pthread_mutex_lock(&desk->lock);
    const bool fits = desk->n_arrived < GUESTS_MAX;
    if (fits)
        desk->arrived[desk->n_arrived++] = fd;
    pthread_mutex_unlock(&desk->lock);
    if (fits)
        mailbox_post(desk->setup.mailbox, on_arrived, desk);
    else
        close(fd);
}

void loan_desk_serve(struct loan_desk *desk, struct http_call *call)
{
    if (!http_is_local(call))
        http_fail(call, 403, "forbidden", "files are handed in over the Unix socket alone");
    else if (!http_wants(call, "ringd-loan"))
        http_fail(call, 400, "bad-request",
                  "this route wants \"Upgrade: ringd-loan\", and descriptors after it");
    else if (desk->n_guests >= GUESTS_MAX)
        http_fail(call, 503, "busy", "%d clients hand in files: try again in a moment", GUESTS_MAX);
    else
        http_upgrade(call, "ringd-loan", arrive, desk);
}

struct loan_desk *loan_desk_new(const struct loan_desk_setup *setup)
{
    struct loan_desk *desk = xcalloc(1, sizeof *desk);
    desk->setup = *setup;
    desk->setup.hear_ms = setup->hear_ms ? setup->hear_ms : DESK_HEAR_MS;
    desk->setup.keep_ms = setup->keep_ms ? setup->keep_ms : DESK_KEEP_MS;
    LIST_INIT(&desk->guests);
    LIST_INIT(&desk->kept);
    pthread_mutex_init(&desk->lock, NULL);
    return desk;
}

void loan_desk_free(struct loan_desk *desk)
{
    if (!desk)
        return;
    mailbox_forget(desk->setup.mailbox, desk);
    while (desk->n_arrived)
        close(desk->arrived[--desk->n_arrived]);
    while (LIST_FIRST(&desk->guests))
        guest_free(LIST_FIRST(&desk->guests));
    while (LIST_FIRST(&desk->kept))
        kept_free(LIST_FIRST(&desk->kept));
    pthread_mutex_destroy(&desk->lock);
    free(desk);
}
