/* SPDX-License-Identifier: MIT
 *
 * What lies around the weights: see rewrite_dir.h. */
#include "model/write/rewrite_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "file/input.h"
#include "file/text_part.h"
#include "file/model_file.h"

enum { SMALL_BYTES = 1 << 28 };

struct rewrite_dir {
    char out[2048], tmp[2080];
    bool made;     /* the temporary is there */
    json_t *index; /* owned: tensor → file */
    size_t bytes;
};

static bool is_empty(const char *path)
{
    DIR *d = opendir(path);
    size_t n = 0;
    for (const struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d)
        closedir(d);
    return d && !n;
}

int rewrite_dir_open(struct rewrite_dir **ret, const char *out, struct err *err)
{
    struct rewrite_dir *d = calloc(1, sizeof *d);
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/')
        n--;
    if (!d || !(d->index = json_object())) {
        free(d);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *ret = d;
    if (n >= sizeof d->out)
        return err_set(err, -ENAMETOOLONG, "--out %.100s…: this path is too long", out);
    snprintf(d->out, sizeof d->out, "%.*s", (int)n, out);
    snprintf(d->tmp, sizeof d->tmp, "%s.%ld.tmp", d->out, (long)getpid());
    if (!access(d->out, F_OK) && !is_empty(d->out))
        return err_set(err, -EEXIST, "--out %s is there already and not empty: choose another, or remove it",
                       d->out);
    if (mkdir(d->tmp, 0777)) {
        int code = -errno;
        return err_set(err, code, "%s cannot be created: %s", d->tmp, strerror(-code));
    }
    d->made = true;
    return 0;
}

int rewrite_dir_check_room(const struct rewrite_dir *d, size_t bytes, struct err *err)
{
    struct statvfs fs;
    if (statvfs(d->tmp, &fs) || !fs.f_blocks || bytes / fs.f_frsize <= fs.f_bavail)
        return 0;
    const struct err_amounts a = err_amounts(bytes, fs.f_bavail * fs.f_frsize);
    return err_set(err, -ENOSPC, "%s needs %s, and %s are free on its disk: make room, or write elsewhere",
                   d->out, a.need, a.have);
}

int rewrite_dir_path(const struct rewrite_dir *d, const char *file, char ret[4096], struct err *err)
{
    const int n = snprintf(ret, 4096, "%s/%s", d->tmp, file);
    return n < 4096 ? 0 : err_set(err, -ENAMETOOLONG, "%s: a name in it is too long", d->out);
}

int rewrite_dir_list(struct rewrite_dir *d, const char *tensor, const char *file, size_t bytes,
                     struct err *err)
{
    d->bytes += bytes;
    return json_object_set_new(d->index, tensor, json_string(file)) ? err_set(err, -ENOMEM, "out of memory")
                                                                    : 0;
}

static int write_file(const struct rewrite_dir *d, const char *file, const char *text, size_t n,
                      struct err *err)
{
    char path[4096];
    int r = rewrite_dir_path(d, file, path, err);
    if (r)
        return r;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    r = fd < 0 ? -errno : 0;
    while (!r && n) {
        ssize_t put = write(fd, text, n);
        if (put < 0 && errno != EINTR)
            r = -errno;
        text += put > 0 ? put : 0;
        n -= put > 0 ? (size_t)put : 0;
    }
    if (!r && fsync(fd))
        r = -errno;
    if (fd >= 0 && close(fd) && !r)
        r = -errno;
    return r ? err_set(err, r, "%s cannot be written: %s", path, strerror(-r)) : 0;
}

static int write_json(const struct rewrite_dir *d, const char *file, const json_t *json, struct err *err)
{
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    int r = text ? write_file(d, file, text, strlen(text), err) : err_set(err, -ENOMEM, "out of memory");
    free(text);
    return r;
}

/* --- what is copied --------------------------------------------------------------------------- */

/* Text beside the weights, by its name: settings, tokenizer, template, licence; no weights,
 * indexes, adapters. */
static bool is_wanted(const char *name)
{
    static const char *const ends[] = {".json", ".jinja", ".txt", ".model", ".md", ".py"};
    static const char *const not [] = {"adapter_config.json", ".index.json"};
    const size_t n = strlen(name);
    bool wanted = !strncmp(name, "LICENSE", 7) || !strcmp(name, "NOTICE");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        wanted = wanted || (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]));
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        wanted = wanted && !(n >= strlen(not [i]) && !strcmp(name + n - strlen(not [i]), not [i]));
    return wanted && name[0] != '.';
}

/* "torch_dtype", or "dtype" where that is what it says. */
static void put_dtype(json_t *o, enum dtype dtype)
{
    static const char *const names[] = {
        [DTYPE_F32] = "float32", [DTYPE_F16] = "float16", [DTYPE_BF16] = "bfloat16"};
    const bool is_new = json_object_get(o, "dtype") != NULL;
    if (is_new)
        json_object_set_new(o, "dtype", json_string(names[dtype]));
    if (!is_new || json_object_get(o, "torch_dtype"))
        json_object_set_new(o, "torch_dtype", json_string(names[dtype]));
}

/* As mlx-lm has it: the same under both names. */
static int put_quantization(json_t *o, const struct rewrite_says *says)
{
    json_t *q = json_pack("{s:I s:I}", "group_size", (json_int_t)says->group, "bits", (json_int_t)says->bits);
    int r = says->left ? json_object_update(q, (json_t *)says->left) : 0; /* only read */
    r = r ? r : json_object_set(o, "quantization", q);
    r = r ? r : json_object_set(o, "quantization_config", q);
    json_decref(q);
    return r;
}

static int copy_config(const struct rewrite_dir *d, const char *text, size_t n,
                       const struct rewrite_says *says, struct err *err)
{
    json_t *o = json_loadb(text, n, 0, NULL);
    if (!json_is_object(o)) {
        json_decref(o);
        return err_set(err, -EINVAL, "config.json is not an object");
    }
    json_t *text_part = text_part_config(o, says->architecture); /* alone it is what was written */
    if (text_part) {
        json_decref(o);
        o = text_part;
    }
    json_object_del(o, "quantization");
    json_object_del(o, "quantization_config");
    if (says->dtype != DTYPE_COUNT)
        put_dtype(o, says->dtype);
    int r = says->bits && put_quantization(o, says) ? err_set(err, -ENOMEM, "out of memory")
                                                    : write_json(d, "config.json", o, err);
    json_decref(o);
    return r;
}

static int copy_text(const struct rewrite_dir *d, const char *name, const char *text, size_t n,
                     const struct rewrite_says *says, struct err *err)
{
    return says->differs && !strcmp(name, "config.json") ? copy_config(d, text, n, says, err)
                                                         : write_file(d, name, text, n, err);
}

static int copy_one(const struct rewrite_dir *d, const char *model, const char *name,
                    const struct rewrite_says *says, struct err *err)
{
    char *path = input_path(model, name), *text = NULL;
    size_t n;
    struct stat sb;
    if (path && (stat(path, &sb) || !S_ISREG(sb.st_mode))) {
        free(path);
        return 0;
    }
    int r = path ? input_read(path, SMALL_BYTES, &text, &n, err) : err_set(err, -ENOMEM, "out of memory");
    if (!r)
        r = copy_text(d, name, text, n, says, err);
    free(text);
    free(path);
    return r;
}

/* What a model has that is one file. */
static int copy_told(const struct rewrite_dir *d, const char *model, const char *const *names,
                     const struct rewrite_says *says, struct err *err)
{
    int r = 0;
    for (; *names && !r; names++) {
        char *text = NULL;
        size_t n;
        r = model_file_read(model, *names, SMALL_BYTES, &text, &n, err);
        if (r == -ENOENT) { /* a model may have no tokenizer */
            r = 0;
            continue;
        }
        if (!r)
            r = copy_text(d, *names, text, n, says, err);
        free(text);
    }
    return r;
}

int rewrite_dir_copy(struct rewrite_dir *d, const char *model, const struct rewrite_says *says,
                     struct err *err)
{
    const char *const *told = model_file_told(model);
    if (told)
        return copy_told(d, model, told, says, err);
    DIR *from = opendir(model);
    int r = from ? 0 : err_set(err, -errno, "%s cannot be read: %s", model, strerror(errno));
    for (const struct dirent *e; from && !r && (e = readdir(from));)
        if (is_wanted(e->d_name))
            r = copy_one(d, model, e->d_name, says, err);
    if (from)
        closedir(from);
    return r;
}

/* --- the end ---------------------------------------------------------------------------------- */

static int sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 || (fsync(fd) && errno != EINVAL) ? -errno : 0; /* EINVAL: a file system that cannot */
    if (fd >= 0)
        close(fd);
    return r;
}

int rewrite_dir_finish(struct rewrite_dir *d, bool index, struct err *err)
{
    int r = 0;
    if (index) {
        json_t *all = json_pack("{s:{s:I} s:O}", "metadata", "total_size", (json_int_t)d->bytes, "weight_map",
                                d->index);
        r = write_json(d, "model.safetensors.index.json", all, err);
        json_decref(all);
    }
    if (r)
        return r;
    r = sync_path(d->tmp);
    if (!r && rename(d->tmp, d->out))
        r = -errno;
    d->made = r;
    return r ? err_set(err, r, "%s cannot be put in place: %s", d->out, strerror(-r)) : 0;
}

void rewrite_dir_free(struct rewrite_dir *d)
{
    DIR *tmp = d && d->made ? opendir(d->tmp) : NULL;
    for (const struct dirent *e; tmp && (e = readdir(tmp));)
        unlinkat(dirfd(tmp), e->d_name, 0);
    if (tmp)
        closedir(tmp);
    if (d && d->made)
        rmdir(d->tmp);
    if (d)
        json_decref(d->index);
    free(d);
}
