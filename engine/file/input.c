/* SPDX-License-Identifier: MIT
 *
 * Owns the reading of small files (config.json, a shard index) for the other modules that read
 * model directories and data sets; any thread. */
#include "file/input.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/lent.h"

int input_open(const char *path)
{
    const int lent = lent_find(path);
    if (lent < 0 && lent != -ENODATA)
        return lent;
    const int fd = lent >= 0 ? fcntl(lent, F_DUPFD_CLOEXEC, 3)
                             : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
    return fd < 0 ? -errno : fd;
}

int input_stat(const char *path, struct stat *ret)
{
    const int lent = lent_find(path);
    if (lent == -EISDIR) {
        *ret = (struct stat){.st_mode = S_IFDIR | 0500};
        return 0;
    }
    if (lent < 0 && lent != -ENODATA)
        return lent;
    return (lent >= 0 ? fstat(lent, ret) : stat(path, ret)) ? -errno : 0;
}

bool input_is_there(const char *path)
{
    struct stat sb;
    return !input_stat(path, &sb);
}

static int read_fully(int fd, const char *path, char *buf, size_t n, struct err *err)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = pread(fd, buf + at, n - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int code = -errno;
            return err_set(err, code, "%s cannot be read: %s", path, strerror(-code));
        }
        if (got == 0)
            return err_set(err, -EIO,
                           "%s became shorter while it was read; try again when nothing writes to it", path);
        at += (size_t)got;
    }
    return 0;
}

static int read_open(int fd, const char *path, size_t limit, char **ret, size_t *ret_n, struct err *err)
{
    struct stat sb;
    if (fstat(fd, &sb) < 0) {
        int code = -errno;
        return err_set(err, code, "%s cannot be examined: %s", path, strerror(-code));
    }
    if (!S_ISREG(sb.st_mode))
        return err_set(err, S_ISDIR(sb.st_mode) ? -EISDIR : -EINVAL, "%s is not a regular file", path);
    size_t n = (size_t)sb.st_size;
    if (n > limit)
        return err_set(err, -EFBIG, "%s has %zu bytes; such a file has no more than %zu", path, n, limit);
    char *buf = malloc(n + 1);
    if (!buf)
        return err_set(err, -ENOMEM, "%s: no memory for its %zu bytes", path, n);
    int r = read_fully(fd, path, buf, n, err);
    if (r < 0) {
        free(buf);
        return r;
    }
    buf[n] = '\0';
    *ret = buf;
    *ret_n = n;
    return 0;
}

int input_read(const char *path, size_t limit, char **ret, size_t *ret_n, struct err *err)
{
    int fd = input_open(path);
    if (fd < 0)
        return err_set(err, fd, "%s cannot be opened: %s", path, strerror(-fd));
    int r = read_open(fd, path, limit, ret, ret_n, err);
    close(fd);
    return r;
}

char *input_path(const char *dir, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

int input_make_dir(const char *dir)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return -ENAMETOOLONG;
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = 0;
            mkdir(path, 0755);
            *at = '/';
        }
    return mkdir(path, 0750) && errno != EEXIST ? -errno : 0;
}

struct input_quote input_quote(const char *s)
{
    struct input_quote q;
    size_t n = strlen(s), room = sizeof q.text - sizeof "…";
    bool cut = n > room;
    if (cut) {
        n = room;
        while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) /* not inside a UTF-8 character */
            n--;
    }
    for (size_t i = 0; i < n; i++)
        q.text[i] = (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? '?' : s[i];
    strcpy(q.text + n, cut ? "…" : "");
    return q;
}
