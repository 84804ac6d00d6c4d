/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/model/models_dir.h"
#include "daemon/common/xalloc.h"
#include "daemon/fetch/manifest.h"
#include "daemon/fetch/part_file.h"
#include "engine/file/have_map.h"

static bool read_entry(const json_t *entry, struct hub_file *ret)
{
    const char *name = json_string_value(json_object_get(entry, "name")),
               *sha = json_string_value(json_object_get(entry, "sha256")),
               *git = json_string_value(json_object_get(entry, "git"));
    const json_int_t size = json_integer_value(json_object_get(entry, "size"));
    *ret = (struct hub_file){.size = size > 0 ? (uint64_t)size : 0, .has_size = true};
    return name && strlen(name) <= HUB_FILE_NAME && !strchr(name, '/') && (sha || git) &&
           snprintf(ret->name, sizeof ret->name, "%s", name) > 0 && hub_hash_read(ret, sha ? sha : git);
}

/* NULL: it was pulled before there were such lists, or its files lie in the cache since then. */
static int load_manifest(int dir, const char *model, const json_t *record, struct manifest **ret,
                         struct err *err)
{
    const char *content = json_string_value(json_object_get(record, "content")),
               *list = json_string_value(json_object_get(record, "list"));
    char found[DIGEST_HEX], all[DIGEST_HEX];
    uint8_t *bytes;
    size_t n;
    *ret = NULL;
    if (!content)
        return 0;
    int r = manifest_load(dir, model, &bytes, &n, err);
    if (r)
        return r;
    manifest_content(found, bytes, n);
    manifest_list(all, bytes, n);
    r = strcmp(found, content) || (list && strcmp(all, list) != 0)
            ? err_set(err, -EBADMSG,
                      "the list of blocks of %s is not the one that was written: remove the model, and pull "
                      "it again",
                      model)
            : manifest_decode(ret, bytes, n, err);
    free(bytes);
    return r;
}

/* Of a block that came before its process was killed it may not be. */
static bool is_known(const uint8_t hash[DIGEST])
{
    static const uint8_t unknown[DIGEST];
    return memcmp(hash, unknown, DIGEST) != 0;
}

/* The head of a file has a hash of its own. */
static int verify_head(int fd, const struct hub_file *file, struct manifest *m, struct err *err)
{
    uint8_t found[DIGEST];
    size_t i = 0;
    while (i < m->n && strcmp(m->files[i].name, file->name) != 0)
        i++;
    const uint32_t head = i < m->n ? manifest_head_of(m, i) : UINT32_MAX;
    if (head == UINT32_MAX || !manifest_knows(m, head))
        return 0;
    if (manifest_read_head(m, head, fd, found))
        return err_set(err, -EIO, "the head of %s cannot be read", file->name);
    return memcmp(found, m->hashes[head], DIGEST)
               ? err_set(err, -EBADMSG,
                         "the head of %s is not what came: it has been changed, or the disk is damaged",
                         file->name)
               : 0;
}

/* manifest: NULL: only its whole hash is known. */
static int verify_file(int folder, struct hub_file *file, struct manifest *manifest, struct err *err)
{
    const size_t n = (size_t)((file->size + BLOCK_BYTES - 1) / BLOCK_BYTES);
    uint8_t(*listed)[DIGEST] = manifest ? manifest_hashes_of(manifest, file->name) : NULL;
    uint8_t(*found)[DIGEST] = listed ? xcalloc(n + 1, sizeof *found) : NULL;
    int r = 0;
    if (manifest && !listed)
        r = err_set(err, -EBADMSG, "%s is not in the list of the model's blocks", file->name);
    r = r ? r : part_file_check(folder, file, found, err);
    for (size_t b = 0; !r && b < n && listed; b++)
        if (is_known(listed[b]) && memcmp(listed[b], found[b], sizeof *found) != 0)
            r = err_set(err, -EBADMSG, "%s does not fit the list of the model's blocks", file->name);
    const int fd = r || !listed ? -1 : openat(folder, file->name, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        r = verify_head(fd, file, manifest, err);
        close(fd);
    }
    free(found);
    return r;
}

/* Blocks that have come of a file that is not whole. */
static int verify_part(int folder, const struct hub_file *file, const struct have_map *have,
                       struct manifest *manifest, struct err *err)
{
    uint8_t(*listed)[DIGEST] = manifest ? manifest_hashes_of(manifest, file->name) : NULL, found[DIGEST];
    const int fd = listed ? openat(folder, file->name, O_RDONLY | O_CLOEXEC) : -1;
    struct digest *digest = digest_new();
    uint8_t *block = xmalloc(BLOCK_BYTES);
    int r = fd < 0
                ? err_set(err, -EBADMSG,
                          "%s is here in part, and cannot be compared with a list of its blocks", file->name)
                : 0;
    if (!r && have_map_has_head(have))
        r = verify_head(fd, file, manifest, err);
    for (uint32_t b = 0; !r && (uint64_t)b * BLOCK_BYTES < file->size; b++) {
        const uint64_t at = (uint64_t)b * BLOCK_BYTES, left = file->size - at;
        const size_t n = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
        if (!have_map_has(have, b))
            continue;
        if (pread(fd, block, n, (off_t)at) != (ssize_t)n)
            r = err_set(err, -EIO, "block %u of %s cannot be read", b, file->name);
        digest_add(digest, block, n);
        digest_take(digest, found);
        if (!r && is_known(listed[b]) && memcmp(found, listed[b], sizeof found) != 0)
            r = err_set(err, -EBADMSG,
                        "block %u of %s is not what came: it has been changed, or the disk is damaged", b,
                        file->name);
    }
    free(block);
    digest_free(digest);
    if (fd >= 0)
        close(fd);
    return r;
}

/* ret_n: bytes that were read. */
static int verify_one(int folder, struct hub_file *file, struct manifest *manifest, uint64_t *ret_n,
                      struct err *err)
{
    struct have_map *have;
    *ret_n = file->size;
    if (have_map_read(&have, folder, file->name, file->size))
        return verify_file(folder, file, manifest, err);
    *ret_n = have_map_bytes(have, file->size);
    const int r = verify_part(folder, file, have, manifest, err);
    have_map_close(have);
    return r;
}

/* Bytes of its files that are here. */
static uint64_t here_of(int folder, const json_t *files)
{
    uint64_t sum = 0;
    size_t i;
    json_t *entry;
    json_array_foreach (files, i, entry) {
        struct hub_file file;
        struct have_map *have;
        if (!read_entry(entry, &file))
            continue;
        if (have_map_read(&have, folder, file.name, file.size)) {
            sum += file.size;
            continue;
        }
        sum += have_map_bytes(have, file.size);
        have_map_close(have);
    }
    return sum;
}

int verify_model(int dir, const char *model,
                 void (*progress)(void *owner, uint64_t done, uint64_t total, const char *file), void *owner,
                 struct err *err)
{
    json_t *record = models_record_read(dir, model), *entry;
    const int folder = openat(dir, model, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const uint64_t total = folder < 0 ? 0 : here_of(folder, json_object_get(record, "files"));
    struct manifest *manifest = NULL;
    uint64_t done = 0;
    size_t i;
    int r = folder < 0 ? err_set(err, -ENOENT, "%s is not here", model)
            : json_array_size(json_object_get(record, "files"))
                ? load_manifest(dir, model, record, &manifest, err)
                : err_set(err, -ENOENT,
                          "%s lies in Hugging Face's cache, and the hashes of its files are not known here",
                          model);
    json_array_foreach (json_object_get(record, "files"), i, entry) {
        struct hub_file file;
        if (!r && !read_entry(entry, &file))
            r = err_set(err, -EBADMSG, "the record of %s cannot be read: remove it, and pull it again",
                        model);
        uint64_t n = 0;
        r = r ? r : verify_one(folder, &file, manifest, &n, err);
        done += r ? 0 : n;
        if (!r)
            progress(owner, done, total, file.name);
    }
    if (folder >= 0)
        close(folder);
    manifest_free(manifest);
    json_decref(record);
    return r;
}
