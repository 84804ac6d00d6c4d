/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/held_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/survive/disk_thread.h"

enum { SPARES = 2, DAY_S = 86400 };

struct held_key { /* of a job: who heads it, and its number there */
    uint8_t head[16];
    uint64_t job;
};

/* A file that has its name. */
struct disk_copy {
    struct disk_copy *next;
    struct held_key key;
    uint64_t number; /* the larger the newer */
    int fd;          /* owned */
};

struct held_disk {
    struct held_disk_setup setup;
    char *folder;               /* owned: STATE/held */
    struct disk_thread *thread; /* owned; NULL: none */
    struct disk_copy *first;    /* owned: by age within a job, the oldest first */
    struct {
        int fd; /* owned; −1: is being made, or could not */
        uint64_t number;
    } spare[SPARES];
    /* What the present process writes: */
    struct held_key key;
    int fd; /* owned while it has no name, else that of a disk_copy; −1: nothing */
    uint64_t number;
    bool is_named, is_being_named;
    uint64_t last; /* number that was given to a file */
};

static bool is_of(const struct disk_copy *c, const struct held_key *key)
{
    return !memcmp(c->key.head, key->head, 16) && c->key.job == key->job;
}

/* --- paths ------------------------------------------------------------------------------------ */

static char *path_of_job(const struct held_disk *d, const struct held_key *key)
{
    char hex[33];
    for (size_t i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", key->head[i]);
    return xasprintf("%s/%s-%llu", d->folder, hex, (unsigned long long)key->job);
}

static char *path_of(const struct held_disk *d, const struct held_key *key, uint64_t number)
{
    char *job = path_of_job(d, key), *path = xasprintf("%s/%llu", job, (unsigned long long)number);
    free(job);
    return path;
}

static char *path_of_spare(const struct held_disk *d, uint64_t number)
{
    return xasprintf("%s/new-%llu", d->folder, (unsigned long long)number);
}

/* HEAD-JOB, as path_of_job writes it. */
static bool read_key(struct held_key *ret, const char *name)
{
    char *end;
    if (strspn(name, "0123456789abcdef") != 32 || name[32] != '-' || name[33] < '0' || name[33] > '9')
        return false;
    for (size_t i = 0; i < 16; i++) {
        const char two[3] = {name[2 * i], name[2 * i + 1], 0};
        ret->head[i] = (uint8_t)strtoul(two, NULL, 16);
    }
    ret->job = strtoull(name + 33, &end, 10);
    return !*end;
}

/* --- files ------------------------------------------------------------------------------------ */

static void add(struct held_disk *d, const struct held_key *key, uint64_t number, int fd)
{
    struct disk_copy *c = xcalloc(1, sizeof *c), **at = &d->first;
    *c = (struct disk_copy){.key = *key, .number = number, .fd = fd};
    while (*at && (!is_of(*at, key) || (*at)->number < number))
        at = &(*at)->next;
    c->next = *at;
    *at = c;
}

/* The thread closes it, which may wait for the disk as well. */
static void discard(struct held_disk *d, char *path, int fd)
{
    if (!d->thread || !disk_thread_remove(d->thread, path, fd))
        close(fd);
    free(path);
}

static void remove_copy(struct held_disk *d, struct disk_copy **at)
{
    struct disk_copy *c = *at;
    *at = c->next;
    if (c->fd == d->fd)
        d->fd = -1;
    discard(d, path_of(d, &c->key, c->number), c->fd);
    free(c);
}

static void remove_of(struct held_disk *d, const struct held_key *key, uint64_t below)
{
    for (struct disk_copy **at = &d->first; *at;)
        if (is_of(*at, key) && (*at)->number < below)
            remove_copy(d, at);
        else
            at = &(*at)->next;
}

/* Of processes that ended before the others had a step whole the oldest file may be the only one
 * that all have: it stays, and the newest goes. */
static void make_room(struct held_disk *d, const struct held_key *key)
{
    size_t n = 0;
    for (struct disk_copy **at = &d->first; *at;)
        if (is_of(*at, key) && ++n > HELD_DISK_MAX - 1)
            remove_copy(d, at);
        else
            at = &(*at)->next;
}

static void make_spare(struct held_disk *d, size_t i)
{
    char *path = path_of_spare(d, ++d->last);
    d->spare[i].fd = -1;
    d->spare[i].number = d->last;
    if (d->thread)
        disk_thread_make(d->thread, path, d->last);
    free(path);
}

/* --- what the thread has done ----------------------------------------------------------------- */

static void on_made(void *owner, uint64_t number, int fd)
{
    struct held_disk *d = owner;
    for (size_t i = 0; i < SPARES; i++)
        if (d->spare[i].number == number) {
            d->spare[i].fd = fd;
            return;
        }
    if (fd >= 0)
        close(fd);
}

static void on_named(void *owner, uint64_t number, int r, json_t *event)
{
    struct held_disk *d = owner;
    if (number != d->number || d->fd < 0)
        return; /* of a process before this one, or of a job that is over */
    if (!d->is_named && !r) {
        make_room(d, &d->key);
        add(d, &d->key, number, d->fd);
    }
    d->is_named = d->is_named || !r;
    d->is_being_named = false;
    if (r)
        json_object_set_new(event, "error", json_string(strerror(-r)));
    d->setup.kept(d->setup.owner, event);
}

/* --- the present process ---------------------------------------------------------------------- */

static void forget_present(struct held_disk *d)
{
    if (d->fd >= 0 && !d->is_named)
        discard(d, d->is_being_named ? path_of(d, &d->key, d->number) : path_of_spare(d, d->number), d->fd);
    d->fd = -1;
    d->is_named = d->is_being_named = false;
}

static void take_spare(struct held_disk *d)
{
    for (size_t i = 0; i < SPARES && d->fd < 0; i++)
        if (d->spare[i].fd >= 0) {
            d->fd = d->spare[i].fd;
            d->number = d->spare[i].number;
            make_spare(d, i);
        } else if (!d->spare[i].number) {
            make_spare(d, i);
        }
}

size_t held_disk_begin(struct held_disk *d, const uint8_t head[16], uint64_t job, int before[HELD_DISK_MAX],
                       int *ret_new)
{
    size_t n = 0;
    *ret_new = -1;
    if (!d)
        return 0;
    forget_present(d);
    memcpy(d->key.head, head, 16);
    d->key.job = job;
    take_spare(d);
    *ret_new = d->fd;
    for (const struct disk_copy *c = d->first; c && n < HELD_DISK_MAX; c = c->next)
        if (is_of(c, &d->key))
            before[n++] = c->fd;
    return n;
}

void held_disk_kept(struct held_disk *d, const json_t *event)
{
    if (!d)
        return;
    if (d->fd < 0 || d->is_named || d->is_being_named || json_object_get(event, "error")) {
        json_t *told = json_copy((json_t *)event);
        d->setup.kept(d->setup.owner, told);
        json_decref(told);
        return;
    }
    char *from = path_of_spare(d, d->number), *to = path_of(d, &d->key, d->number);
    d->is_being_named = disk_thread_name(d->thread, from, to, d->number, json_deep_copy(event));
    free(from);
    free(to);
}

void held_disk_settled(struct held_disk *d)
{
    if (d && d->is_named)
        remove_of(d, &d->key, d->number);
}

void held_disk_drop(struct held_disk *d, const uint8_t head[16], uint64_t job)
{
    struct held_key key = {.job = job};
    if (!d)
        return;
    memcpy(key.head, head, 16);
    if (key.job == d->key.job && !memcmp(key.head, d->key.head, 16))
        forget_present(d);
    remove_of(d, &key, UINT64_MAX);
}

/* --- at start --------------------------------------------------------------------------------- */

/* Of a regular file that is named as path_of names one; numbers begin at 1. */
static uint64_t number_of(int folder, const char *name, time_t *ret_changed)
{
    char *end;
    struct stat st;
    const uint64_t number = strtoull(name, &end, 10);
    if (*end || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
        return 0;
    *ret_changed = st.st_mtime;
    return number;
}

/* The newest of its files; 0: there are none. */
static time_t last_change(DIR *dir)
{
    time_t last = 0, changed;
    for (struct dirent *e; (e = readdir(dir));)
        if (number_of(dirfd(dir), e->d_name, &changed))
            last = changed > last ? changed : last;
    rewinddir(dir);
    return last;
}

static void read_file(struct held_disk *d, const struct held_key *key, int folder, const char *name,
                      bool is_forgotten)
{
    time_t changed;
    const uint64_t number = number_of(folder, name, &changed);
    if (number && is_forgotten)
        (void)unlinkat(folder, name, 0);
    if (!number || is_forgotten)
        return;
    const int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0)
        add(d, key, number, fd);
    d->last = number > d->last ? number : d->last;
}

/* True: nobody has asked for its files for too long, and they are gone. */
static bool read_job(struct held_disk *d, const char *name, const struct held_key *key)
{
    char *path = xasprintf("%s/%s", d->folder, name);
    DIR *dir = opendir(path);
    const time_t last = dir ? last_change(dir) : 0;
    const bool is_forgotten = last && last < time(NULL) - (time_t)HELD_DISK_DAYS * DAY_S;
    for (struct dirent *e; dir && (e = readdir(dir));)
        read_file(d, key, dirfd(dir), e->d_name, is_forgotten);
    if (dir)
        closedir(dir);
    if (!last || is_forgotten)
        (void)rmdir(path);
    free(path);
    return is_forgotten;
}

static size_t read_all(struct held_disk *d)
{
    DIR *dir = opendir(d->folder);
    struct held_key key;
    size_t removed = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (!strncmp(e->d_name, "new-", 4))
            (void)unlinkat(dirfd(dir), e->d_name, 0);
        else if (read_key(&key, e->d_name))
            removed += read_job(d, e->d_name, &key);
    if (dir)
        closedir(dir);
    return removed;
}

int held_disk_open(struct held_disk **ret, const struct held_disk_setup *setup, size_t *ret_removed,
                   struct err *err)
{
    struct held_disk *d = xcalloc(1, sizeof *d);
    int r = 0;
    *d = (struct held_disk){.setup = *setup,
                            .folder = xasprintf("%s/held", setup->state_dir),
                            .fd = -1,
                            .spare = {{-1, 0}, {-1, 0}}};
    if (mkdir(d->folder, 0700) && errno != EEXIST)
        r = err_set(err, -errno, "%s cannot be created: %s", d->folder, strerror(errno));
    if (!r && setup->mailbox)
        r = disk_thread_new(&d->thread, &(struct disk_thread_setup){setup->mailbox, on_made, on_named, d},
                            err);
    if (r) {
        held_disk_free(d);
        return r;
    }
    *ret_removed = read_all(d);
    for (size_t i = 0; i < SPARES; i++)
        make_spare(d, i);
    *ret = d;
    return 0;
}

void held_disk_free(struct held_disk *d)
{
    if (!d)
        return;
    forget_present(d);
    disk_thread_free(d->thread);
    for (struct disk_copy *c = d->first, *next; c; c = next) {
        next = c->next;
        close(c->fd);
        free(c);
    }
    for (size_t i = 0; i < SPARES; i++)
        if (d->spare[i].fd >= 0)
            close(d->spare[i].fd);
    free(d->folder);
    free(d);
}
