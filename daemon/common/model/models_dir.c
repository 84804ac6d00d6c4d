/* SPDX-License-Identifier: MIT */
#include "daemon/common/model/models_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "engine/file/have_map.h"

enum {
    RECORD_MAX = 4 << 20,
    RUNS_MOST = 4096 /* of blocks, in an answer: some 200 KB */
};

int models_dir_open(const char *path, struct err *err)
{
    if (mkdir(path, 0770) && errno != EEXIST)
        return err_set(err, -errno, "the folder of models %s cannot be made: %s", path, strerror(errno));
    const int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_set(err, -errno, "the folder of models %s cannot be opened: %s", path, strerror(errno));
    return dir;
}

/* --- paths ------------------------------------------------------------------------------------ */

void models_part_path(char ret[MODELS_PATH], const char *model)
{
    snprintf(ret, MODELS_PATH, ".part/%.*s", MODEL_NAME - 1, model);
}

static void record_path(char ret[MODELS_PATH], const char *model)
{
    snprintf(ret, MODELS_PATH, ".records/%.*s.json", MODEL_NAME - 1, model);
}

void models_blocks_path(char ret[MODELS_PATH], const char *model)
{
    snprintf(ret, MODELS_PATH, ".records/%.*s.blocks", MODEL_NAME - 1, model);
}

/* A revision may have slashes, and no plus. */
static void ref_path(char ret[MODELS_PATH], const struct model_name *name)
{
    snprintf(ret, MODELS_PATH, ".refs/%s/%s@%s", name->org, name->name, name->revision);
    for (char *c = strchr(ret, '@'); *c; c++)
        if (*c == '/')
            *c = '+';
}

int models_make_parents(int dir, const char *path)
{
    char *part = xstrdup(path);
    int r = 0;
    for (char *slash = strchr(part, '/'); slash && !r; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdirat(dir, part, 0770) && errno != EEXIST)
            r = -errno;
        *slash = '/';
    }
    free(part);
    return r;
}

/* --- small files ------------------------------------------------------------------------------ */

static int sync_parent(int dir, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = xstrndup(path, (size_t)(slash - path));
    const int fd = openat(dir, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int r = fd < 0 || fsync(fd) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    free(parent);
    return r;
}

static int write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        const ssize_t put = write(fd, bytes, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put ? -errno : -EIO;
        bytes += put;
        n -= (size_t)put;
    }
    return fsync(fd) ? -errno : 0;
}

int models_file_write(int dir, const char *path, const void *bytes, size_t n)
{
    char *other = xasprintf("%s.%d.new", path, (int)getpid());
    int r = models_make_parents(dir, path);
    const int fd = r ? -1 : openat(dir, other, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (!r)
        r = fd < 0 ? -errno : write_all(fd, bytes, n);
    if (!r && renameat(dir, other, dir, path))
        r = -errno;
    if (fd >= 0)
        close(fd);
    if (r)
        unlinkat(dir, other, 0);
    free(other);
    return r ? r : sync_parent(dir, path);
}

/* False: it ends before so many bytes. */
static bool read_all(int fd, char *to, size_t n)
{
    while (n) {
        const ssize_t got = read(fd, to, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        to += got;
        n -= (size_t)got;
    }
    return true;
}

void *models_file_read(int dir, const char *path, size_t most, size_t *ret_n)
{
    struct stat st;
    const int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char *text = NULL;
    if (fd < 0)
        return NULL;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (size_t)st.st_size <= most) {
        *ret_n = (size_t)st.st_size;
        text = xcalloc(1, *ret_n + 1);
        if (!read_all(fd, text, *ret_n)) {
            free(text);
            text = NULL;
        }
    }
    close(fd);
    return text;
}

bool models_ref_read(int dir, const struct model_name *name, char ret[MODEL_COMMIT + 1])
{
    char path[MODELS_PATH];
    ref_path(path, name);
    size_t n;
    char *text = models_file_read(dir, path, MODEL_COMMIT, &n);
    const bool is = text && model_commit_is(text);
    if (is)
        memcpy(ret, text, MODEL_COMMIT + 1);
    free(text);
    return is;
}

int models_ref_write(int dir, const struct model_name *name, const char *commit)
{
    char path[MODELS_PATH];
    ref_path(path, name);
    return models_file_write(dir, path, commit, strlen(commit));
}

static bool has_file(int dir, const char *model, const char *file)
{
    char path[MODELS_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", model, file);
    return !faccessat(dir, path, R_OK, 0);
}

bool models_is_adapter(int dir, const char *model)
{
    return !has_file(dir, model, "config.json") && has_file(dir, model, "adapter_config.json");
}

bool models_has_name(int dir, const char *model)
{
    return has_file(dir, model, "config.json") || models_is_adapter(dir, model);
}

json_t *models_record_read(int dir, const char *model)
{
    char path[MODELS_PATH];
    record_path(path, model);
    size_t n;
    char *text = models_file_read(dir, path, RECORD_MAX, &n);
    json_t *record = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    if (json_is_object(record))
        return record;
    json_decref(record);
    return NULL;
}

int models_record_write(int dir, const char *model, const json_t *record)
{
    char path[MODELS_PATH];
    record_path(path, model);
    char *text = json_dumps(record, JSON_INDENT(1));
    const int r = text ? models_file_write(dir, path, text, strlen(text)) : -ENOMEM;
    free(text);
    return r;
}

/* --- all of them ------------------------------------------------------------------------------ */

static DIR *open_folder(int dir, const char *path)
{
    const int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !d)
        close(fd);
    return d;
}

/* A file that is here in part has a map, and what it says is what is here. Of NAME.part, as a file
 * is called that comes, it is NAME's. */
static uint64_t here_of(int folder, const char *name, const struct stat *st)
{
    struct have_map *have;
    char of[NAME_MAX + 1];
    const size_t n = strlen(name), end = sizeof ".part" - 1,
                 stem = n > end && !strcmp(name + n - end, ".part") ? n - end : n;
    snprintf(of, sizeof of, "%.*s", (int)stem, name);
    if (have_map_read(&have, folder, of, (uint64_t)st->st_size))
        return (uint64_t)st->st_size;
    const uint64_t bytes = have_map_bytes(have, (uint64_t)st->st_size);
    have_map_close(have);
    return bytes;
}

static bool is_map(const char *name)
{
    const size_t n = strlen(name), end = sizeof HAVE_ENDING - 1;
    return n > end && !strcmp(name + n - end, HAVE_ENDING);
}

struct folder_sum {
    uint64_t on_disk, here;
    bool has_maps;
};

static struct folder_sum sum_up(int dir, const char *path)
{
    DIR *d = open_folder(dir, path);
    struct folder_sum sum = {0};
    struct stat st;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (*e->d_name == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        sum.on_disk += (uint64_t)st.st_blocks * 512;
        sum.has_maps |= is_map(e->d_name);
        sum.here += is_map(e->d_name) ? 0 : here_of(dirfd(d), e->d_name, &st);
    }
    if (d)
        closedir(d);
    return sum;
}

bool models_is_whole(int dir, const char *model)
{
    return models_has_name(dir, model) && !sum_up(dir, model).has_maps;
}

static bool is_meant(int dir, const char *model)
{
    struct model_name name;
    char commit[MODEL_COMMIT + 1];
    if (model_name_read(&name, model, NULL))
        return false;
    snprintf(name.revision, sizeof name.revision, "main");
    return models_ref_read(dir, &name, commit) && !strcmp(commit, strchr(model, '@') + 1);
}

static void add_model(int dir, const char *model, bool has_name, json_t *list)
{
    char path[MODELS_PATH];
    models_part_path(path, model);
    const struct folder_sum sum = sum_up(dir, has_name ? model : path);
    json_t *record = models_record_read(dir, model);
    if (!record)
        record = json_object();
    json_object_set_new(record, "model", json_string(model));
    json_object_set_new(record, "named", json_boolean(has_name));
    json_object_set_new(record, "meant", json_boolean(is_meant(dir, model)));
    json_object_set_new(record, "whole", json_boolean(has_name && !sum.has_maps));
    json_object_set_new(record, "adapter", json_boolean(has_name && models_is_adapter(dir, model)));
    json_object_set_new(record, "here", json_integer((json_int_t)sum.here));
    json_object_set_new(record, "on_disk", json_integer((json_int_t)sum.on_disk));
    json_array_append_new(list, record);
}

static void add_org(int dir, const char *path, const char *org, bool has_name, json_t *list)
{
    DIR *d = open_folder(dir, path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char model[MODELS_PATH];
        const int n = snprintf(model, sizeof model, "%s/%s", org, e->d_name);
        if (n < MODEL_NAME && model_name_is_exact(model) && (!has_name || models_has_name(dir, model)))
            add_model(dir, model, has_name, list);
    }
    if (d)
        closedir(d);
}

static void add_all(int dir, const char *below, bool has_name, json_t *list)
{
    DIR *d = open_folder(dir, below);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[MODELS_PATH];
        if (*e->d_name == '.' || snprintf(path, sizeof path, "%s%s%s", has_name ? "" : below,
                                          has_name ? "" : "/", e->d_name) >= (int)sizeof path)
            continue;
        add_org(dir, path, e->d_name, has_name, list);
    }
    if (d)
        closedir(d);
}

json_t *models_list(int dir)
{
    json_t *list = json_array();
    add_all(dir, ".", true, list);
    add_all(dir, ".part", false, list);
    return list;
}

/* --- one of them ------------------------------------------------------------------------------ */

static void add_run(json_t *runs, const char *file, uint32_t first, uint32_t end)
{
    if (json_array_size(runs) < RUNS_MOST)
        json_array_append_new(runs, json_pack("[s,I,I]", file, (json_int_t)first, (json_int_t)end));
}

/* JSON holds no name that is not UTF-8, and no model has such a file. */
static void add_runs(int folder, const char *file, uint64_t bytes, json_t *runs)
{
    const uint32_t n = (uint32_t)((bytes + HAVE_BLOCK - 1) / HAVE_BLOCK);
    struct have_map *have;
    if (have_map_read(&have, folder, file, bytes)) {
        add_run(runs, file, 0, n);
        return;
    }
    uint32_t first = 0;
    for (uint32_t b = 0; b <= n; b++) {
        if (b < n && have_map_has(have, b))
            continue;
        if (b > first)
            add_run(runs, file, first, b);
        first = b + 1;
    }
    have_map_close(have);
}

static json_t *runs_of(int dir, const char *model)
{
    DIR *d = open_folder(dir, model);
    json_t *runs = json_array();
    struct stat st;
    for (struct dirent *e; d && (e = readdir(d));)
        if (*e->d_name != '.' && !is_map(e->d_name) &&
            !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            add_runs(dirfd(d), e->d_name, (uint64_t)st.st_size, runs);
    if (d)
        closedir(d);
    return runs;
}

json_t *models_have(int dir, const char *model, bool blocks)
{
    if (!models_has_name(dir, model))
        return NULL;
    const struct folder_sum sum = sum_up(dir, model);
    json_t *record = models_record_read(dir, model);
    const char *content = json_string_value(json_object_get(record, "content"));
    const json_int_t bytes = json_integer_value(json_object_get(record, "bytes"));
    json_t *have = json_pack("{s:s s:b s:I s:I}", "content", content ? content : "", "whole", !sum.has_maps,
                             "here", sum.has_maps ? (json_int_t)sum.here : bytes, "bytes", bytes);
    if (blocks && sum.has_maps)
        json_object_set_new(have, "blocks", runs_of(dir, model));
    json_decref(record);
    return have;
}

/* A folder and its files, or a link; folders in it are nobody's here, and keep it. */
static int remove_folder(int dir, const char *path)
{
    if (!unlinkat(dir, path, 0))
        return 0;
    if (errno == ENOENT)
        return -ENOENT;
    DIR *d = open_folder(dir, path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    return unlinkat(dir, path, AT_REMOVEDIR) ? -errno : 0;
}

/* Out of its place first, in one step: half a model is never found under its name. */
int models_remove(int dir, const char *model)
{
    char part[MODELS_PATH], record[MODELS_PATH], blocks[MODELS_PATH];
    models_part_path(part, model);
    record_path(record, model);
    models_blocks_path(blocks, model);
    int r = remove_folder(dir, part);
    if (r && r != -ENOENT)
        return r;
    const bool was_part = !r;
    if (models_make_parents(dir, part) || renameat(dir, model, dir, part))
        r = errno == ENOENT && was_part ? 0 : -errno;
    else
        r = remove_folder(dir, part);
    unlinkat(dir, record, 0);
    unlinkat(dir, blocks, 0);
    return r;
}
