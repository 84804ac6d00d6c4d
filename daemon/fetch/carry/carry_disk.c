/* SPDX-License-Identifier: MIT
 *
 * Folder, files and names; carry_check.c looks at what is there, carry_want.c at what is wanted.
 * Until the model has its name, its files are below .part, those of weights as NAME.part; from
 * then on all have their names, and what is not whole has a map beside it. */
#include "daemon/fetch/carry/carry_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/model/models_dir.h"
#include "daemon/common/xalloc.h"
#include "daemon/fetch/carry/carry_disk_impl.h"
#include "daemon/fetch/part_file.h"
#include "daemon/fetch/settle.h"
#include "daemon/fetch/syncer.h"
#include "engine/file/have_map.h"

/* --- opening ---------------------------------------------------------------------------------- */

void carry_disk_plan(struct carry_disk *d, struct manifest *manifest, uint8_t *list, size_t n)
{
    d->manifest = manifest;
    d->list = list;
    d->list_n = n;
    if (!manifest_knows_all(manifest)) /* as the hub has it */
        *d->list_hash = '\0';
    d->files = xcalloc(manifest->n, sizeof *d->files);
    for (size_t i = 0; i < manifest->n; i++) {
        d->files[i].fd = -1;
        d->files[i].unwanted = manifest->first[i + 1] - manifest->first[i];
    }
    d->blocks = xcalloc((size_t)manifest->blocks + 1, sizeof *d->blocks);
    d->buf = xmalloc(BLOCK_BYTES);
    carry_want_plan(d);
}

/* Whole, if it has no map. */
bool carry_disk_is_here(const struct carry_disk *d, const struct hub_file *file)
{
    struct stat st;
    return !fstatat(d->folder, file->name, &st, d->is_named ? 0 : AT_SYMLINK_NOFOLLOW) &&
           S_ISREG(st.st_mode) && (uint64_t)st.st_size == file->size &&
           !have_map_is_there(d->folder, file->name);
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

static int open_note(struct carry_disk *d, struct err *err)
{
    if (manifest_knows_all(d->manifest))
        return 0;
    d->note = manifest_open(d->dir, d->model);
    return d->note < 0 ? err_set(err, d->note, "the list of blocks of %s cannot be opened: %s", d->model,
                                 strerror(-d->note))
                       : 0;
}

static int load_list(struct carry_disk *d, struct err *err)
{
    char content[DIGEST_HEX], all[DIGEST_HEX];
    struct manifest *m = NULL;
    uint8_t *list;
    size_t n;
    int r = manifest_load(d->dir, d->model, &list, &n, err);
    if (r)
        return r;
    manifest_content(content, list, n);
    manifest_list(all, list, n);
    r = strcmp(content, d->content) || (*d->list_hash && strcmp(all, d->list_hash) != 0)
            ? err_set(err, -EBADMSG,
                      "the list of blocks of %s is damaged: remove the model, and pull it again", d->model)
            : manifest_decode(&m, list, n, err);
    if (r) {
        free(list);
        return r;
    }
    carry_disk_plan(d, m, list, n);
    return open_note(d, err);
}

/* Of a model that is whole nothing is looked at: only its lengths must be right. */
static int check_lengths(struct carry_disk *d, struct err *err)
{
    for (size_t i = 0; i < d->manifest->n; i++)
        if (!carry_disk_is_here(d, &d->manifest->files[i]) &&
            !have_map_is_there(d->folder, d->manifest->files[i].name))
            return err_set(err, -EBADMSG,
                           "%s of %s is not here, or not as long as it was: remove the model, and "
                           "pull it again",
                           d->manifest->files[i].name, d->model);
    return 0;
}

static int open_named(struct carry_disk *d, struct err *err)
{
    json_t *record = models_record_read(d->dir, d->model);
    const char *content = json_string_value(json_object_get(record, "content")),
               *list = json_string_value(json_object_get(record, "list"));
    int r = content && !strcmp(content, d->content) ? 0 : say_other(d, content, err);
    snprintf(d->list_hash, sizeof d->list_hash, "%s", list ? list : "");
    json_decref(record);
    r = r ? r : load_list(d, err);
    if (r)
        return r;
    d->is_named = true;
    d->folder = openat(d->dir, d->model, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->folder < 0)
        return err_set(err, -errno, "%s cannot be opened: %s", d->model, strerror(errno));
    if (!models_is_whole(d->dir, d->model) && flock(d->folder, LOCK_EX | LOCK_NB))
        return err_set(err, -EBUSY,
                       "%s is still being brought by an earlier ringd-fetch: ask again in a moment",
                       d->model);
    return check_lengths(d, err);
}

int carry_disk_open(struct carry_disk **ret, int dir, const char *model, const char *content,
                    const char *list, struct err *err)
{
    struct carry_disk *d = xcalloc(1, sizeof *d);
    *d = (struct carry_disk){.dir = dir, .folder = -1, .note = -1, .source = "other nodes"};
    snprintf(d->model, sizeof d->model, "%s", model);
    snprintf(d->content, sizeof d->content, "%s", content);
    snprintf(d->list_hash, sizeof d->list_hash, "%s", list);
    int r = 0;
    if (models_has_name(dir, model))
        r = open_named(d, err);
    else if ((d->folder = settle_open_part(dir, model, err)) < 0)
        r = d->folder;
    if (r) {
        carry_disk_close(d);
        return r;
    }
    *ret = d;
    return 0;
}

void carry_disk_set_source(struct carry_disk *d, const char *source)
{
    d->source = source;
}

void carry_disk_close(struct carry_disk *d)
{
    if (!d)
        return;
    syncer_free(d->syncer);
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
    if (d->note >= 0)
        close(d->note);
    json_decref(d->asked);
    free(d->list);
    free(d->files);
    free(d->order);
    free(d->spans);
    free(d->blocks);
    free(d->buf);
    free(d);
}

/* --- reading and writing ---------------------------------------------------------------------- */

int carry_disk_say_lost(const struct hub_file *f, int r, const char *what, struct err *err)
{
    return r == -ENOSPC || r == -EDQUOT
               ? err_set(err, r,
                         "the disk is full while %s comes: free some, and ask again; what is here stays",
                         f->name)
               : err_set(err, r, "%s cannot be %s: %s", f->name, what, strerror(-r));
}

int carry_disk_open_to_read(struct carry_disk *d, size_t i)
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
    int r = carry_disk_open_to_read(d, i);
    for (size_t done = 0; !r && done < n;) {
        const ssize_t got = pread(d->files[i].fd, (uint8_t *)to + done, n - done, (off_t)(from + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            r = got ? -errno : -EIO;
        else
            done += (size_t)got;
    }
    return r ? carry_disk_say_lost(&d->manifest->files[i], r, "read", err) : 0;
}

/* A head and blocks of 4 MiB overlap. What is here of one was checked, and what comes of the other
 * is not yet: it may not take its place. Of n bytes at `at` of a file: how many of the first are
 * alike in this. is_kept: they stay as they are. */
static size_t alike(const struct carry_disk *d, uint32_t block, uint64_t at, size_t n, bool *is_kept)
{
    const struct manifest *m = d->manifest;
    const size_t i = manifest_file_of(m, block);
    const bool is_head = manifest_is_head(m, block);
    const uint32_t other = is_head ? m->first[i] + (uint32_t)(at / BLOCK_BYTES) : manifest_head_of(m, i);
    *is_kept = false;
    if (other == UINT32_MAX)
        return n;
    const uint64_t end = manifest_offset(m, other) + manifest_size(m, other);
    if (at >= end)
        return n;
    *is_kept = carry_disk_has(d, other);
    return end - at < n ? (size_t)(end - at) : n;
}

int carry_disk_write(struct carry_disk *d, uint32_t block, uint32_t at, const void *bytes, size_t n,
                     struct err *err)
{
    const size_t i = manifest_file_of(d->manifest, block);
    const uint64_t to = manifest_offset(d->manifest, block) + at;
    for (size_t done = 0; done < n;) {
        bool is_kept;
        const size_t part = alike(d, block, to + done, n - done, &is_kept);
        const ssize_t put =
            is_kept ? (ssize_t)part
                    : pwrite(d->files[i].fd, (const uint8_t *)bytes + done, part, (off_t)(to + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return carry_disk_say_lost(&d->manifest->files[i], put ? -errno : -EIO, "written", err);
        done += (size_t)put;
    }
    return 0;
}

static int set_hash(struct carry_disk *d, uint32_t block, const uint8_t hash[DIGEST])
{
    memcpy(d->manifest->hashes[block], hash, DIGEST);
    memcpy(d->list + d->list_n - (size_t)(d->manifest->blocks - block) * DIGEST, hash, DIGEST);
    return d->note >= 0 ? manifest_note(d->note, d->manifest, d->list_n, block) : 0;
}

int carry_disk_note_hash(struct carry_disk *d, uint32_t block, const uint8_t hash[DIGEST])
{
    return manifest_knows(d->manifest, block) ? 0 : set_hash(d, block, hash);
}

/* Its bits count after a power cut once its bytes, and what is known of their hashes, are safe. */
static int make_safe(struct carry_disk *d, const struct carry_file *f, uint32_t fresh)
{
    const struct have_note note = have_map_note(f->have);
    const int r = d->syncer ? 0 : syncer_new(&d->syncer);
    return r ? r
             : syncer_ask(d->syncer, &(struct sync_order){.before = d->note,
                                                          .file = f->fd,
                                                          .note = note.fd,
                                                          .bytes = note.bits,
                                                          .n = note.n,
                                                          .at = note.at,
                                                          .fresh = fresh});
}

/* Of a file whose map changes in another way from now on. */
static int forget_sync(struct carry_disk *d, const struct carry_file *f)
{
    return d->syncer ? syncer_forget(d->syncer, f->fd) : 0;
}

/* The block holds bytes of a head, or is one, and the other one of them is not here: what comes of
 * that may be wrong, and may have taken the place of what is right. */
static bool may_be_overwritten(const struct carry_disk *d, size_t i, uint32_t block)
{
    const struct manifest *m = d->manifest;
    const uint32_t head = manifest_head_of(m, i), size = head == UINT32_MAX ? 0 : manifest_size(m, head);
    if (head == UINT32_MAX || (block != head && carry_disk_has(d, head)))
        return false;
    if (block != head)
        return size == HEAD_LENGTH || manifest_offset(m, block) < size;
    for (uint32_t b = m->first[i]; (uint64_t)(b - m->first[i]) * BLOCK_BYTES < size; b++)
        if (!carry_disk_has(d, b))
            return true;
    return false;
}

/* ret: whether the disk has these bytes of it. */
static int read_again(struct carry_disk *d, uint32_t block, const uint8_t hash[DIGEST], bool *ret,
                      struct err *err)
{
    const uint32_t size = manifest_size(d->manifest, block);
    struct digest *digest = digest_new();
    uint8_t found[DIGEST];
    int r = 0;
    for (uint32_t at = 0, n; at < size && !r; at += n) {
        n = size - at < BLOCK_BYTES ? size - at : BLOCK_BYTES;
        r = carry_disk_read(d, block, at, d->buf, n, err);
        digest_add(digest, d->buf, r ? 0 : n);
    }
    digest_take(digest, found);
    digest_free(digest);
    *ret = !memcmp(found, hash, DIGEST);
    return r;
}

int carry_disk_keep(struct carry_disk *d, uint32_t block, const uint8_t hash[DIGEST], struct err *err)
{
    const size_t i = manifest_file_of(d->manifest, block);
    struct carry_file *f = &d->files[i];
    bool is_there = true;
    int r = may_be_overwritten(d, i, block) ? read_again(d, block, hash, &is_there, err) : 0;
    if (!is_there)
        carry_disk_put_back(d, block);
    if (r || !is_there)
        return r;
    r = carry_disk_note_hash(d, block, hash);
    if (!r)
        r = manifest_is_head(d->manifest, block) ? have_map_set_head(f->have)
                                                 : have_map_set(f->have, block - d->manifest->first[i]);
    d->kept++;
    r = r ? r : make_safe(d, f, manifest_size(d->manifest, block));
    if (r)
        return carry_disk_say_lost(&d->manifest->files[i], r, "written", err);
    carry_want_here(d, block);
    return 0;
}

/* --- names ------------------------------------------------------------------------------------ */

void carry_disk_name_of(const struct carry_disk *d, size_t i, char ret[HUB_FILE_NAME + 8])
{
    const char *name = d->manifest->files[i].name;
    if (d->is_named)
        snprintf(ret, HUB_FILE_NAME + 8, "%s", name);
    else
        part_file_name(ret, name);
}

/* Of a list that is known each block was compared, so the list is wrong. Else it is not known which
 * of its blocks is: all of them have to come again. */
static int refuse_file(struct carry_disk *d, size_t i, struct err *err)
{
    struct carry_file *f = &d->files[i];
    const struct hub_file *file = &d->manifest->files[i];
    if (*d->list_hash)
        return err_set(err, -EBADMSG,
                       "%s: its blocks are those of the list, and its hash is not: the node that pulled it "
                       "first has a wrong list. Remove the model there, and pull it again",
                       file->name);
    static const uint8_t unknown[DIGEST];
    int r = forget_sync(d, f);
    r = r ? r : have_map_clear(f->have, d->content);
    const uint32_t head = manifest_head_of(d->manifest, i);
    for (uint32_t b = d->manifest->first[i]; b < d->manifest->first[i + 1] && !r; b++)
        r = set_hash(d, b, unknown);
    r = r || head == UINT32_MAX ? r : set_hash(d, head, unknown);
    if (r || ftruncate(f->fd, 0) || (d->is_named && ftruncate(f->fd, (off_t)file->size)))
        return carry_disk_say_lost(file, r ? r : -errno, "written", err);
    return err_set(err, -EBADMSG,
                   "%s: the bytes that came are not those that the hub announced, for their hash differs: "
                   "they were thrown away",
                   file->name);
}

/* Now the list is known, for those who take it from here. */
static int settle_if_whole(struct carry_disk *d, struct err *err)
{
    if (d->whole < d->manifest->n || !d->is_named || *d->list_hash || !manifest_knows_all(d->manifest))
        return 0;
    return settle_list(d->dir, d->model, d->manifest, err);
}

static int name_file(struct carry_disk *d, size_t i, struct err *err)
{
    struct carry_file *f = &d->files[i];
    const struct hub_file *file = &d->manifest->files[i];
    char part[HUB_FILE_NAME + 8], hex[DIGEST_HEX];
    carry_disk_name_of(d, i, part);
    digest_end(f->hash ? f->hash : digest_new_of(file), hex);
    f->hash = NULL;
    if (strcmp(hex, file->hash) != 0)
        return refuse_file(d, i, err);
    const int lost = forget_sync(d, f);
    if (lost || fsync(f->fd) || (!d->is_named && renameat(d->folder, part, d->folder, file->name)))
        return carry_disk_say_lost(file, lost ? lost : -errno, "written", err);
    have_map_close(f->have);
    f->have = NULL;
    have_map_remove(d->folder, file->name); /* that it is whole survives a power cut as well */
    if (fsync(d->folder))
        return carry_disk_say_lost(file, -errno, "written", err);
    f->is_whole = true;
    d->whole++;
    const int r = settle_if_whole(d, err);
    return r ? r : 1;
}

/* Of a block that came before its process was killed. */
static int note_read(struct carry_disk *d, uint32_t block, uint32_t size)
{
    uint8_t hash[DIGEST];
    struct digest *digest = digest_new();
    digest_add(digest, d->buf, size);
    digest_take(digest, hash);
    digest_free(digest);
    return carry_disk_note_hash(d, block, hash);
}

/* The next block of a file whose blocks before it were hashed; it may still be in the page cache.
 * */
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
    const int noted = manifest_knows(d->manifest, block) ? 0 : note_read(d, block, size);
    return noted ? carry_disk_say_lost(&d->manifest->files[i], noted, "written", err) : 1;
}

/* All blocks of the outline are here; those of weights survive a power cut once the folder has its
 * name. A file of weights has its length from now on, and reads as zeros where it has not come. */
static int give_names(struct carry_disk *d, struct err *err)
{
    for (size_t i = 0; i < d->manifest->n; i++) {
        struct carry_file *f = &d->files[i];
        const struct hub_file *file = &d->manifest->files[i];
        char part[HUB_FILE_NAME + 8];
        carry_disk_name_of(d, i, part);
        if (f->is_whole)
            continue;
        int r = forget_sync(d, f);
        if (!r)
            r = ftruncate(f->fd, (off_t)file->size) ? -errno : have_map_sync(f->have, f->fd);
        if (!r && renameat(d->folder, part, d->folder, file->name))
            r = -errno;
        if (r)
            return carry_disk_say_lost(file, r, "written", err);
    }
    if (fsync(d->folder))
        return err_set(err, -errno, "the folder of %s cannot be written: %s", d->model, strerror(errno));
    d->is_named = true;
    const int r = settle_model(
        &(struct settle_setup){
            .dir = d->dir, .model = d->model, .source = d->source, .manifest = d->manifest},
        err);
    return r ? r : open_note(d, err);
}

/* A file of which not all is wanted is not hashed: it does not become whole. */
static bool is_hashed_to_the_end(const struct carry_disk *d, size_t i)
{
    return d->manifest->first[i] + d->files[i].hashed == d->manifest->first[i + 1];
}

int carry_disk_work(struct carry_disk *d, struct err *err)
{
    if (!d->manifest)
        return 0;
    if (!carry_disk_is_checked(d))
        return carry_check_file(d, err);
    for (size_t k = 0; k < d->manifest->n && d->whole < d->manifest->n; k++) {
        const size_t i = d->order[k];
        if (d->files[i].is_whole || d->files[i].unwanted)
            continue;
        if (is_hashed_to_the_end(d, i))
            return name_file(d, i, err);
        if (carry_disk_has(d, d->manifest->first[i] + d->files[i].hashed))
            return hash_block(d, i, err);
    }
    if (!d->is_named && d->wants && !d->outline_left) {
        const int r = give_names(d, err);
        return r ? r : 1;
    }
    return 0;
}

bool carry_disk_is_checked(const struct carry_disk *d)
{
    return d->manifest && d->check == d->manifest->n;
}

bool carry_disk_is_named(const struct carry_disk *d)
{
    return d->is_named;
}

bool carry_disk_is_whole(const struct carry_disk *d)
{
    return d->is_named && d->manifest && d->whole == d->manifest->n;
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

bool carry_disk_is_complete(const struct carry_disk *d)
{
    if (!d->is_named || !carry_disk_is_checked(d) || d->done < d->total)
        return false;
    for (size_t i = 0; i < d->manifest->n; i++)
        if (!d->files[i].is_whole && !d->files[i].unwanted)
            return false;
    return true;
}
