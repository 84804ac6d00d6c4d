/* SPDX-License-Identifier: MIT
 *
 * Owns the thread, detached: the one that comes last, thread or loop, frees what they share. */
#include "daemon/ringd/job/survive/lent_look.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/user_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/timer.h"

enum { LIMIT_MS = 10000 };

struct looked_job {
    uint64_t job;
    char **files; /* owned, NULL behind the last */
    char why[600];
};

/* What thread and loop share. */
struct lent_files {
    pthread_mutex_t lock;
    bool abandoned, posted;  /* under lock */
    size_t done;             /* under lock: so many jobs have been looked at */
    const char *at;          /* under lock: the file that is being opened */
    struct lent_look *owner; /* borrowed; the loop's alone */
    struct mailbox *mailbox;
    size_t n;
    struct looked_job *jobs; /* owned; the thread's until they are done */
};

struct lent_look {
    struct lent_look_setup setup;
    struct timer *late;       /* owned */
    struct lent_files *files; /* shared; NULL: all has been said */
};

/* --- looking, on a thread --------------------------------------------------------------------- */

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

static void begin_file(struct lent_files *f, const char *path)
{
    pthread_mutex_lock(&f->lock);
    f->at = path;
    pthread_mutex_unlock(&f->lock);
}

static void look_at(struct lent_files *f, struct looked_job *j)
{
    bool is_open = true;
    for (char **path = j->files; *path && is_open; path++) {
        begin_file(f, *path);
        is_open = opens(*path);
        if (!is_open)
            write_why(j, *path, strerror(errno));
    }
}

static void files_free(struct lent_files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        for (char **path = f->jobs[i].files; *path; path++)
            free(*path);
        free(f->jobs[i].files);
    }
    pthread_mutex_destroy(&f->lock);
    free(f->jobs);
    free(f);
}

static void on_looked(void *arg);

static void *look_at_all(void *arg)
{
    struct lent_files *f = arg;
    const size_t n = f->n; /* once posted, the loop may free it all */
    bool abandoned = false;
    for (size_t i = 0; i < n && !abandoned; i++) {
        look_at(f, &f->jobs[i]);
        pthread_mutex_lock(&f->lock);
        f->done = i + 1;
        abandoned = f->abandoned;
        if (f->done == n && !abandoned) {
            f->posted = true;
            mailbox_post(f->mailbox, on_looked, f);
        }
        pthread_mutex_unlock(&f->lock);
    }
    if (abandoned)
        files_free(f);
    return NULL;
}

/* --- answers, on the loop --------------------------------------------------------------------- */

/* The thread, should it still look, frees the files by itself. */
static void let_go(struct lent_look *l)
{
    struct lent_files *f = l->files;
    l->files = NULL;
    timer_stop(l->late);
    pthread_mutex_lock(&f->lock);
    f->abandoned = true;
    const bool posted = f->posted;
    pthread_mutex_unlock(&f->lock);
    if (posted) {
        mailbox_forget(f->mailbox, f);
        files_free(f);
    }
}

/* All that is known. The thread may go on behind `done`. */
static void say(const struct lent_look *l)
{
    struct lent_files *f = l->files;
    char at[400];
    pthread_mutex_lock(&f->lock);
    const size_t done = f->done;
    snprintf(at, sizeof at, "%s", f->at ? f->at : "");
    pthread_mutex_unlock(&f->lock);
    for (size_t i = 0; i < f->n; i++) {
        struct looked_job late = {.why = ""};
        if (i >= done)
            write_why(&late, i == done ? at : f->jobs[i].files[0],
                      "its file system does not answer, or an earlier one did not");
        l->setup.looked(l->setup.owner, f->jobs[i].job, i < done ? f->jobs[i].why : late.why);
    }
}

static void on_looked(void *arg)
{
    struct lent_files *f = arg;
    struct lent_look *l = f->owner;
    say(l);
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
    struct lent_files *f = l->files;
    const size_t n = json_array_size(files);
    f->jobs = xreallocarray(f->jobs, f->n + 1, sizeof *f->jobs);
    struct looked_job *j = &f->jobs[f->n++];
    *j = (struct looked_job){.job = job, .files = xcalloc(n + 1, sizeof *j->files)};
    for (size_t i = 0; i < n; i++)
        j->files[i] = xstrdup(json_string_value(json_array_get(files, i)));
}

void lent_look_begin(struct lent_look *l)
{
    pthread_t thread;
    if (!l->files->n)
        return;
    timer_set_ms(l->late, l->setup.limit_ms ? l->setup.limit_ms : LIMIT_MS);
    const int error = pthread_create(&thread, NULL, look_at_all, l->files);
    if (!error)
        pthread_detach(thread);
    else /* the timer answers for it */
        l->files->posted = true;
}

struct lent_look *lent_look_new(const struct lent_look_setup *setup)
{
    struct lent_look *l = xcalloc(1, sizeof *l);
    struct lent_files *f = xcalloc(1, sizeof *f);
    l->setup = *setup;
    l->late = timer_new(setup->base, on_late, l);
    l->files = f;
    f->owner = l;
    f->mailbox = setup->mailbox;
    pthread_mutex_init(&f->lock, NULL);
    return l;
}

void lent_look_free(struct lent_look *l)
{
    if (!l)
        return;
    if (l->files && !l->files->n)
        l->files->posted = true; /* there is no thread */
    if (l->files)
        let_go(l);
    timer_free(l->late);
    free(l);
}
