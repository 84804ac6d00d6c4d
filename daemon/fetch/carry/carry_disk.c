/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/carry/carry_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/model/models_dir.h"
#include "daemon/common/xalloc.h"
#include "daemon/fetch/have_map.h"
#include "daemon/fetch/part_file.h"
#include "daemon/fetch/settle.h"

enum block_state { BLOCK_MISSING, BLOCK_ASKED, BLOCK_HERE };

struct carry_file {
    int fd;                /* owned; −1: not opened yet */
    struct have_map *have; /* owned; NULL: the file has its name, or is not looked at yet */
    struct digest *hash;   /* owned: of its first `hashed` blocks; NULL: of none */
    uint32_t hashed;
    uint32_t checked;  /* blocks of an earlier pull that were looked at */
    uint64_t left;     /* bytes that such a pull has left */
    uint64_t unsynced; /* bytes since the last sync */
    bool is_named;
};

struct carry_disk {
    int dir, folder; /* folder: owned */
    char model[MODEL_NAME], content[DIGEST_HEX];
    bool is_whole;
    struct manifest *manifest; /* owned; NULL until it is known */
    uint8_t *list;             /* owned: the same as bytes */
    size_t list_n;
    struct carry_file *files; /* owned: as in the manifest */
    size_t *order;            /* owned: files as they should come */
    uint8_t *states;          /* owned: of each block */
    uint8_t *buf;             /* owned: a block */
    size_t check, named;      /* files that were looked at; that have their names */
    size_t next_file;         /* in `order`: no block before these two is missing */
    uint32_t next_block;
    uint64_t done;
};

/* --- opening ---------------------------------------------------------------------------------- */

static bool is_weights(const struct hub_file *f)
{
    const char *ending = strrchr(f->name, '.');
    return ending && !strcmp(ending, ".safetensors");
}

/* Small files first: a model that lacks one of them is of no use before its weights have come. */
static void make_order(struct carry_disk *d)
{
    size_t n = 0;
    d->order = xcalloc(d->manifest->n, sizeof *d->order);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < d->manifest->n; i++)
            if (is_weights(&d->manifest->files[i]) == (turn == 1))
                d->order[n++] = i;
}

void carry_disk_plan(struct carry_disk *d, struct manifest *manifest, uint8_t *list, size_t n)
{
    d->manifest = manifest;
    d->list = list;
    d->list_n = n;
    d->files = xcalloc(manifest->n, sizeof *d->files);
    for (size_t i = 0; i < manifest->n; i++)
        d->files[i].fd = -1;
    d->states = xcalloc((size_t)manifest->blocks + 1, 1);
    d->buf = xmalloc(BLOCK_BYTES);
    make_order(d);
}

static bool is_here(const struct carry_disk *d, const struct hub_file *file)
{
    struct stat st;
    return !fstatat(d->folder, file->name, &st, d->is_whole ? 0 : AT_SYMLINK_NOFOLLOW) &&
           S_ISREG(st.st_mode) && (uint64_t)st.st_size == file->size;
}

static void take_named(struct carry_disk *d, size_t i)
{
    const struct manifest *m = d->manifest;
    memset(d->states + m->first[i], BLOCK_HERE, m->first[i + 1] - m->first[i]);
    d->files[i].is_named = true;
    d->named++;
    d->done += m->files[i].size;
}

static int say_other(const struct carry_disk *d, const char *content, struct err *err)
{
    return content
               ? err_set(err, -EEXIST,
                         "%s is here with other bytes: its content is %.12s…, and %.12s… is wanted. Remove "
                         "it here, or on the other nodes",
                         d->model, content, d->content)
               : err_set(err, -EEXIST,
                         "%s was pulled here before models could be carried: remove it, and pull it again",
                         d->model);
}

static int load_list(struct carry_disk *d, struct err *err)
{
    char content[DIGEST_HEX];
    struct manifest *m = NULL;
    uint8_t *list;
    size_t n;
    int r = manifest_load(d->dir, d->model, &list, &n, err);
    if (r)
        return r;
    manifest_content(content, list, n);
    r = strcmp(content, d->content) ? err_set(err, -EBADMSG,
                                              "the list of blocks of %s is damaged: remove the "
                                              "model, and pull it again",
                                              d->model)
                                    : manifest_decode(&m, list, n, err);
    if (r) {
        free(list);
        return r;
    }
    carry_disk_plan(d, m, list, n);
    return 0;
}

static int open_whole(struct carry_disk *d, struct err *err)
{
    json_t *record = models_record_read(d->dir, d->model);
    const char *content = json_string_value(json_object_get(record, "content"));
    int r = content && !strcmp(content, d->content) ? 0 : say_other(d, content, err);
    json_decref(record);
    r = r ? r : load_list(d, err);
    if (r)
        return r;
    d->is_whole = true;
    d->folder = openat(d->dir, d->model, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->folder < 0)
        return err_set(err, -errno, "%s cannot be opened: %s", d->model, strerror(errno));
    for (size_t i = 0; i < d->manifest->n; i++, d->check++) {
        if (!is_here(d, &d->manifest->files[i]))
            return err_set(err, -EBADMSG,
                           "%s of %s is not here, or not as long as it was: remove the model, and "
                           "pull it again",
                           d->manifest->files[i].name, d->model);
        take_named(d, i);
    }
    return 0;
}

int carry_disk_open(struct carry_disk **ret, int dir, const char *model, const char *content, struct err *err)
{
    struct carry_disk *d = xcalloc(1, sizeof *d);
    *d = (struct carry_disk){.dir = dir, .folder = -1};
    snprintf(d->model, sizeof d->model, "%s", model);
    snprintf(d->content, sizeof d->content, "%s", content);
    int r = 0;
    if (models_is_whole(dir, model))
        r = open_whole(d, err);
    else if ((d->folder = settle_open_part(dir, model, err)) < 0)
        r = d->folder;
    if (r) {
        carry_disk_close(d);
        return r;
    }
    *ret = d;
    return 0;
}

void carry_disk_close(struct carry_disk *d)
{
    if (!d)
        return;
    for (size_t i = 0; d->files && i < d->manifest->n; i++) {
        struct carry_file *f = &d->files[i];
        if (f->fd >= 0)
            close(f->fd);
        have_map_close(f->have);
        digest_free(f->hash);
    }
    manifest_free(d->manifest);
    if (d->folder >= 0)
        close(d->folder);
    free(d->list);
    free(d->files);
    free(d->order);
    free(d->states);
    free(d->buf);
    free(d);
}

/* --- reading and writing ---------------------------------------------------------------------- */

static int say_lost(const struct hub_file *f, int r, const char *what, struct err *err)
{
    return r == -ENOSPC || r == -EDQUOT
               ? err_set(err, r,
                         "the disk is full while %s comes: free some, and ask again; what is here stays",
                         f->name)
               : err_set(err, r, "%s cannot be %s: %s", f->name, what, strerror(-r));
}

static int open_named(struct carry_disk *d, size_t i)
{
    struct carry_file *f = &d->files[i];
    if (f->fd < 0)
        f->fd = openat(d->folder, d->manifest->files[i].name, O_RDONLY | O_CLOEXEC);
    return f->fd < 0 ? -errno : 0;
}

int carry_disk_read(struct carry_disk *d, uint32_t block, uint32_t at, void *to, size_t n, struct err *err)
{
    const size_t i = manifest_file_of(d->manifest, block);
    const uint64_t from = manifest_offset(d->manifest, block) + at;
    int r = open_named(d, i);
    for (size_t done = 0; !r && done < n;) {
        const ssize_t got = pread(d->files[i].fd, (uint8_t *)to + done, n - done, (off_t)(from + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            r = got ? -errno : -EIO;
        else
            done += (size_t)got;
    }
    return r ? say_lost(&d->manifest->files[i], r, "read", err) : 0;
}

int carry_disk_write(struct carry_disk *d, uint32_t block, uint32_t at, const void *bytes, size_t n,
                     struct err *err)
{
    const size_t i = manifest_file_of(d->manifest, block);
    const uint64_t to = manifest_offset(d->manifest, block) + at;
    for (size_t done = 0; done < n;) {
        const ssize_t put =
            pwrite(d->files[i].fd, (const uint8_t *)bytes + done, n - done, (off_t)(to + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return say_lost(&d->manifest->files[i], put ? -errno : -EIO, "written", err);
        done += (size_t)put;
    }
    return 0;
}

int carry_disk_keep(struct carry_disk *d, uint32_t block, struct err *err)
{
    const size_t i = manifest_file_of(d->manifest, block);
    struct carry_file *f = &d->files[i];
    const uint32_t size = manifest_size(d->manifest, block);
    int r = have_map_set(f->have, block - d->manifest->first[i]);
    d->states[block] = BLOCK_HERE;
    d->done += size;
    f->unsynced += size;
    if (!r && f->unsynced >= PART_SYNC_BYTES) {
        r = have_map_sync(f->have, f->fd);
        f->unsynced = 0;
    }
    return r ? say_lost(&d->manifest->files[i], r, "written", err) : 0;
}

/* --- what is there already -------------------------------------------------------------------- */

/* A part that a power cut took, for its folder was not synced, takes its bits along. */
static int open_part(struct carry_disk *d, size_t i)
{
    struct carry_file *f = &d->files[i];
    const struct hub_file *file = &d->manifest->files[i];
    const uint32_t blocks = d->manifest->first[i + 1] - d->manifest->first[i];
    char name[HUB_FILE_NAME + 8];
    struct stat st;
    part_file_name(name, file->name);
    f->left = part_file_left(d->folder, file->name);
    if (fstatat(d->folder, name, &st, AT_SYMLINK_NOFOLLOW))
        have_map_remove(d->folder, file->name);
    f->fd = openat(d->folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (f->fd < 0 || fstat(f->fd, &st) ||
        ((uint64_t)st.st_size > file->size && ftruncate(f->fd, (off_t)file->size)))
        return -errno;
    int r = have_map_open(&f->have, d->folder, file->name, d->content, blocks);
    if (r)
        return r;
    for (uint32_t b = 0; b < blocks; b++)
        if (have_map_has(f->have, b)) {
            d->states[d->manifest->first[i] + b] = BLOCK_HERE;
            d->done += manifest_size(d->manifest, d->manifest->first[i] + b);
        }
    return fsync(d->folder) ? -errno : 0;
}

/* A block of what an earlier pull has left. 1: there is another one. */
static int check_block(struct carry_disk *d, size_t i, struct err *err)
{
    struct carry_file *f = &d->files[i];
    const uint32_t block = d->manifest->first[i] + f->checked;
    uint8_t hash[DIGEST];
    if (block >= d->manifest->first[i + 1])
        return 0;
    const uint32_t size = manifest_size(d->manifest, block);
    if (manifest_offset(d->manifest, block) + size > f->left)
        return 0;
    f->checked++;
    if (d->states[block] == BLOCK_HERE)
        return 1;
    const int r = carry_disk_read(d, block, 0, d->buf, size, err);
    if (r)
        return r;
    struct digest *digest = digest_new();
    digest_add(digest, d->buf, size);
    digest_take(digest, hash);
    digest_free(digest);
    const int kept = memcmp(hash, d->manifest->hashes[block], DIGEST) ? 0 : carry_disk_keep(d, block, err);
    return kept ? kept : 1;
}

/* The mark of an earlier pull says "all of it is there", so it goes before a gap is made. */
static int check_file(struct carry_disk *d, struct err *err)
{
    const size_t i = d->order[d->check];
    struct carry_file *f = &d->files[i];
    const struct hub_file *file = &d->manifest->files[i];
    if (!f->have && is_here(d, file)) {
        take_named(d, i);
        d->check++;
        return 1;
    }
    int r = f->have ? 0 : open_part(d, i);
    if (r)
        return say_lost(file, r, "opened", err);
    r = check_block(d, i, err);
    if (r)
        return r;
    part_file_forget(d->folder, file->name);
    d->check++;
    return 1;
}

bool carry_disk_is_checked(const struct carry_disk *d)
{
    return d->manifest && d->check == d->manifest->n;
}

/* --- names ------------------------------------------------------------------------------------ */

static int name_file(struct carry_disk *d, size_t i, struct err *err)
{
    struct carry_file *f = &d->files[i];
    const struct hub_file *file = &d->manifest->files[i];
    char part[HUB_FILE_NAME + 8], hex[DIGEST_HEX];
    part_file_name(part, file->name);
    digest_end(f->hash ? f->hash : digest_new_of(file), hex);
    f->hash = NULL;
    if (strcmp(hex, file->hash) != 0)
        return err_set(err, -EBADMSG,
                       "%s: its blocks are those of the list, and its hash is not: the node that pulled it "
                       "first has a wrong list. Remove the model there, and pull it again",
                       file->name);
    if (fsync(f->fd) || renameat(d->folder, part, d->folder, file->name) || fsync(d->folder))
        return say_lost(file, -errno, "written", err);
    have_map_close(f->have);
    f->have = NULL;
    have_map_remove(d->folder, file->name);
    f->is_named = true;
    d->named++;
    return 1;
}

/* The next block of a file whose blocks before it were hashed; it is still in the page cache. */
static int hash_block(struct carry_disk *d, size_t i, struct err *err)
{
    struct carry_file *f = &d->files[i];
    const uint32_t block = d->manifest->first[i] + f->hashed, size = manifest_size(d->manifest, block);
    const int r = carry_disk_read(d, block, 0, d->buf, size, err);
    if (r)
        return r;
    if (!f->hash)
        f->hash = digest_new_of(&d->manifest->files[i]);
    digest_add(f->hash, d->buf, size);
    f->hashed++;
    return 1;
}

int carry_disk_work(struct carry_disk *d, struct err *err)
{
    if (!d->manifest || d->named == d->manifest->n)
        return 0;
    if (!carry_disk_is_checked(d))
        return check_file(d, err);
    for (size_t k = 0; k < d->manifest->n; k++) {
        const size_t i = d->order[k];
        const uint32_t block = d->manifest->first[i] + d->files[i].hashed;
        if (d->files[i].is_named)
            continue;
        if (block == d->manifest->first[i + 1])
            return name_file(d, i, err);
        if (d->states[block] == BLOCK_HERE)
            return hash_block(d, i, err);
    }
    return 0;
}

int carry_disk_settle(struct carry_disk *d, struct err *err)
{
    const int r = settle_model(
        &(struct settle_setup){
            .dir = d->dir, .model = d->model, .source = "other nodes", .manifest = d->manifest},
        err);
    d->is_whole = !r;
    return r;
}

/* --- blocks ----------------------------------------------------------------------------------- */

bool carry_disk_next(struct carry_disk *d, uint32_t *ret)
{
    for (; d->next_file < d->manifest->n; d->next_file++, d->next_block = 0) {
        const size_t i = d->order[d->next_file];
        for (; d->manifest->first[i] + d->next_block < d->manifest->first[i + 1]; d->next_block++) {
            const uint32_t block = d->manifest->first[i] + d->next_block;
            if (d->states[block] != BLOCK_MISSING)
                continue;
            d->states[block] = BLOCK_ASKED;
            *ret = block;
            return true;
        }
    }
    return false;
}

void carry_disk_put_back(struct carry_disk *d, uint32_t block)
{
    if (d->states[block] == BLOCK_ASKED)
        d->states[block] = BLOCK_MISSING;
    d->next_file = 0;
    d->next_block = 0;
}

bool carry_disk_has(const struct carry_disk *d, uint32_t block)
{
    return d->states[block] == BLOCK_HERE;
}

bool carry_disk_is_whole(const struct carry_disk *d)
{
    return d->is_whole;
}

const struct manifest *carry_disk_manifest(const struct carry_disk *d)
{
    return d->manifest;
}

const uint8_t *carry_disk_list(const struct carry_disk *d, size_t *ret_n)
{
    *ret_n = d->list_n;
    return d->list;
}

uint64_t carry_disk_done(const struct carry_disk *d)
{
    return d->done;
}

bool carry_disk_is_complete(const struct carry_disk *d)
{
    return d->manifest && d->named == d->manifest->n;
}
