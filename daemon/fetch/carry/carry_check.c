/* SPDX-License-Identifier: MIT
 *
 * What is there already, of an earlier process or an earlier pull. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/fetch/carry/carry_disk_impl.h"
#include "daemon/fetch/part_file.h"
#include "engine/file/have_map.h"

static void take_whole(struct carry_disk *d, size_t i)
{
    const struct manifest *m = d->manifest;
    d->files[i].is_whole = true;
    d->whole++;
    for (uint32_t b = m->first[i]; b < m->first[i + 1]; b++)
        carry_want_here(d, b);
}

static void take_map(struct carry_disk *d, size_t i)
{
    const struct manifest *m = d->manifest;
    for (uint32_t b = m->first[i]; b < m->first[i + 1]; b++)
        if (have_map_has(d->files[i].have, b - m->first[i]))
            carry_want_here(d, b);
}

/* A part that a power cut took, for its folder was not synced, takes its bits along. */
static int open_part(struct carry_disk *d, size_t i)
{
    struct carry_file *f = &d->files[i];
    const struct hub_file *file = &d->manifest->files[i];
    const uint32_t blocks = d->manifest->first[i + 1] - d->manifest->first[i];
    char name[HUB_FILE_NAME + 8];
    struct stat st;
    carry_disk_name_of(d, i, name);
    f->left = part_file_left(d->folder, file->name);
    if (fstatat(d->folder, name, &st, AT_SYMLINK_NOFOLLOW))
        have_map_remove(d->folder, file->name);
    f->fd = openat(d->folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (f->fd < 0 || fstat(f->fd, &st) ||
        ((uint64_t)st.st_size > file->size && ftruncate(f->fd, (off_t)file->size)))
        return -errno;
    const int r = have_map_open(&f->have, d->folder, file->name, d->content, blocks);
    return r ? r : fsync(d->folder) ? -errno : 0;
}

/* Of a file that other nodes bring: the disk may have got more of it than was synced before a power
 * cut, so what is no hole is compared with the list. */
static bool may_be_there(const struct carry_disk *d, const struct carry_file *f, uint32_t block)
{
    const uint64_t at = manifest_offset(d->manifest, block), end = at + manifest_size(d->manifest, block);
    if (end <= f->left)
        return true;
    if (!have_map_was_cut(f->have) || !manifest_knows(d->manifest, block))
        return false;
    const off_t hole = lseek(f->fd, (off_t)at, SEEK_HOLE);
    return hole >= 0 && (uint64_t)hole >= end;
}

/* A block of what an earlier pull has left. 1: there may be another one. */
static int check_block(struct carry_disk *d, size_t i, struct err *err)
{
    struct carry_file *f = &d->files[i];
    const uint32_t first = d->manifest->first[i], n = d->manifest->first[i + 1] - first;
    uint8_t hash[DIGEST];
    while (f->checked < n &&
           (carry_disk_has(d, first + f->checked) || !may_be_there(d, f, first + f->checked)))
        f->checked++;
    if (f->checked == n)
        return 0;
    const uint32_t block = first + f->checked++, size = manifest_size(d->manifest, block);
    const int r = carry_disk_read(d, block, 0, d->buf, size, err);
    if (r)
        return r;
    struct digest *digest = digest_new();
    digest_add(digest, d->buf, size);
    digest_take(digest, hash);
    digest_free(digest);
    const bool is_other =
        manifest_knows(d->manifest, block) && memcmp(hash, d->manifest->hashes[block], DIGEST) != 0;
    const int kept = is_other ? 0 : carry_disk_keep(d, block, hash, err);
    return kept ? kept : 1;
}

/* All of it is in blocks that are here. */
static bool is_head_in_blocks(const struct carry_disk *d, size_t i, uint32_t head)
{
    const uint32_t first = d->manifest->first[i], size = manifest_size(d->manifest, head);
    for (uint32_t b = 0; (uint64_t)b * BLOCK_BYTES < size; b++)
        if (!carry_disk_has(d, first + b))
            return false;
    return true;
}

/* The head, if it came as such, or its blocks did. */
static int check_head(struct carry_disk *d, size_t i, struct err *err)
{
    const struct carry_file *f = &d->files[i];
    const uint32_t head = manifest_head_of(d->manifest, i);
    const bool is_marked = f->is_whole || (f->have && have_map_has_head(f->have));
    uint8_t hash[DIGEST];
    if (head == UINT32_MAX || (!is_marked && !carry_disk_has(d, d->manifest->first[i])))
        return 0;
    int r = carry_disk_open_to_read(d, i);
    r = r ? r : manifest_read_head(d->manifest, head, d->files[i].fd, hash);
    if (!r && !is_marked && is_head_in_blocks(d, i, head))
        return carry_disk_keep(d, head, hash, err);
    if (!r && is_marked) {
        r = carry_disk_note_hash(d, head, hash);
        carry_want_here(d, head);
    } else {
        carry_disk_size_head(d, head, NULL);
    }
    return r ? carry_disk_say_lost(&d->manifest->files[i], r, "read", err) : 0;
}

/* The mark of an earlier pull says "all of it is there", so it goes before a gap is made. */
int carry_check_file(struct carry_disk *d, struct err *err)
{
    const size_t i = d->order[d->check];
    struct carry_file *f = &d->files[i];
    const struct hub_file *file = &d->manifest->files[i];
    int r = 0;
    if (!f->have && carry_disk_is_here(d, file)) {
        take_whole(d, i);
    } else {
        const bool is_new = !f->have;
        r = is_new ? open_part(d, i) : 0;
        if (r)
            return carry_disk_say_lost(file, r, "opened", err);
        if (is_new)
            take_map(d, i);
        r = check_block(d, i, err);
        if (r)
            return r;
        part_file_forget(d->folder, file->name);
    }
    r = check_head(d, i, err);
    d->check++;
    if (!r && carry_disk_is_checked(d))
        r = carry_want_begin(d, err);
    return r ? r : 1;
}
