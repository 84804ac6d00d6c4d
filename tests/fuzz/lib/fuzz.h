/* SPDX-License-Identifier: MIT
 *
 * What fuzz targets share: their entry, a check that stays in every build, the input as text or as
 * a file. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static inline void expect(bool ok)
{
    if (!ok)
        abort();
}

/* Ended by NUL; the caller frees. */
static inline char *fuzz_text(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1);
    expect(text != NULL);
    if (n > 0)
        memcpy(text, data, n);
    text[n] = '\0';
    return text;
}

enum { FUZZ_PATH = 64 };

/* The path of a file in memory that only we can read; always the same one, with new content. */
static inline const char *fuzz_file(const uint8_t *data, size_t n)
{
    static char path[FUZZ_PATH];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        expect(fd >= 0 && fchmod(fd, 0600) == 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    expect(ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n);
    return path;
}

/* A directory in memory for targets that open files by name, made when asked for. */
static inline const char *fuzz_dir(void)
{
    static char dir[FUZZ_PATH];
    if (!*dir) {
        snprintf(dir, sizeof dir, "/dev/shm/ringd-fuzz.%d", (int)getpid());
        expect(mkdir(dir, 0700) == 0 || errno == EEXIST);
    }
    return dir;
}

static inline void fuzz_dir_put(const char *name, const void *data, size_t n)
{
    char path[2 * FUZZ_PATH];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    expect(fd >= 0 && write(fd, data, n) == (ssize_t)n && close(fd) == 0);
}

static inline void fuzz_dir_remove(const char *name)
{
    char path[2 * FUZZ_PATH];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    unlink(path);
}

/* Empties it of these, and removes it when nothing is left. */
static inline void fuzz_dir_drop(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fuzz_dir_remove(names[i]);
    rmdir(fuzz_dir());
}

#endif
