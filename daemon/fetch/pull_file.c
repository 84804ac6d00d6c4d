/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/pull_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/fetch/part_file.h"

struct file_pull {
    struct part_file *part;
    void (*come)(void *owner, uint64_t bytes, uint64_t back);
    void *owner;
};

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
    char *path = pull_path(from, file->name);
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

static int restart(void *owner, struct err *err)
{
    const struct file_pull *p = owner;
    const uint64_t at = part_file_at(p->part);
    const int r = part_file_restart(p->part, err);
    p->come(p->owner, 0, at);
    return r;
}

static int take(void *owner, const void *bytes, size_t n, struct err *err)
{
    const struct file_pull *p = owner;
    const int r = part_file_write(p->part, bytes, n, err);
    if (!r)
        p->come(p->owner, n, 0);
    return r;
}

int pull_file(const struct pull_source *from, int folder, const struct hub_file *file,
              uint8_t (*blocks)[DIGEST], void (*come)(void *owner, uint64_t bytes, uint64_t back),
              void *owner, struct err *err)
{
    struct file_pull p = {.come = come, .owner = owner};
    uint64_t at;
    int r = part_file_open(&p.part, folder, file, blocks, &at, err);
    if (r)
        return r;
    come(owner, at, 0);
    r = pull_bytes(
        from,
        &(struct pull_bytes){
            .file = file, .at = at, .end = file->size, .restart = restart, .take = take, .owner = &p},
        err);
    if (r) {
        part_file_close(p.part);
        return r;
    }
    r = part_file_finish(p.part, err);
    if (r == -EBADMSG)
        come(owner, 0, file->size);
    return r;
}
