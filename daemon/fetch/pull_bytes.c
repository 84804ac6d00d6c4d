/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/pull_bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "daemon/common/xalloc.h"

enum { LINKS_MAX = 5 /* a signed link that is refused so often in a row is no matter of its age */ };

/* One answer. */
struct bytes_answer {
    struct pull_bytes *b;
    uint64_t asked_from;
    bool has_moved; /* bytes have come */
    struct err *err;
    int r; /* of who takes them, or of what comes */
};

char *pull_path(const struct pull_source *from, const char *file)
{
    return xasprintf("/%s/%s/resolve/%s/%s", from->org, from->name, from->commit, file);
}

static int check_part(const struct bytes_answer *a, const struct hub_headers *h)
{
    return h->has_range && h->from == a->asked_from && h->total == a->b->file->size
               ? 0
               : err_set(a->err, -EPROTO, "%s: other bytes come than were asked for", a->b->file->name);
}

static int check_whole(struct bytes_answer *a, const struct hub_headers *h)
{
    struct pull_bytes *b = a->b;
    if (h->has_size && h->size != b->file->size)
        return err_set(a->err, -EPROTO, "%s: %" PRIu64 " bytes come, and the hub announced %" PRIu64,
                       b->file->name, h->size, b->file->size);
    if (!b->restart && (b->at || b->end < b->file->size))
        return err_set(a->err, -EPROTO, "%s: the hub sends all of it where a part was asked for",
                       b->file->name);
    const int r = b->at ? b->restart(b->owner, a->err) : 0;
    b->at = r ? b->at : 0;
    return r;
}

static bool begin(void *owner, const struct hub_headers *h)
{
    struct bytes_answer *a = owner;
    a->r = h->status == 206 ? check_part(a, h) : check_whole(a, h);
    return !a->r;
}

static bool take(void *owner, const void *bytes, size_t n)
{
    struct bytes_answer *a = owner;
    struct pull_bytes *b = a->b;
    if (n > b->end - b->at)
        a->r = err_set(a->err, -E2BIG, "%s: more comes than was asked for", b->file->name);
    else
        a->r = b->take(b->owner, bytes, n, a->err);
    if (a->r)
        return false;
    a->has_moved = true;
    b->at += n;
    return true;
}

static int ask(const struct pull_source *from, struct bytes_answer *a, const char *path,
               struct hub_headers *h)
{
    const struct pull_bytes *b = a->b;
    a->asked_from = b->at;
    a->has_moved = false;
    a->r = 0;
    const struct hub_request q = {.path = path,
                                  .from = b->at,
                                  .to = b->end < b->file->size ? b->end : 0,
                                  .begin = begin,
                                  .take = take,
                                  .owner = a};
    const int r = hub_ask(from->hub, &q, h, a->err);
    return a->r ? a->r : r;
}

/* It came to its end, and is shorter than announced: as if the connection had broken. */
static int check_length(const struct pull_bytes *b, struct err *err)
{
    return b->at == b->end ? 0
                           : err_set(err, -EIO, "%s: the answer ends before the file does", b->file->name);
}

/* A link that the hub has signed is good for a while; the hub is asked for another. */
static bool is_stale_link(const struct hub_headers *h, unsigned links)
{
    return (h->status == 400 || h->status == 401 || h->status == 403 || h->status == 410) &&
           links < LINKS_MAX;
}

static int pull_them(const struct pull_source *from, struct bytes_answer *a, const char *path)
{
    struct pull_bytes *b = a->b;
    struct hub_patience patience;
    unsigned links = 0;
    hub_patience_begin(&patience);
    while (b->at < b->end) {
        struct hub_headers h;
        int r = ask(from, a, path, &h);
        if (a->has_moved) {
            hub_patience_begin(&patience);
            links = 0;
        }
        if (!r && (h.status == 200 || h.status == 206))
            r = check_length(b, a->err);
        else if (!r && h.is_elsewhere && is_stale_link(&h, links++))
            continue;
        else if (!r)
            r = hub_refusal(from->hub, &h, b->file->name, a->err);
        if (r && (a->r || (!hub_is_passing(r, &h) && !hub_is_passing(0, &h))))
            return r;
        if (r && b->waits)
            b->waits(b->owner, a->err->text);
        const int waited = r ? hub_wait(from->hub, &patience, &h) : 0;
        if (waited)
            return waited == -ECANCELED ? waited : r;
    }
    return 0;
}

int pull_bytes(const struct pull_source *from, struct pull_bytes *b, struct err *err)
{
    struct bytes_answer a = {.b = b, .err = err};
    char *path = pull_path(from, b->file->name);
    const int r = pull_them(from, &a, path);
    free(path);
    return r;
}
