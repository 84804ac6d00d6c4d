/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/settle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/model/models_dir.h"
#include "daemon/fetch/part_file.h"
#include "engine/file/have_map.h"

/* A file that is here in part is NAME.part there. It may still have the name that it gets with the
 * model's: that is the step before. */
static int name_parts(int folder)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int r = d ? 0 : -errno;
    for (struct dirent *e; !r && (e = readdir(d));) {
        const size_t n = strlen(e->d_name), end = sizeof HAVE_ENDING - 1;
        char name[HUB_FILE_NAME + 8], part[HUB_FILE_NAME + 8];
        if (n <= end || n - end > HUB_FILE_NAME || strcmp(e->d_name + n - end, HAVE_ENDING) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - end), e->d_name);
        part_file_name(part, name);
        if (faccessat(folder, part, F_OK, AT_SYMLINK_NOFOLLOW) && renameat(folder, name, folder, part) &&
            errno != ENOENT)
            r = -errno;
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return r;
}

int settle_open_part(int dir, const char *model, struct err *err)
{
    char part[MODELS_PATH];
    models_part_path(part, model);
    int r = models_make_parents(dir, part);
    if (!r && mkdirat(dir, part, 0770) && errno != EEXIST)
        r = -errno;
    const int folder = r ? -1 : openat(dir, part, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (!r && folder < 0)
        r = -errno;
    if (!r && flock(folder, LOCK_EX | LOCK_NB))
        r = -EBUSY;
    r = r ? r : name_parts(folder);
    if (!r)
        return folder;
    if (folder >= 0)
        close(folder);
    return r == -EBUSY
               ? err_set(err, r, "%s is still being brought by an earlier ringd-fetch: ask again in a moment",
                         model)
               : err_set(err, r, "the folder for %s cannot be made: %s", model, strerror(-r));
}

int settle_take_name(int dir, const char *model, struct err *err)
{
    char part[MODELS_PATH];
    models_part_path(part, model);
    const int folder = openat(dir, model, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int r = folder < 0 ? -errno : flock(folder, LOCK_EX | LOCK_NB) ? -EBUSY : models_make_parents(dir, part);
    if (!r && unlinkat(dir, part, AT_REMOVEDIR) && errno != ENOENT)
        r = -errno;
    if (!r && renameat(dir, model, dir, part))
        r = -errno;
    if (folder >= 0)
        close(folder);
    return !r ? 0
           : r == -EBUSY
               ? err_set(err, r, "parts of %s come from other nodes, or go there: ask again in a moment",
                         model)
               : err_set(err, r, "%s cannot be made whole: %s", model, strerror(-r));
}

static json_t *list_files(const struct manifest *m)
{
    json_t *files = json_array();
    for (size_t i = 0; i < m->n; i++) {
        const struct hub_file *f = &m->files[i];
        json_array_append_new(files, json_pack("{s:s s:I s:s}", "name", f->name, "size", (json_int_t)f->size,
                                               f->kind == HUB_HASH_GIT ? "git" : "sha256", f->hash));
    }
    return files;
}

/* list: "" while hashes of blocks are not known. */
static int write_record(const struct settle_setup *s, const char *content, const char *list, struct err *err)
{
    const char *commit = strchr(s->model, '@');
    json_t *record = json_pack("{s:s s:s* s:s* s:b s:s s:s* s:I s:I s:I s:b s:o}", "commit",
                               commit ? commit + 1 : "", "source", s->source, "in_place", s->in_place,
                               "added", s->is_added, "content", content, "list", *list ? list : NULL, "bytes",
                               (json_int_t)s->manifest->bytes, "pulled", (json_int_t)time(NULL), "used",
                               (json_int_t)time(NULL), "pinned", 0, "files", list_files(s->manifest));
    const int r = models_record_write(s->dir, s->model, record);
    json_decref(record);
    return r ? err_set(err, r, "the record of %s cannot be written: %s", s->model, strerror(-r)) : 0;
}

static int give_name(const struct settle_setup *s, struct err *err)
{
    char part[MODELS_PATH], org[MODELS_PATH];
    models_part_path(part, s->model);
    snprintf(org, sizeof org, "%.*s", (int)strcspn(s->model, "/"), s->model);
    int r = models_make_parents(s->dir, s->model);
    if (!r && renameat(s->dir, part, s->dir, s->model))
        r = -errno;
    const int fd = r ? -1 : openat(s->dir, org, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!r && (fd < 0 || fsync(fd)))
        r = -errno;
    if (fd >= 0)
        close(fd);
    return r ? err_set(err, r, "%s cannot get its name: %s", s->model, strerror(-r)) : 0;
}

int settle_model(const struct settle_setup *s, struct err *err)
{
    char content[DIGEST_HEX], list[DIGEST_HEX] = "";
    size_t n;
    uint8_t *bytes = manifest_encode(s->manifest, &n);
    manifest_content(content, bytes, n);
    if (manifest_knows_all(s->manifest))
        manifest_list(list, bytes, n);
    int r = manifest_store(s->dir, s->model, bytes, n, err);
    free(bytes);
    r = r ? r : write_record(s, content, list, err);
    return r ? r : give_name(s, err);
}

int settle_list(int dir, const char *model, const struct manifest *m, struct err *err)
{
    char list[DIGEST_HEX];
    size_t n;
    json_t *record = models_record_read(dir, model);
    uint8_t *bytes = manifest_encode(m, &n);
    manifest_list(list, bytes, n);
    int r = record ? manifest_store(dir, model, bytes, n, err)
                   : err_set(err, -ENOENT, "the record of %s is gone: remove it, and pull it again", model);
    free(bytes);
    json_object_set_new(record, "list", json_string(list));
    const int written = r ? 0 : models_record_write(dir, model, record);
    json_decref(record);
    return r || !written
               ? r
               : err_set(err, written, "the record of %s cannot be written: %s", model, strerror(-written));
}
