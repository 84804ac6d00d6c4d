/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/lent_look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/user_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/timer.h"

enum { LIMIT_MS = 10000 };

struct looked_job {
    uint64_t job;
    char **files; /* owned, NULL behind the last */
    char why[600];
};

/* All that is looked at. */
struct looking {
    struct aside_work work;
    struct lent_look *owner; /* borrowed; the loop's alone */
    size_t n;
    struct looked_job *jobs; /* owned; the thread's until they are done */
    atomic_size_t done;      /* so many have been looked at */
    atomic_size_t at;        /* the file that is being opened, of the job after those */
};

struct lent_look {
    struct lent_look_setup setup;
    struct timer *late;      /* owned */
    struct looking *looking; /* the aside's once it has begun; NULL: all has been said */
    bool has_begun;
};

/* --- looking, beside the loop ----------------------------------------------------------------- */

/* As a stage would: not only looked at, for the kernel has more to say than permissions do. */
static bool opens(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void write_why(struct looked_job *j, const char *path, const char *why)
{
    char user[64];
    user_name(user, sizeof user);
    snprintf(j->why, sizeof j->why, "ringd's user %s cannot open %s: %s", user, path, why);
}

static void look_at(struct looking *k, struct looked_job *j)
{
    bool is_open = true;
    for (size_t i = 0; j->files[i] && is_open; i++) {
        atomic_store(&k->at, i);
        is_open = opens(j->files[i]);
        if (!is_open)
            write_why(j, j->files[i], strerror(errno));
    }
}

static void look_at_all(struct aside_work *w)
{
    struct looking *k = (struct looking *)w;
    for (size_t i = 0; i < k->n; i++) {
        look_at(k, &k->jobs[i]);
        atomic_store(&k->at, 0);
        atomic_store(&k->done, i + 1);
    }
}

static void looking_free(struct aside_work *w)
{
    struct looking *k = (struct looking *)w;
    for (size_t i = 0; i < k->n; i++) {
        for (char **path = k->jobs[i].files; *path; path++)
            free(*path);
        free(k->jobs[i].files);
    }
    free(k->jobs);
    free(k);
}

/* --- answers, on the loop --------------------------------------------------------------------- */

static void let_go(struct lent_look *l)
{
    struct looking *k = l->looking;
    l->looking = NULL;
    timer_stop(l->late);
    if (l->has_begun)
        k->work.is_left = true; /* it is freed when the disk has answered */
    else
        looking_free(&k->work);
}

/* All that is known. The thread may go on behind `done`. */
static void say(const struct lent_look *l)
{
    struct looking *k = l->looking;
    const size_t done = atomic_load(&k->done), at = atomic_load(&k->at);
    for (size_t i = 0; i < k->n; i++) {
        struct looked_job late = {.why = ""};
        if (i >= done)
            write_why(&late, k->jobs[i].files[i == done ? at : 0],
                      "its file system does not answer, or an earlier one did not");
        l->setup.looked(l->setup.owner, k->jobs[i].job, i < done ? k->jobs[i].why : late.why);
    }
}

static void on_looked(struct aside_work *w)
{
    struct looking *k = (struct looking *)w;
    struct lent_look *l = k->owner;
    say(l);
    l->has_begun = false; /* it is over, and this one's again */
    let_go(l);
}

static void on_late(void *owner)
{
    struct lent_look *l = owner;
    say(l);
    let_go(l);
}

void lent_look_add(struct lent_look *l, uint64_t job, const json_t *files)
{
    struct looking *k = l->looking;
    const size_t n = json_array_size(files);
    k->jobs = xreallocarray(k->jobs, k->n + 1, sizeof *k->jobs);
    struct looked_job *j = &k->jobs[k->n++];
    *j = (struct looked_job){.job = job, .files = xcalloc(n + 1, sizeof *j->files)};
    for (size_t i = 0; i < n; i++)
        j->files[i] = xstrdup(json_string_value(json_array_get(files, i)));
}

void lent_look_begin(struct lent_look *l)
{
    if (!l->looking->n)
        return;
    timer_set_ms(l->late, l->setup.limit_ms ? l->setup.limit_ms : LIMIT_MS);
    l->has_begun = !aside_run(l->setup.aside, &l->looking->work); /* if not, the timer answers */
}

struct lent_look *lent_look_new(const struct lent_look_setup *setup)
{
    struct lent_look *l = xcalloc(1, sizeof *l);
    struct looking *k = xcalloc(1, sizeof *k);
    l->setup = *setup;
    l->late = timer_new(setup->base, on_late, l);
    k->work = (struct aside_work){.run = look_at_all, .done = on_looked, .drop = looking_free};
    k->owner = l;
    l->looking = k;
    return l;
}

void lent_look_free(struct lent_look *l)
{
    if (!l)
        return;
    if (l->looking)
        let_go(l);
    timer_free(l->late);
    free(l);
}
