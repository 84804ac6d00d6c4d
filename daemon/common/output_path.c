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

/* `real` has no symbolic links in it. */
static bool is_own(const char *state_dir, const char *real)
{
    char *state = state_dir ? realpath(state_dir, NULL) : NULL;
    const char *inside = state ? below(real, state) : NULL;
    const char *results = inside ? below(inside, "results") : NULL,
               *models = inside ? below(inside, "models") : NULL;
    free(state);
    return inside && !(results && *results) && !(models && *models);
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

/* A folder on the way may have become a link since it was looked at: the kernel knows where the
 * file is that is open. */
static int check_open(int fd, const char *state_dir, const char *option, const char *path, struct err *err)
{
    char link[64], real[PATH_MAX];
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, real, sizeof real - 1);
    if (n < 0 || fstat(fd, &st))
        return err_set(err, -errno, "%s %s cannot be looked at: %s", option, path, strerror(errno));
    real[n] = '\0';
    if (is_own(state_dir, real))
        return refuse_own(state_dir, option, path, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, -EINVAL, "%s %s is not a file: choose another name", option, path);
    return 0;
}

int output_path_open(const char *state_dir, const char *option, const char *path, bool append, FILE **ret,
                     struct err *err)
{
    int r = output_path_check(state_dir, option, path, err);
    if (r)
        return r;
    /* Neither a link nor a FIFO without a reader holds it up; and nothing is emptied yet. */
    int fd =
        open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (append ? O_APPEND : 0), 0666);
    if (fd < 0)
        return errno == ELOOP
                   ? refuse_link(option, path, err)
                   : err_set(err, -errno, "%s %s cannot be opened: %s", option, path, strerror(errno));
    r = check_open(fd, state_dir, option, path, err);
    FILE *f = r || (!append && ftruncate(fd, 0)) ? NULL : fdopen(fd, append ? "a" : "w");
    if (!r && !f)
        r = err_set(err, -errno, "%s %s cannot be opened: %s", option, path, strerror(errno));
    if (r)
        close(fd);
    else
        *ret = f;
    return r;
}
