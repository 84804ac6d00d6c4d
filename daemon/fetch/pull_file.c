/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/pull_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/fetch/part_file.h"

enum { LINKS_MAX = 5 /* a signed link that is refused so often in a row is no matter of its age */ };

struct file_pull {
    struct part_file *part;
    uint64_t asked_from, size;
    bool has_moved; /* bytes have come since the last try */
    void (*come)(void *owner, uint64_t bytes, uint64_t back);
    void *owner;
    struct err *err;
    int r; /* of the disk, or of what comes */
};

static char *path_of(const struct pull_source *from, const char *file)
{
    return xasprintf("/%s/%s/resolve/%s/%s", from->org, from->name, from->commit, file);
}

/* --- what the hub says of it ------------------------------------------------------------------ */

static bool take_nothing(void *owner, const void *bytes, size_t n)
{
    (void)owner;
    (void)bytes;
    (void)n;
    return true;
}

static int take_look(const struct pull_source *from, struct hub_file *file, const struct hub_headers *h,
                     struct err *err)
{
    if (*h->commit && strcmp(h->commit, from->commit) != 0)
        return err_set(err, -EPROTO, "%s: the hub answers with commit %s, and %s was asked for", file->name,
                       h->commit, from->commit);
    if (!hub_hash_read(file, h->etag) || !h->has_size || h->size > HUB_BYTES_MAX)
        return err_set(err, -EPROTO, "%s: the hub does not say how long it is and what its hash is",
                       file->name);
    file->size = h->size;
    file->has_size = true;
    return 0;
}

int pull_file_look(const struct pull_source *from, struct hub_file *file, struct err *err)
{
    char *path = path_of(from, file->name);
    struct hub_headers h;
    struct hub_patience patience;
    int r, waited = 0;
    hub_patience_begin(&patience);
    do {
        r = hub_ask(from->hub, &(struct hub_request){.path = path, .is_head = true, .take = take_nothing}, &h,
                    err);
    } while (hub_is_passing(r, &h) && !(waited = hub_wait(from->hub, &patience, &h)));
    free(path);
    if (waited == -ECANCELED)
        return waited;
    if (r)
        return r;
    /* The hub itself has answered, and sends us elsewhere for the bytes. */
    if (h.status == 200 || (h.status >= 300 && h.status < 400))
        return take_look(from, file, &h, err);
    return hub_refusal(from->hub, &h, file->name, err);
}

/* --- its bytes -------------------------------------------------------------------------------- */

static bool begin(void *owner, const struct hub_headers *h)
{
    struct file_pull *p = owner;
    const uint64_t at = part_file_at(p->part);
    if (h->status == 206 && (!h->has_range || h->from != p->asked_from || h->total != p->size))
        p->r = err_set(p->err, -EPROTO, "other bytes come than were asked for");
    if (h->status == 206 || p->r)
        return !p->r;
    if (at) {
        p->r = part_file_restart(p->part, p->err);
        p->come(p->owner, 0, at);
    }
    return !p->r;
}

static bool take(void *owner, const void *bytes, size_t n)
{
    struct file_pull *p = owner;
    p->r = part_file_write(p->part, bytes, n, p->err);
    if (p->r)
        return false;
    p->has_moved = true;
    p->come(p->owner, n, 0);
    return true;
}

static int ask(const struct pull_source *from, struct file_pull *p, const char *path, struct hub_headers *h,
               struct err *err)
{
    p->asked_from = part_file_at(p->part);
    p->has_moved = false;
    p->r = 0;
    const struct hub_request q = {
        .path = path, .from = p->asked_from, .begin = begin, .take = take, .owner = p};
    const int r = hub_ask(from->hub, &q, h, err);
    return p->r ? p->r : r;
}

/* It came to its end, and is shorter than announced: as if the connection had broken. */
static int check_length(const struct hub_file *file, const struct file_pull *p, struct err *err)
{
    return part_file_at(p->part) == file->size
               ? 0
               : err_set(err, -EIO, "%s: the answer ends before the file does", file->name);
}

/* A link that the hub has signed is good for a while; the hub is asked for another. */
static bool is_stale_link(const struct hub_headers *h, unsigned links)
{
    return (h->status == 400 || h->status == 401 || h->status == 403 || h->status == 410) &&
           links < LINKS_MAX;
}

static int pull_bytes(const struct pull_source *from, struct file_pull *p, const struct hub_file *file,
                      const char *path, struct err *err)
{
    struct hub_patience patience;
    unsigned links = 0;
    hub_patience_begin(&patience);
    while (part_file_at(p->part) < file->size) {
        struct hub_headers h;
        int r = ask(from, p, path, &h, err);
        if (p->has_moved) {
            hub_patience_begin(&patience);
            links = 0;
        }
        if (!r && (h.status == 200 || h.status == 206))
            r = check_length(file, p, err);
        else if (!r && h.is_elsewhere && is_stale_link(&h, links++))
            continue;
        else if (!r)
            r = hub_refusal(from->hub, &h, file->name, err);
        if (r && !hub_is_passing(r, &h) && !hub_is_passing(0, &h))
            return r;
        const int waited = r ? hub_wait(from->hub, &patience, &h) : 0;
        if (waited)
            return waited == -ECANCELED ? waited : r;
    }
    return 0;
}

int pull_file(const struct pull_source *from, int folder, const struct hub_file *file,
              uint8_t (*blocks)[DIGEST], void (*come)(void *owner, uint64_t bytes, uint64_t back),
              void *owner, struct err *err)
{
    struct file_pull p = {.size = file->size, .come = come, .owner = owner, .err = err};
    uint64_t at;
    int r = part_file_open(&p.part, folder, file, blocks, &at, err);
    if (r)
        return r;
    come(owner, at, 0);
    char *path = path_of(from, file->name);
    r = pull_bytes(from, &p, file, path, err);
    free(path);
    if (r) {
        part_file_close(p.part);
        return r;
    }
    r = part_file_finish(p.part, err);
    if (r == -EBADMSG)
        come(owner, 0, file->size);
    return r;
}
