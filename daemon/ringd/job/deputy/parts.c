/* SPDX-License-Identifier: MIT
 *
 * Owns what is under way: questions of this node, each a fetch, and answers that a thread reads. */
#include "daemon/ringd/job/deputy/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/timer.h"

enum { PATIENCE_MS = 20000 /* for a part */ };

struct part_fetch {
    LIST_ENTRY(part_fetch) next;
    struct parts *parts; /* borrowed: owner */
    uint8_t from[16];
    uint64_t job, round, at; /* at: in file i */
    json_t *list;            /* owned */
    size_t i;
    char *folder;         /* owned */
    struct timer *timer;  /* owned */
    struct writing *work; /* NULL: none is under way */
    void (*done)(void *owner, const char *why);
    void *owner;
};

struct parts {
    struct parts_setup setup;
    LIST_HEAD(, part_fetch) fetches;
    LIST_HEAD(, reading) readings;
    uint64_t rounds;
};

/* --- answering -------------------------------------------------------------------------------- */

struct reading {
    struct aside_work work;
    LIST_ENTRY(reading) next;
    struct parts *parts; /* borrowed; the loop's alone */
    struct file_set *files;
    uint8_t to[16];
    size_t i;
    uint64_t at;
    json_int_t round;
    int n;
    struct err err;
    uint8_t part[FILE_SET_PART];
};

static void read_part(struct aside_work *w)
{
    struct reading *r = (struct reading *)w;
    r->n = file_set_read(r->files, r->i, r->at, r->part, &r->err);
}

static void reading_free(struct aside_work *w)
{
    struct reading *r = (struct reading *)w;
    file_set_drop(r->files);
    free(r);
}

static void answer(struct parts *p, const uint8_t to[16], json_int_t round, const uint8_t *part, int n,
                   const char *error)
{
    const size_t bytes = n > 0 ? (size_t)n : 0,
                 room = sodium_base64_ENCODED_LEN(bytes, sodium_base64_VARIANT_ORIGINAL);
    char *code = xmalloc(room);
    sodium_bin2base64(code, room, part, bytes, sodium_base64_VARIANT_ORIGINAL);
    p->setup.send(
        p->setup.owner, to,
        json_pack("{s:s s:I s:s s:s*}", "kind", "part-told", "round", round, "part", code, "error", error));
    free(code);
}

static void on_read(struct aside_work *w)
{
    struct reading *r = (struct reading *)w;
    LIST_REMOVE(r, next);
    answer(r->parts, r->to, r->round, r->part, r->n, r->n < 0 ? r->err.text : NULL);
    reading_free(w);
}

/* A disk that hangs may take a thread for each node that asks, and no more. */
static bool is_read(const struct parts *p, const uint8_t to[16])
{
    const struct reading *r;
    LIST_FOREACH (r, &p->readings, next)
        if (!memcmp(r->to, to, sizeof r->to))
            return true;
    return false;
}

void parts_take_ask(struct parts *p, const uint8_t from[16], const json_t *body)
{
    const json_int_t round = json_integer_value(json_object_get(body, "round"));
    struct file_set *files =
        p->setup.files(p->setup.owner, from, (uint64_t)json_integer_value(json_object_get(body, "job")));
    if (!files) {
        answer(p, from, round, NULL, 0, "this node hands over no files of that job");
        return;
    }
    if (is_read(p, from)) {
        answer(p, from, round, NULL, 0, "the part before is still being read");
        return;
    }
    struct reading *r = xmalloc(sizeof *r);
    memset(r, 0, offsetof(struct reading, part));
    r->work = (struct aside_work){.run = read_part, .done = on_read, .drop = reading_free};
    r->parts = p;
    r->files = file_set_hold(files);
    r->i = (size_t)json_integer_value(json_object_get(body, "file"));
    r->at = (uint64_t)json_integer_value(json_object_get(body, "at"));
    r->round = round;
    memcpy(r->to, from, sizeof r->to);
    LIST_INSERT_HEAD(&p->readings, r, next);
    if (!aside_run(p->setup.aside, &r->work))
        return;
    LIST_REMOVE(r, next);
    reading_free(&r->work);
    answer(p, from, round, NULL, 0, "too many files are read there now");
}

/* --- fetching --------------------------------------------------------------------------------- */

struct writing {
    struct aside_work work;
    struct part_fetch *fetch; /* the loop's alone */
    char *folder;             /* owned */
    size_t i, n;
    uint64_t at;
    bool is_last;
    int64_t changed;
    struct err err; /* "": it is written */
    uint8_t part[];
};

/* Whole files alone have their name. */
static int write_to(struct writing *w, int fd, const char *temporary, const char *whole)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {w->changed / 1000000000, (long)(w->changed % 1000000000)}};
    size_t n = 0;
    ssize_t put = 1;
    while (n < w->n && (put = pwrite(fd, w->part + n, w->n - n, (off_t)(w->at + n))) > 0)
        n += (size_t)put;
    if (put <= 0 || (w->is_last && (ftruncate(fd, (off_t)(w->at + w->n)) || futimens(fd, times) ||
                                    fsync(fd) || rename(temporary, whole))))
        return err_set(&w->err, -errno, "%s cannot be written: %s", temporary, strerror(errno));
    return 0;
}

/* And the one that it lies in. */
static int make_folder(const char *folder, struct err *err)
{
    char *above = xasprintf("%.*s", (int)(strrchr(folder, '/') - folder), folder);
    mkdir(above, 0700); /* what is wrong shows with the next */
    free(above);
    return mkdir(folder, 0700) && errno != EEXIST
               ? err_set(err, -errno, "%s cannot be made: %s", folder, strerror(errno))
               : 0;
}

static void write_part(struct aside_work *work)
{
    struct writing *w = (struct writing *)work;
    char *whole = xasprintf("%s/%zu", w->folder, w->i), *temporary = xasprintf("%s.tmp", whole);
    if (!make_folder(w->folder, &w->err)) {
        const int fd = open(temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            err_set(&w->err, -errno, "%s cannot be written: %s", temporary, strerror(errno));
        else
            write_to(w, fd, temporary, whole);
        if (fd >= 0)
            close(fd);
    }
    free(whole);
    free(temporary);
}

static void writing_free(struct aside_work *work)
{
    struct writing *w = (struct writing *)work;
    free(w->folder);
    free(w);
}

static void fetch_free(struct part_fetch *f)
{
    if (f->work)
        f->work->work.is_left = true;
    LIST_REMOVE(f, next);
    timer_free(f->timer);
    json_decref(f->list);
    free(f->folder);
    free(f);
}

void fetch_stop(struct part_fetch *f)
{
    if (f)
        fetch_free(f);
}

static void end(struct part_fetch *f, const char *why)
{
    void (*done)(void *, const char *) = f->done;
    void *owner = f->owner;
    char text[sizeof(struct err)];
    snprintf(text, sizeof text, "%s", why ? why : "");
    fetch_free(f);
    done(owner, why ? text : NULL);
}

static uint64_t number_of(const struct part_fetch *f, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(json_array_get(f->list, f->i), key));
}

static void ask(struct part_fetch *f)
{
    struct parts *p = f->parts;
    if (f->i == json_array_size(f->list)) {
        end(f, NULL);
        return;
    }
    f->round = ++p->rounds;
    timer_set_ms(f->timer, PATIENCE_MS);
    if (p->setup.send(p->setup.owner, f->from,
                      json_pack("{s:s s:I s:I s:I s:I}", "kind", "part-ask", "round", (json_int_t)f->round,
                                "job", (json_int_t)f->job, "file", (json_int_t)f->i, "at",
                                (json_int_t)f->at)))
        timer_set_ms(f->timer, 0);
}

static void on_written(struct aside_work *work)
{
    struct writing *w = (struct writing *)work;
    struct part_fetch *f = w->fetch;
    const struct err err = w->err;
    const bool is_last = w->is_last;
    f->work = NULL;
    f->at = is_last ? 0 : f->at + w->n;
    f->i += is_last;
    writing_free(work);
    if (*err.text)
        end(f, err.text);
    else
        ask(f);
}

static void on_late(void *owner)
{
    end(owner, "the other node does not answer");
}

static void put_part(struct part_fetch *f, const char *code)
{
    const uint64_t left = number_of(f, "bytes") - f->at;
    const size_t want = left < FILE_SET_PART ? (size_t)left : FILE_SET_PART;
    struct writing *w = xmalloc(sizeof *w + want + 1);
    size_t n = 0;
    *w = (struct writing){.work = {.run = write_part, .done = on_written, .drop = writing_free},
                          .fetch = f,
                          .folder = xstrdup(f->folder),
                          .i = f->i,
                          .at = f->at,
                          .is_last = left <= FILE_SET_PART,
                          .changed = (int64_t)number_of(f, "changed")};
    if (sodium_base642bin(w->part, want + 1, code, strlen(code), NULL, &n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) ||
        n != want) {
        writing_free(&w->work);
        end(f, "the other node sent a malformed part of a file");
        return;
    }
    w->n = n;
    f->work = w;
    if (!aside_run(f->parts->setup.aside, &w->work))
        return;
    f->work = NULL;
    writing_free(&w->work);
    end(f, "too many files are written on this node now");
}

void parts_take_told(struct parts *p, const uint8_t from[16], const json_t *body)
{
    const uint64_t round = (uint64_t)json_integer_value(json_object_get(body, "round"));
    const char *error = json_string_value(json_object_get(body, "error"));
    struct part_fetch *f;
    LIST_FOREACH (f, &p->fetches, next)
        if (f->round == round && !f->work && !memcmp(f->from, from, sizeof f->from))
            break;
    if (!f)
        return;
    timer_stop(f->timer);
    if (error && *error)
        end(f, error);
    else
        put_part(f, json_string_value(json_object_get(body, "part")));
}

struct part_fetch *fetch_start(struct parts *p, const uint8_t from[16], uint64_t job, const json_t *list,
                               const char *folder, void (*done)(void *owner, const char *why), void *owner)
{
    struct part_fetch *f = xcalloc(1, sizeof *f);
    *f = (struct part_fetch){.parts = p,
                             .job = job,
                             .list = json_deep_copy(list),
                             .folder = xstrdup(folder),
                             .done = done,
                             .owner = owner};
    memcpy(f->from, from, sizeof f->from);
    f->timer = timer_new(p->setup.base, on_late, f);
    LIST_INSERT_HEAD(&p->fetches, f, next);
    ask(f);
    return f;
}

/* --- opening, closing ------------------------------------------------------------------------- */

struct parts *parts_new(const struct parts_setup *setup)
{
    struct parts *p = xcalloc(1, sizeof *p);
    p->setup = *setup;
    LIST_INIT(&p->fetches);
    LIST_INIT(&p->readings);
    return p;
}

void parts_free(struct parts *p)
{
    struct reading *r;
    if (!p)
        return;
    while (!LIST_EMPTY(&p->fetches))
        fetch_free(LIST_FIRST(&p->fetches));
    LIST_FOREACH (r, &p->readings, next)
        r->work.is_left = true;
    free(p);
}
