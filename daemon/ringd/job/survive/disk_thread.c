/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/disk_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/mailbox.h"

enum { MOST_TASKS = 64, LEAVE_S = 2 };

struct disk_task {
    struct disk_task *next;
    struct disk_thread *thread;
    enum { TASK_MAKE, TASK_NAME, TASK_REMOVE } kind;
    uint64_t number;
    char *path, *to; /* owned */
    json_t *event;   /* owned: the loop's alone */
    int fd, r;
};

struct disk_thread {
    struct disk_thread_setup setup;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;          /* there is a task, or the end; the thread has left */
    struct disk_task *first, **last; /* owned; under the lock, as what follows */
    size_t n;
    bool must_stop, has_left;
    struct disk_task *done, **done_last; /* owned by the loop: posted and not yet taken */
};

static void task_free(struct disk_task *task)
{
    json_decref(task->event);
    free(task->path);
    free(task->to);
    free(task);
}

/* --- the thread ------------------------------------------------------------------------------- */

static char *folder_of(const char *path)
{
    return xstrndup(path, (size_t)(strrchr(path, '/') - path));
}

/* A name is only safe on the disk when its folder is. */
static int sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int r = fd < 0 || fsync(fd) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return r;
}

static int name_file(const struct disk_task *task)
{
    char *job = folder_of(task->to), *all = folder_of(job);
    int r = mkdir(job, 0700) && errno != EEXIST ? -errno : 0;
    if (!r && rename(task->path, task->to))
        r = -errno;
    if (!r)
        r = sync_folder(job);
    if (!r)
        r = sync_folder(all);
    free(job);
    free(all);
    return r;
}

static void remove_file(const struct disk_task *task)
{
    char *folder = folder_of(task->path);
    (void)unlink(task->path);
    close(task->fd);
    (void)rmdir(folder); /* if it was the last in it */
    free(folder);
}

static void run_task(struct disk_task *task)
{
    switch (task->kind) {
    case TASK_MAKE:
        task->fd = open(task->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (task->fd < 0)
            task->fd = -errno;
        break;
    case TASK_NAME: task->r = name_file(task); break;
    case TASK_REMOVE: remove_file(task); break;
    }
}

static void on_done(void *arg);

static void *thread_main(void *arg)
{
    struct disk_thread *t = arg;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->first && !t->must_stop)
            pthread_cond_wait(&t->changed, &t->lock);
        struct disk_task *task = t->first;
        if (!task)
            break;
        t->first = task->next;
        if (!t->first)
            t->last = &t->first;
        pthread_mutex_unlock(&t->lock);
        run_task(task);
        pthread_mutex_lock(&t->lock);
        task->next = NULL;
        *t->done_last = task;
        t->done_last = &task->next;
        if (!t->must_stop)
            mailbox_post(t->setup.mailbox, on_done, t);
    }
    t->has_left = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* --- the loop --------------------------------------------------------------------------------- */

static struct disk_task *take_done(struct disk_thread *t)
{
    pthread_mutex_lock(&t->lock);
    struct disk_task *task = t->done;
    if (task) {
        t->n--;
        t->done = task->next;
        if (!t->done)
            t->done_last = &t->done;
    }
    pthread_mutex_unlock(&t->lock);
    return task;
}

static void on_done(void *arg)
{
    struct disk_thread *t = arg;
    struct disk_task *task = take_done(t);
    if (task && task->kind == TASK_MAKE)
        t->setup.made(t->setup.owner, task->number, task->fd);
    else if (task && task->kind == TASK_NAME)
        t->setup.named(t->setup.owner, task->number, task->r, task->event);
    if (task)
        task_free(task);
}

static bool add_task(struct disk_thread *t, const struct disk_task *from)
{
    struct disk_task *task = xcalloc(1, sizeof *task);
    *task = *from;
    task->path = xstrdup(from->path);
    task->to = from->to ? xstrdup(from->to) : NULL;
    pthread_mutex_lock(&t->lock);
    const bool has_room = t->n < MOST_TASKS;
    if (has_room) {
        t->n++;
        *t->last = task;
        t->last = &task->next;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    if (!has_room)
        task_free(task);
    return has_room;
}

bool disk_thread_make(struct disk_thread *t, const char *path, uint64_t number)
{
    return add_task(t, &(struct disk_task){.kind = TASK_MAKE, .number = number, .path = (char *)path});
}

bool disk_thread_name(struct disk_thread *t, const char *from, const char *to, uint64_t number, json_t *event)
{
    return add_task(
        t, &(struct disk_task){
               .kind = TASK_NAME, .number = number, .path = (char *)from, .to = (char *)to, .event = event});
}

bool disk_thread_remove(struct disk_thread *t, const char *path, int fd)
{
    return add_task(t, &(struct disk_task){.kind = TASK_REMOVE, .path = (char *)path, .fd = fd});
}

int disk_thread_new(struct disk_thread **ret, const struct disk_thread_setup *setup, struct err *err)
{
    pthread_condattr_t attr;
    struct disk_thread *t = xcalloc(1, sizeof *t);
    t->setup = *setup;
    t->last = &t->first;
    t->done_last = &t->done;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &attr);
    pthread_condattr_destroy(&attr);
    const int r = pthread_create(&t->thread, NULL, thread_main, t);
    if (r) {
        pthread_cond_destroy(&t->changed);
        pthread_mutex_destroy(&t->lock);
        free(t);
        return err_set(err, -r, "no thread can be started for files of copies: %s", strerror(r));
    }
    *ret = t;
    return 0;
}

void disk_thread_free(struct disk_thread *t)
{
    struct timespec until;
    struct disk_task *task;
    int r = 0;
    if (!t)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LEAVE_S;
    pthread_mutex_lock(&t->lock);
    t->must_stop = true;
    pthread_cond_broadcast(&t->changed);
    while (!t->has_left && !r)
        r = pthread_cond_timedwait(&t->changed, &t->lock, &until);
    const bool has_left = t->has_left;
    pthread_mutex_unlock(&t->lock);
    mailbox_forget(t->setup.mailbox, t);
    if (!has_left) {
        pthread_detach(t->thread);
        return;
    }
    pthread_join(t->thread, NULL);
    while ((task = take_done(t))) {
        if (task->kind == TASK_MAKE && task->fd >= 0)
            close(task->fd);
        task_free(task);
    }
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
