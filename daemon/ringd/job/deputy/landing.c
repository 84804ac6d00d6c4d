/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/deputy/landing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "engine/err.h"

/* What the thread works on; after landing_stop it is left to it. */
struct moving {
    struct aside_work work;
    struct landing *landing; /* the loop's alone */
    json_t *files;           /* owned */
    char *way, *to[2];       /* owned */
    size_t landed;           /* in to[landed] */
    int r;
    struct err first, err; /* of the first folder, and of the last that was tried */
};

struct landing {
    struct part_fetch *fetch; /* NULL: all is here */
    struct moving *moving;
    struct aside *aside;
    void (*done)(void *owner, const char *folder, const char *why);
    void *owner;
};

static void moving_free(struct aside_work *w)
{
    struct moving *m = (struct moving *)w;
    json_decref(m->files);
    free(m->way);
    free(m->to[0]);
    free(m->to[1]);
    free(m);
}

/* --- on the thread ---------------------------------------------------------------------------- */

static int copy_bytes(int from, int to)
{
    char buf[1 << 16];
    ssize_t n;
    while ((n = read(from, buf, sizeof buf)) > 0)
        for (ssize_t at = 0, put; at < n; at += put)
            if ((put = write(to, buf + at, (size_t)(n - at))) <= 0)
                return -EIO;
    return n < 0 || fsync(to) ? -EIO : 0;
}

/* Under a name of its own until it is whole. */
static int copy_file(const char *from, const char *to, struct err *err)
{
    char *temporary = xasprintf("%s.tmp", to);
    const int in = open(from, O_RDONLY | O_CLOEXEC),
              out = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    errno = out < 0 ? errno : 0;
    int r = in < 0 || out < 0 || copy_bytes(in, out) || rename(temporary, to)
                ? err_set(err, errno ? -errno : -EIO, "%s cannot be written: %s", to,
                          strerror(errno ? errno : EIO))
                : 0;
    if (r && out >= 0)
        unlink(temporary);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    free(temporary);
    return r;
}

static int move_to(const struct moving *m, const char *folder, struct err *err)
{
    size_t i;
    json_t *file;
    int r = 0;
    json_array_foreach (m->files, i, file) {
        const char *path = json_string_value(json_object_get(file, "path"));
        char *from = xasprintf("%s/%zu", m->way, i), *to = xasprintf("%s/%s", folder, path);
        file_set_make_folders(folder, path);
        r = r ? r : copy_file(from, to, err);
        free(from);
        free(to);
    }
    return r;
}

static void move_all(struct aside_work *w)
{
    struct moving *m = (struct moving *)w;
    m->r = move_to(m, m->to[0], &m->first);
    m->landed = m->r != 0;
    if (m->r)
        m->r = move_to(m, m->to[1], &m->err);
    for (size_t i = 0; !m->r && i < json_array_size(m->files); i++) {
        char *from = xasprintf("%s/%zu", m->way, i);
        unlink(from);
        free(from);
    }
    if (!m->r)
        rmdir(m->way);
}

/* --- the loop --------------------------------------------------------------------------------- */

static void end(struct landing *l, const char *folder, const char *why)
{
    void (*done)(void *, const char *, const char *) = l->done;
    void *owner = l->owner;
    free(l);
    done(owner, folder, why);
}

static void on_moved(struct aside_work *w)
{
    struct moving *m = (struct moving *)w;
    struct landing *l = m->landing;
    if (m->r)
        end(l, NULL, m->err.text);
    else
        end(l, m->to[m->landed], m->landed ? m->first.text : "");
    moving_free(w);
}

static void on_fetched(void *owner, const char *why)
{
    struct landing *l = owner;
    struct moving *m = l->moving;
    l->fetch = NULL;
    if (!why && !aside_run(l->aside, &m->work))
        return;
    moving_free(&m->work);
    end(l, NULL, why ? why : "too many files are written on this node now");
}

struct landing *landing_start(const struct landing_request *request)
{
    struct landing *l = xcalloc(1, sizeof *l);
    struct moving *m = xcalloc(1, sizeof *m);
    *m = (struct moving){.work = {.run = move_all, .done = on_moved, .drop = moving_free},
                         .landing = l,
                         .files = json_deep_copy(request->files),
                         .way = xstrdup(request->way),
                         .to = {xstrdup(request->to), xstrdup(request->else_to)}};
    *l = (struct landing){
        .moving = m, .aside = request->aside, .done = request->done, .owner = request->owner};
    l->fetch =
        fetch_start(request->parts, request->from, request->job, request->files, request->way, on_fetched, l);
    return l;
}

void landing_stop(struct landing *l)
{
    if (!l)
        return;
    if (l->fetch) {
        fetch_stop(l->fetch);
        moving_free(&l->moving->work);
    } else {
        l->moving->work.is_left = true;
    }
    free(l);
}
