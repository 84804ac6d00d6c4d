/* SPDX-License-Identifier: MIT */
#include "daemon/common/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads up to cap bytes; −ENOENT as is, everything else as a sentence. Keys that others can read
 * are no keys. */
ssize_t private_read(const char *path, uint8_t *to, size_t cap, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT
                               : err_set(err, -errno, "%s cannot be read: %s", path, strerror(errno));
    struct stat st;
    ssize_t n = fstat(fd, &st) ? -1 : read(fd, to, cap);
    int saved = errno;
    close(fd);
    if (n < 0)
        return err_set(err, -saved, "%s cannot be read: %s", path, strerror(saved));
    if (st.st_mode & 077)
        return err_set(err, -EPERM, "%s can be read by others: chmod 600 %s", path, path);
    return n;
}

/* The name is only safe on disk when its directory is. */
static int sync_directory(const char *path)
{
    char dir[4104];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        return 0;
    slash[slash == dir] = 0;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = fd < 0 || fsync(fd) ? -1 : 0;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return r;
}

int private_write(const char *path, const uint8_t *data, size_t n, struct err *err)
{
    char tmp[4104];
    errno = 0;
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, data, n) == (ssize_t)n && !fsync(fd);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    if (ok && !rename(tmp, path) && !sync_directory(path))
        return 0;
    saved = ok ? errno : saved ? saved : ENOSPC; /* a short write leaves no reason behind, and has only one */
    unlink(tmp);
    return err_set(err, -saved, "%s cannot be written: %s", path, strerror(saved));
}
