/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/results.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "engine/file/murmur.h"

enum { NAME_BYTES = 64, DEPTH = 3, FILES_MAX = 10000 };

/* --- where ------------------------------------------------------------------------------------ */

/* The last part of the path, for people, and a number made of all of it, so that no two paths share
 * a folder. */
char *results_folder(const char *state_dir, const char *adapter_out)
{
    uint64_t sum[2];
    char name[NAME_BYTES];
    const char *last = strrchr(adapter_out, '/');
    snprintf(name, sizeof name, "%s", last ? last + 1 : adapter_out);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            *c = '_';
    murmur128(sum, adapter_out, strlen(adapter_out), 0);
    return xasprintf("%s/results/%s-%016" PRIx64, state_dir, *name == '.' ? "result" : name, sum[0]);
}

char *results_rescue(const char *state_dir, uint64_t job)
{
    return xasprintf("%s/results/job-%" PRIu64, state_dir, job);
}

json_t *results_stage_spec(const char *state_dir, uint64_t job, const struct job_spec *asked)
{
    char *rescue = results_rescue(state_dir, job);
    json_t *own = json_deep_copy(asked->json);
    if (asked->kept_in)
        json_object_set_new(own, "adapter_out", json_string(asked->kept_in));
    json_object_del(own, "kept_in");
    json_object_set_new(own, "rescue_dir", json_string(rescue));
    json_object_set_new(own, "state_dir", json_string(state_dir));
    free(rescue);
    return own;
}

void results_make(const char *state_dir)
{
    char *all = xasprintf("%s/results", state_dir);
    if (access(all, F_OK)) /* a disk that hangs may still say what it has */
        mkdir(all, 0777);  /* without it the stage says why nothing can be written there */
    free(all);
}

static bool holds_something(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *e = NULL;
    while (dir && (e = readdir(dir)) && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")))
        ;
    if (dir)
        closedir(dir);
    return e != NULL;
}

char *results_of(const char *state_dir, uint64_t job, const struct job_spec *asked)
{
    char *folder;
    if (!asked->adapter_out)
        return NULL;
    /* What the record calls kept_in is not believed: the folder follows from the path. */
    if (asked->kept_in)
        return results_folder(state_dir, asked->adapter_out);
    folder = results_rescue(state_dir, job);
    if (holds_something(folder))
        return folder;
    free(folder);
    return NULL;
}

/* --- files ------------------------------------------------------------------------------------ */

/* What a writer has begun has another name until it is whole. */
static bool is_finished(const char *name)
{
    size_t n = strlen(name);
    return *name != '.' && !(n > 4 && !strcmp(name + n - 4, ".tmp"));
}

bool results_is_name(const char *name)
{
    for (int depth = 1; depth <= DEPTH; depth++) {
        const size_t n = strcspn(name, "/");
        char *part = xstrndup(name, n);
        const bool is_one = n && is_finished(part);
        free(part);
        if (!is_one || !name[n])
            return is_one;
        name += n + 1;
    }
    return false;
}

/* Takes over fd, a folder's. */
static void list_folder(json_t *list, int fd, const char *before, int depth)
{
    struct stat st;
    DIR *dir = fdopendir(fd);
    if (!dir)
        close(fd);
    for (struct dirent *e; dir && (e = readdir(dir)) && json_array_size(list) < FILES_MAX;) {
        if (!is_finished(e->d_name) || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        char *name = xasprintf("%s%s", before, e->d_name), *below = xasprintf("%s/", name);
        if (S_ISREG(st.st_mode))
            json_array_append_new(list,
                                  json_pack("{s:s s:I}", "name", name, "bytes", (json_int_t)st.st_size));
        int sub = S_ISDIR(st.st_mode) && depth < DEPTH
                      ? openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                      : -1;
        if (sub >= 0)
            list_folder(list, sub, below, depth + 1);
        free(below);
        free(name);
    }
    if (dir)
        closedir(dir);
}

static int by_name(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    return strcmp(json_string_value(json_object_get(x, "name")),
                  json_string_value(json_object_get(y, "name")));
}

static json_t *sorted(json_t *list)
{
    size_t n = json_array_size(list);
    json_t **at = xcalloc(n + 1, sizeof(json_t *)), *out = json_array();
    for (size_t i = 0; i < n; i++)
        at[i] = json_array_get(list, i);
    qsort(at, n, sizeof(json_t *), by_name);
    for (size_t i = 0; i < n; i++)
        json_array_append(out, at[i]);
    free(at);
    json_decref(list);
    return out;
}

json_t *results_list(const char *folder, struct err *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        err_set(err, -errno, "%s cannot be opened: %s", folder, strerror(errno));
        return NULL;
    }
    json_t *list = json_array();
    list_folder(list, fd, "", 1);
    return sorted(list);
}

/* Part by part, and through no link: nothing outside of the folder can be meant. */
static int open_below(int fd, const char *name, int depth)
{
    const char *slash = strchr(name, '/');
    char *part = slash ? xstrndup(name, (size_t)(slash - name)) : xstrdup(name);
    int next =
        *part && is_finished(part) && (!slash || depth < DEPTH)
            ? openat(fd, part, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (slash ? O_DIRECTORY : 0))
            : (errno = ENOENT, -1);
    int r = next < 0 ? -errno : next;
    free(part);
    if (next < 0 || !slash)
        return r;
    r = open_below(next, slash + 1, depth + 1);
    close(next);
    return r;
}

int results_open(const char *folder, const char *name, int *ret_fd, uint64_t *ret_bytes)
{
    struct stat st;
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    int fd = open_below(dir, name, 1);
    close(dir);
    if (fd < 0)
        return fd;
    int r = fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -ENOENT;
    if (r) {
        close(fd);
        return r;
    }
    *ret_fd = fd;
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}
