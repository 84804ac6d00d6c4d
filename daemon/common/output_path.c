/* SPDX-License-Identifier: MIT */
#include "daemon/common/output_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"

/* The part of `path` below `folder`, without the slash between; NULL if it lies elsewhere. */
static const char *below(const char *path, const char *folder)
{
    const size_t n = strlen(folder);
    return !strncmp(path, folder, n) && (path[n] == '/' || !path[n]) ? path + n + (path[n] == '/') : NULL;
}

bool output_path_is_own(const char *state, const char *real)
{
    const char *inside = state && *state ? below(real, state) : NULL;
    const char *results = inside ? below(inside, "results") : NULL,
               *models = inside ? below(inside, "models") : NULL;
    return inside && !(results && *results) && !(models && *models);
}

static bool is_own(const char *state_dir, const char *real)
{
    char *state = state_dir ? realpath(state_dir, NULL) : NULL;
    const bool own = output_path_is_own(state, real);
    free(state);
    return own;
}

int output_path_check_input(const char *state_dir, const char *option, const char *path, struct err *err)
{
    char *real = realpath(path, NULL);
    const bool own = real && is_own(state_dir, real);
    free(real);
    return own ? err_set(err, -EPERM,
                         "%s %s lies in ringd's own folder %s: choose another place, or a name below its "
                         "results/ or models/",
                         option, path, state_dir)
               : 0;
}

static int refuse_own(const char *state_dir, const char *option, const char *path, struct err *err)
{
    return err_set(err, -EPERM,
                   "%s %s lies in ringd's own folder %s: choose another place, or a name below its results/",
                   option, path, state_dir);
}

static int refuse_link(const char *option, const char *path, struct err *err)
{
    return err_set(err, -ELOOP, "%s %s is a symbolic link: name the place that it leads to", option, path);
}

/* Where `path` is, or would be: its folder without links, and its name. The caller frees; NULL: the
 * folder cannot be found, so nothing can be written there. */
static char *place_of(const char *path)
{
    char *folder = xstrdup(path), *real = NULL;
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        folder[--n] = '\0';
    char *there = realpath(folder, NULL), *slash = strrchr(folder, '/');
    if (!there && slash) {
        char *name = xstrdup(slash + 1);
        slash[slash == folder] = '\0';
        there = realpath(folder, NULL);
        real = there && strcmp(name, "..") ? xasprintf("%s/%s", strcmp(there, "/") ? there : "", name) : NULL;
        free(name);
        free(there);
        there = NULL;
    }
    free(folder);
    return there ? there : real;
}

int output_path_check(const char *state_dir, const char *option, const char *path, struct err *err)
{
    struct stat st;
    char *trimmed = xstrdup(path);
    for (size_t n = strlen(trimmed); n > 1 && trimmed[n - 1] == '/';)
        trimmed[--n] = '\0'; /* "link/" would be looked at behind the link */
    int r = !lstat(trimmed, &st) && S_ISLNK(st.st_mode) ? refuse_link(option, path, err) : 0;
    char *real = r ? NULL : place_of(trimmed);
    if (real && is_own(state_dir, real))
        r = refuse_own(state_dir, option, path, err);
    free(real);
    free(trimmed);
    return r;
}

/* Where that descriptor is, as the kernel knows it; −errno. */
static int real_of(char ret[PATH_MAX], int fd)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, ret, PATH_MAX - 1);
    ret[n < 0 ? 0 : n] = '\0';
    return n < 0 ? -errno : 0;
}

static int cannot(int error, const char *option, const char *path, struct err *err)
{
    return error == ELOOP ? refuse_link(option, path, err)
                          : err_set(err, -error, "%s %s cannot be opened: %s", option, path, strerror(error));
}

/* A folder on the way may have become a link since it was looked at. So the folder is opened first,
 * and looked at where it is; the file is made in that very folder. */
static int open_in_folder(const char *state_dir, const char *option, const char *path, int flags,
                          struct err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char folder[PATH_MAX], real[PATH_MAX + NAME_MAX + 2];
    if (strlen(path) >= sizeof folder || strlen(name) > NAME_MAX)
        return cannot(ENAMETOOLONG, option, path, err);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int place = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = place < 0 ? cannot(errno, option, path, err) : 0;
    if (!fd && (fd = real_of(real, place)))
        cannot(-fd, option, path, err);
    if (!fd) {
        const size_t n = strlen(real);
        snprintf(real + n, sizeof real - n, "/%s", name);
        fd = is_own(state_dir, real) ? refuse_own(state_dir, option, path, err) : 0;
    }
    if (!fd && (fd = openat(place, name, flags, 0666)) < 0)
        fd = cannot(errno, option, path, err);
    if (place >= 0)
        close(place);
    return fd;
}

static int check_open(int fd, const char *option, const char *path, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return err_set(err, -errno, "%s %s cannot be looked at: %s", option, path, strerror(errno));
    return S_ISREG(st.st_mode)
               ? 0
               : err_set(err, -EINVAL, "%s %s is not a file: choose another name", option, path);
}

int output_path_open(const char *state_dir, const char *option, const char *path, bool append, FILE **ret,
                     struct err *err)
{
    int r = output_path_check(state_dir, option, path, err);
    if (r)
        return r;
    /* Neither a link nor a FIFO without a reader holds it up; and nothing is emptied yet. */
    const int flags = O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (append ? O_RDWR | O_APPEND : O_WRONLY);
    int fd = open_in_folder(state_dir, option, path, flags, err);
    if (fd < 0)
        return fd;
    r = check_open(fd, option, path, err);
    FILE *f = r || (!append && ftruncate(fd, 0)) ? NULL : fdopen(fd, append ? "a+" : "w");
    if (!r && !f)
        r = err_set(err, -errno, "%s %s cannot be opened: %s", option, path, strerror(errno));
    if (r)
        close(fd);
    else
        *ret = f;
    return r;
}
