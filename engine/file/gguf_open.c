/* SPDX-License-Identifier: MIT
 *
 * Reading the head of a GGUF file from the disk, as much of it as there is. Called when a model is
 * planned or opened, by one thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/gguf.h"
#include "file/input.h"

enum { FIRST_READ = 1 << 20 };
static const size_t head_limit = (size_t)512 << 20; /* vocabularies are some ten megabytes */

static int read_fully(int fd, char *buf, size_t from, size_t n)
{
    while (from < n) {
        const ssize_t got = pread(fd, buf + from, n - from, (off_t)from);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        from += (size_t)got;
    }
    return 0;
}

/* How long the head is shows only while it is read: four times as much, until it is all there. */
static int read_head(struct gguf **ret, int fd, size_t bytes, const char *path, struct err *err)
{
    char *buf = NULL;
    size_t have = 0;
    int r = -ENODATA;
    for (size_t n = bytes < FIRST_READ ? bytes : FIRST_READ; r == -ENODATA;
         n = n < bytes / 4 ? 4 * n : bytes) {
        n = n < head_limit ? n : head_limit;
        char *grown = realloc(buf, n + 1);
        if (!grown) {
            r = err_set(err, -ENOMEM, "no memory for a head of %zu bytes", n);
            break;
        }
        buf = grown;
        r = read_fully(fd, buf, have, n);
        have = n;
        if (r)
            err_set(err, r, "it cannot be read: %s", strerror(-r));
        else
            r = gguf_parse(ret, buf, n, bytes, err);
        if (r == -ENODATA && (n == bytes || n == head_limit))
            break;
    }
    free(buf);
    return r == -ENODATA ? -EBADMSG : r ? err_prefix(err, r, "%s", path) : 0;
}

static int open_regular(struct gguf **ret, int fd, const char *path, struct err *err)
{
    struct stat sb;
    if (fstat(fd, &sb))
        return err_set(err, -errno, "%s cannot be examined: %s", path, strerror(errno));
    if (!S_ISREG(sb.st_mode))
        return err_set(err, -EINVAL, "%s is not a regular file: name a GGUF file, or the folder of a model",
                       path);
    int r = read_head(ret, fd, (size_t)sb.st_size, path, err);
    return r == -EBADMSG && err && strncmp(err->text, path, strlen(path)) != 0
               ? err_prefix(err, r, "%s", path)
               : r;
}

int gguf_open(struct gguf **ret, const char *path, struct err *err)
{
    struct err own;
    const int fd = input_open(path);
    if (fd < 0)
        return err_set(err, fd, "%s cannot be opened: %s", path, strerror(-fd));
    const int r = open_regular(ret, fd, path, err ? err : &own);
    close(fd);
    return r;
}
