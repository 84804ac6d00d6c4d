/* SPDX-License-Identifier: MIT
 *
 * Owns nothing: opens sockets and hands them over. Called by http.c at start, on the loop
 * thread. */
#include "daemon/ringd/http/http_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/ringd/systemd.h"

enum { BACKLOG = 128 };

static int new_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Makes way for a new socket at path: nothing there, or one whose owner is gone. */
static int clear_path(const char *path, const struct sockaddr_un *addr, struct err *err)
{
    struct stat st;
    if (lstat(path, &st))
        return errno == ENOENT ? 0 : err_set(err, -errno, "socket %s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, -EEXIST,
                       "socket %s: another file has that name: move it away or choose another --socket",
                       path);
    int fd = new_socket(AF_UNIX);
    if (fd < 0)
        return err_set(err, -errno, "socket %s: %s", path, strerror(errno));
    bool answered = connect(fd, (const struct sockaddr *)addr, sizeof *addr) == 0 || errno == EAGAIN;
    close(fd);
    if (answered)
        return err_set(err, -EADDRINUSE,
                       "another ringd answers on %s: stop it, or give this one its own --state-dir", path);
    if (unlink(path) && errno != ENOENT)
        return err_set(err, -errno, "socket %s is left over and cannot be removed: %s", path,
                       strerror(errno));
    return 0;
}

int listen_unix(int *ret_fd, const char *path, struct err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof addr.sun_path)
        return err_set(
            err, -ENAMETOOLONG,
            "socket %s: the path has more than %zu bytes: choose a shorter --socket or --state-dir", path,
            sizeof addr.sun_path - 1);
    strcpy(addr.sun_path, path);
    int rc = clear_path(path, &addr, err);
    if (rc)
        return rc;
    int fd = new_socket(AF_UNIX);
    /* Closed to others from its first moment, then opened to the group whatever the umask. Who
     * waits for it in the file system finds it listening then. */
    if (fd < 0 || fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&addr, sizeof addr) ||
        listen(fd, BACKLOG) || chmod(path, 0660)) {
        rc = err_set(err, -errno, "socket %s: %s: does its folder exist, and may ringd write there?", path,
                     strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

/* Systemd's, of that kind and listening; −1: anything else. */
static int checked(int fd)
{
    struct sockaddr_un at = {.sun_family = AF_UNSPEC};
    socklen_t size = sizeof at, n = sizeof(int);
    int type = 0, listens = 0;
    const bool is_ours = !getsockname(fd, (struct sockaddr *)&at, &size) && at.sun_family == AF_UNIX &&
                         !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) && type == SOCK_STREAM &&
                         !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) && listens;
    return is_ours ? fd : -1;
}

int listen_inherited(void)
{
    const int named = systemd_socket("control"), found = named < 0 ? -1 : checked(named);
    if (found >= 0)
        fcntl(found, F_SETFL, fcntl(found, F_GETFL) | O_NONBLOCK);
    return found;
}

union any_addr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool make_sockaddr(union any_addr *a, socklen_t *n, const struct listen_addr *from)
{
    memset(a, 0, sizeof *a);
    if (inet_pton(AF_INET, from->host, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons(from->port);
        *n = sizeof a->v4;
        return true;
    }
    if (inet_pton(AF_INET6, from->host, &a->v6.sin6_addr) != 1)
        return false;
    a->v6.sin6_family = AF_INET6;
    a->v6.sin6_port = htons(from->port);
    *n = sizeof a->v6;
    return true;
}

static bool is_loopback(const union any_addr *a)
{
    if (a->any.sa_family == AF_INET)
        return (ntohl(a->v4.sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

int listen_read_addr(struct listen_addr *ret, const char *addr_port, struct err *err)
{
    struct listen_addr out = {0};
    const char *colon = strrchr(addr_port, ':');
    const char *from = addr_port, *to = colon;
    if (colon && *from == '[' && colon > from + 1 && colon[-1] == ']') {
        from++;
        to--;
    }
    char *end = NULL;
    long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : -1;
    union any_addr a;
    socklen_t n;
    if (port < 0 || port > 65535 || *end || to <= from || (size_t)(to - from) >= sizeof out.host)
        return err_set(err, -EINVAL,
                       "\"%s\": an address and a port are needed, as 127.0.0.1:8473 or [::1]:8473",
                       addr_port);
    memcpy(out.host, from, (size_t)(to - from));
    if (!strcmp(out.host, "localhost"))
        strcpy(out.host, "127.0.0.1");
    out.port = (uint16_t)port;
    if (!make_sockaddr(&a, &n, &out))
        return err_set(err, -EINVAL,
                       "\"%s\": %s is not an address: give one in numbers, as 127.0.0.1:8473 or [::1]:8473",
                       addr_port, out.host);
    out.is_loopback = is_loopback(&a);
    *ret = out;
    return 0;
}

int listen_tcp(int *ret_fd, struct listen_addr *ret_addr, const char *addr_port, struct err *err)
{
    struct listen_addr out;
    union any_addr a;
    socklen_t n;
    int rc = listen_read_addr(&out, addr_port, err);
    if (rc || !make_sockaddr(&a, &n, &out))
        return rc;
    int fd = new_socket(a.any.sa_family), one = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) || bind(fd, &a.any, n) ||
        listen(fd, BACKLOG) || getsockname(fd, &a.any, &n)) {
        rc = err_set(err, -errno, "cannot listen on %s: %s", addr_port, strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    out.port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    *ret_fd = fd;
    *ret_addr = out;
    return 0;
}
