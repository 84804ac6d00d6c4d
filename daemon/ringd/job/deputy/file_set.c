/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/deputy/file_set.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/job_spec.h"
#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/results.h"
#include "engine/model/adapter_names.h"

struct file_set {
    atomic_size_t holders;
    size_t n;
    uint64_t bytes;
    struct one_file {
        char *path; /* owned */
        int fd;     /* owned */
        uint64_t bytes;
        int64_t changed; /* ns since 1970 */
        dev_t device;
        ino_t inode;
    } at[FILE_SET_MOST];
};

static struct file_set *set_new(void)
{
    struct file_set *s = xcalloc(1, sizeof *s);
    atomic_init(&s->holders, 1);
    return s;
}

struct file_set *file_set_hold(struct file_set *s)
{
    if (s)
        atomic_fetch_add(&s->holders, 1);
    return s;
}

void file_set_drop(struct file_set *s)
{
    if (!s || atomic_fetch_sub(&s->holders, 1) > 1)
        return;
    for (size_t i = 0; i < s->n; i++) {
        free(s->at[i].path);
        close(s->at[i].fd);
    }
    free(s);
}

/* An inode number is not given again while its file is open. */
bool file_set_is_same(const struct file_set *a, const struct file_set *b)
{
    bool is_same = a->n == b->n;
    for (size_t i = 0; is_same && i < a->n; i++) {
        const struct one_file *x = &a->at[i], *y = &b->at[i];
        is_same = !strcmp(x->path, y->path) && x->bytes == y->bytes && x->changed == y->changed &&
                  x->device == y->device && x->inode == y->inode;
    }
    return is_same;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Takes over fd. */
static int add(struct file_set *s, const char *path, int fd, struct err *err)
{
    struct stat st;
    int r = 0;
    if (fd < 0 || fstat(fd, &st))
        r = err_set(err, -errno, "%s cannot be opened: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        r = err_set(err, -EINVAL, "%s is no regular file", path);
    else if (s->n == FILE_SET_MOST)
        r = err_set(err, -E2BIG, "the job has more than %d files", FILE_SET_MOST);
    else if (s->bytes + (uint64_t)st.st_size > FILE_SET_BYTES)
        r = err_set(err, -E2BIG, "the files of the job have more than %llu MiB, with %s",
                    (unsigned long long)(FILE_SET_BYTES >> 20), path);
    if (r) {
        if (fd >= 0)
            close(fd);
        return r;
    }
    s->bytes += (uint64_t)st.st_size;
    s->at[s->n++] = (struct one_file){.path = xstrdup(path),
                                      .fd = fd,
                                      .bytes = (uint64_t)st.st_size,
                                      .changed = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec,
                                      .device = st.st_dev,
                                      .inode = st.st_ino};
    return 0;
}

static int open_file(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo would wait for its writer */
}

static bool is_in(const char *file, const char *folder)
{
    const size_t n = strlen(folder);
    return !strncmp(file, folder, n) && file[n] == '/' && !strchr(file + n + 1, '/');
}

/* Of a loan what has that path, or lies in it. ret: how many there were. */
static int add_lent(struct file_set *s, struct loan *loan, const char *path, size_t *ret, struct err *err)
{
    json_t *about = loan_message(loan), *file;
    size_t i, n;
    const int *fds = loan_fds(loan, &n);
    int r = 0;
    *ret = 0;
    json_array_foreach (json_object_get(about, "files"), i, file) {
        const char *name = json_string_value(file);
        if (r || (strcmp(name, path) && !is_in(name, path)))
            continue;
        r = add(s, name, fcntl(fds[i], F_DUPFD_CLOEXEC, 3), err);
        ++*ret;
    }
    json_decref(about);
    return r;
}

/* Its files; what lies in folders below is none of a job's. */
static int add_folder(struct file_set *s, const char *path, struct err *err)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    int r = dir ? 0 : err_set(err, -errno, "%s cannot be opened: %s", path, strerror(errno));
    while (!r && (e = readdir(dir))) {
        char *file = xasprintf("%s/%s", path, e->d_name);
        struct stat st;
        if (*e->d_name != '.' && !stat(file, &st) && S_ISREG(st.st_mode))
            r = add(s, file, open_file(file), err);
        free(file);
    }
    if (dir)
        closedir(dir);
    return r;
}

static int add_path(struct file_set *s, struct loan *loan, const char *path, struct err *err)
{
    struct stat st;
    size_t lent = 0;
    int r = loan ? add_lent(s, loan, path, &lent, err) : 0;
    if (r || lent)
        return r;
    return !stat(path, &st) && S_ISDIR(st.st_mode) ? add_folder(s, path, err)
                                                   : add(s, path, open_file(path), err);
}

/* A file of one's own schedule has a slash in it; without, it is a name. An adapter that has a name
 * comes by it, as a model does. */
static bool is_input(const struct field *f, const char *path, bool resumes)
{
    return f->path == FIELD_READS || (f->path == FIELD_ADAPTER && !model_name_is_exact(path)) ||
           (f->path == FIELD_MAY_READ && strchr(path, '/')) ||
           (f->path == FIELD_WRITES && resumes && !strcmp(f->name, "adapter_out"));
}

int file_set_of_inputs(struct file_set **ret, const json_t *spec, struct loan *loan, struct err *err)
{
    struct file_set *s = set_new();
    const bool resumes = json_is_true(json_object_get(spec, "resume"));
    int r = 0;
    for (const struct field *f = job_spec_fields(); f->name && !r; f++) {
        const char *path;
        bool is_twice = false;
        for (const struct field *b = job_spec_fields(); b != f; b++) /* a key has a row for each type */
            is_twice = is_twice || !strcmp(b->name, f->name);
        for (size_t i = 0; !is_twice && !r && (path = field_path_at(f, spec, i)); i++)
            if (is_input(f, path, resumes))
                r = add_path(s, loan, path, err);
    }
    if (r)
        file_set_drop(s);
    else
        *ret = s;
    return r;
}

static bool is_any(const char *name)
{
    (void)name;
    return true;
}

/* "best/adapter_config.json", or below a folder for each adapter of a sweep. */
static bool is_best(const char *name)
{
    const char *file = strrchr(name, '/'), *end = file ? file - strlen("best") : NULL;
    return end && end >= name && !strncmp(end, "best", strlen("best")) && (end == name || end[-1] == '/');
}

static int files_of_folder(struct file_set **ret, const char *folder, bool (*is_wanted)(const char *name),
                           struct err *err)
{
    struct file_set *s = set_new();
    const bool is_there = !access(folder, F_OK) || errno != ENOENT;
    json_t *list = is_there ? results_list(folder, err) : json_array(), *file;
    size_t i;
    int r = list ? 0 : -EIO;
    json_array_foreach (list, i, file) {
        const char *name = json_string_value(json_object_get(file, "name"));
        uint64_t bytes;
        int fd = -1;
        if (r || !is_wanted(name))
            continue;
        const int e = results_open(folder, name, &fd, &bytes);
        r = e ? err_set(err, e, "%s/%s cannot be opened: %s", folder, name, strerror(-e))
              : add(s, name, fd, err);
    }
    json_decref(list);
    if (r)
        file_set_drop(s);
    else
        *ret = s;
    return r;
}

int file_set_of_folder(struct file_set **ret, const char *folder, struct err *err)
{
    return files_of_folder(ret, folder, is_any, err);
}

int file_set_of_best(struct file_set **ret, const char *folder, struct err *err)
{
    return files_of_folder(ret, folder, is_best, err);
}

const char *const file_set_adapter_files[] = {"adapter_config.json", ADAPTER_PEFT_FILE, NULL};

int file_set_of_adapter(struct file_set **ret, const char *folder, struct err *err)
{
    struct file_set *s = set_new();
    int r = 0;
    for (const char *const *name = file_set_adapter_files; *name && !r; name++) {
        uint64_t bytes;
        int fd = -1;
        r = results_open(folder, *name, &fd, &bytes);
        r = r ? err_set(err, r, "%s/%s cannot be opened: %s", folder, *name, strerror(-r))
              : add(s, *name, fd, err);
    }
    if (r)
        file_set_drop(s);
    else
        *ret = s;
    return r;
}

/* --- lists ------------------------------------------------------------------------------------ */

json_t *file_set_list(const struct file_set *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n; i++)
        json_array_append_new(list,
                              json_pack("{s:s s:I s:I}", "path", s->at[i].path, "bytes",
                                        (json_int_t)s->at[i].bytes, "changed", (json_int_t)s->at[i].changed));
    return list;
}

/* Nothing that leads out of the folder it will be put in. */
static bool is_below(const char *path)
{
    return *path && *path != '/' && strcmp(path, "..") && strncmp(path, "../", 3) && !strstr(path, "/../") &&
           (strlen(path) < 3 || strcmp(path + strlen(path) - 3, "/..") != 0);
}

int file_set_check(const json_t *list, int in_folder, struct err *err)
{
    uint64_t sum = 0;
    size_t i;
    json_t *file;
    if (json_array_size(list) > FILE_SET_MOST)
        return err_set(err, -EBADMSG, "it has %zu files, and %d are allowed", json_array_size(list),
                       FILE_SET_MOST);
    json_array_foreach (list, i, file) {
        const char *path = json_string_value(json_object_get(file, "path"));
        const json_int_t bytes = json_integer_value(json_object_get(file, "bytes"));
        if (!path || strlen(path) > 4000 || (in_folder ? !is_below(path) : *path != '/') || bytes < 0 ||
            (uint64_t)bytes > FILE_SET_BYTES)
            return err_set(err, -EBADMSG, "its list of files is malformed at file %zu", i + 1);
        sum += (uint64_t)bytes;
    }
    return sum <= FILE_SET_BYTES ? 0
                                 : err_set(err, -EBADMSG, "its files have more than %llu MiB together",
                                           (unsigned long long)(FILE_SET_BYTES >> 20));
}

int file_set_check_adapter(const json_t *list, struct err *err)
{
    size_t n = 0;
    bool fits = true;
    for (; file_set_adapter_files[n]; n++) {
        const char *path = json_string_value(json_object_get(json_array_get(list, n), "path"));
        fits = fits && path && !strcmp(path, file_set_adapter_files[n]);
    }
    const int r = file_set_check(list, true, err);
    return r || (fits && json_array_size(list) == n)
               ? r
               : err_set(err, -EBADMSG, "its files are not those of an adapter");
}

int file_set_check_best(const json_t *list, struct err *err)
{
    size_t i;
    json_t *file;
    int r = file_set_check(list, true, err);
    json_array_foreach (list, i, file) {
        const char *path = json_string_value(json_object_get(file, "path"));
        if (!r && (!results_is_name(path) || !is_best(path)))
            r = err_set(err, -EBADMSG, "file %zu of its list is none of the best so far", i + 1);
    }
    return r;
}

void file_set_make_folders(const char *folder, const char *path)
{
    char *all = xasprintf("%s/%s", folder, path);
    for (char *slash = all + strlen(folder); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(all, 0777);
        *slash = '/';
    }
    free(all);
}

int file_set_read(const struct file_set *s, size_t i, uint64_t at, uint8_t part[FILE_SET_PART],
                  struct err *err)
{
    size_t n = 0;
    ssize_t got = 1;
    if (i >= s->n || at > s->at[i].bytes)
        return err_set(err, -ERANGE, "there is no such part of a file");
    const uint64_t left = s->at[i].bytes - at;
    const size_t want = left < FILE_SET_PART ? (size_t)left : FILE_SET_PART;
    while (n < want && (got = pread(s->at[i].fd, part + n, want - n, (off_t)(at + n))) > 0)
        n += (size_t)got;
    if (got < 0)
        return err_set(err, -errno, "%s cannot be read: %s", s->at[i].path, strerror(errno));
    return n == want ? (int)n : err_set(err, -EIO, "%s has become shorter", s->at[i].path);
}
