/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    FIRST_FD = 3,      /* of those handed over: sd_listen_fds(3) */
    ENTRY_MAX = 12288, /* bytes of an entry; the log's are a fifth of it */
};

/* path: a file, or with '@' first a name without one. Never waits. 0, or a negative errno. */
static int send_to(const char *path, const void *data, size_t n)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t size = strlen(path);
    if ((*path != '/' && *path != '@') || size >= sizeof to.sun_path)
        return -EINVAL;
    memcpy(to.sun_path, path, size);
    if (*path == '@')
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    const socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    const int r =
        sendto(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&to, len) < 0 ? -errno : 0;
    close(fd);
    return r;
}

void systemd_notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (path)
        send_to(path, text, strlen(text));
}

/* The number in a variable, 0: there is none. */
static uint64_t number(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    errno = 0;
    const unsigned long long n = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    return n && !*end && !errno ? n : 0;
}

uint64_t systemd_watchdog_us(void)
{
    const uint64_t pid = number("WATCHDOG_PID");
    return pid && pid != (uint64_t)getpid() ? 0 : number("WATCHDOG_USEC");
}

int systemd_socket(const char *name)
{
    const char *names = getenv("LISTEN_FDNAMES");
    const uint64_t n = number("LISTEN_FDS");
    int found = -1;
    if (!names || number("LISTEN_PID") != (uint64_t)getpid())
        return -1;
    for (int fd = FIRST_FD; (uint64_t)(fd - FIRST_FD) < n && !fcntl(fd, F_SETFD, FD_CLOEXEC); fd++) {
        const size_t size = strcspn(names, ":");
        if (size && size == strlen(name) && !memcmp(names, name, size))
            found = fd;
        names += size + (names[size] == ':');
    }
    return found;
}

static bool add(char *to, size_t cap, size_t *at, const void *data, size_t n)
{
    if (n > cap - *at)
        return false;
    memcpy(to + *at, data, n);
    *at += n;
    return true;
}

/* Before a value with line breaks goes its length: eight bytes, the lowest first. */
size_t systemd_encode(const struct systemd_field *fields, size_t n, char *ret, size_t cap)
{
    size_t at = 0;
    bool fits = true;
    for (size_t i = 0; i < n && fits; i++) {
        const char *value = fields[i].value;
        const uint64_t size = strlen(value);
        fits = add(ret, cap, &at, fields[i].name, strlen(fields[i].name));
        if (!strchr(value, '\n')) {
            fits = fits && add(ret, cap, &at, "=", 1);
        } else {
            char head[9] = {'\n'};
            for (size_t k = 0; k < 8; k++)
                head[1 + k] = (char)(size >> 8 * k & 0xff);
            fits = fits && add(ret, cap, &at, head, sizeof head);
        }
        fits = fits && add(ret, cap, &at, value, size) && add(ret, cap, &at, "\n", 1);
    }
    return fits ? at : 0;
}

int systemd_log(const struct systemd_field *fields, size_t n)
{
    char entry[ENTRY_MAX];
    const size_t size = systemd_encode(fields, n, entry, sizeof entry);
    return size ? send_to("/run/systemd/journal/socket", entry, size) : -EMSGSIZE;
}
