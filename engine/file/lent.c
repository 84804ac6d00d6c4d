/* SPDX-License-Identifier: MIT
 *
 * Owns the table. Finding in it takes no memory and no lock, so that a signal handler may. */
#include "file/lent.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lent_file {
    char *path; /* owned */
    int fd;     /* owned; −1: a folder */
};

/* Of the process, as its working directory is. */
static struct {
    struct lent_file *at; /* owned */
    size_t n;
} lent;

/* What follows `folder` in `path`: "" if it is the folder itself, NULL if it lies elsewhere. */
static const char *behind(const char *path, const char *folder)
{
    while (*folder) {
        if (*folder == '/') {
            folder += strspn(folder, "/");
            if (!*folder) /* it ends with slashes */
                break;
            if (*path != '/')
                return NULL;
            path += strspn(path, "/");
        } else if (*path++ != *folder++) {
            return NULL;
        }
    }
    if (*path && *path != '/')
        return NULL;
    return path + strspn(path, "/");
}

static int add(const char *path, int fd)
{
    struct lent_file *grown = realloc(lent.at, (lent.n + 1) * sizeof *grown);
    if (grown)
        lent.at = grown;
    char *copy = grown ? strdup(path) : NULL;
    if (!copy)
        return -ENOMEM;
    lent.at[lent.n++] = (struct lent_file){copy, fd};
    return 0;
}

int lent_add(const char *path, int fd)
{
    return fd < 0 ? -EBADF : add(path, fd);
}

int lent_add_folder(const char *path)
{
    return add(path, -1);
}

int lent_find(const char *path)
{
    bool is_below = false;
    for (size_t i = 0; i < lent.n; i++) {
        const char *rest = behind(path, lent.at[i].path);
        if (rest && !*rest)
            return lent.at[i].fd < 0 ? -EISDIR : lent.at[i].fd;
        is_below |= rest && lent.at[i].fd < 0 && !strchr(rest, '/');
    }
    return is_below ? -ENOENT : -ENODATA;
}

size_t lent_each(const char *dir, void (*each)(void *arg, const char *name, int fd), void *arg)
{
    size_t n = 0;
    for (size_t i = 0; i < lent.n; i++) {
        const char *name = lent.at[i].fd < 0 ? NULL : behind(lent.at[i].path, dir);
        if (!name || !*name || strchr(name, '/'))
            continue;
        each(arg, name, lent.at[i].fd);
        n++;
    }
    return n;
}

int lent_next(int fd)
{
    int next = -1;
    for (size_t i = 0; i < lent.n; i++)
        if (lent.at[i].fd >= fd && lent.at[i].fd >= 0 && (next < 0 || lent.at[i].fd < next))
            next = lent.at[i].fd;
    return next;
}

void lent_clear(void)
{
    for (size_t i = 0; i < lent.n; i++) {
        free(lent.at[i].path);
        if (lent.at[i].fd >= 0)
            close(lent.at[i].fd);
    }
    free(lent.at);
    lent.at = NULL;
    lent.n = 0;
}
