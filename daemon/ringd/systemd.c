/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    FIRST_FD = 3,      /* of those handed over: sd_listen_fds(3) */
    ENTRY_MAX = 12288, /* bytes of an entry; the log's are a fifth of it */
    NAME_SIZE = 256,   /* of a descriptor: sd_pid_notify_with_fds(3) */
};

/* path: a file, or with '@' first a name without one. Never waits. A socket, or a negative
 * errno. */
static int connect_to(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t size = strlen(path);
    if ((*path != '/' && *path != '@') || size >= sizeof to.sun_path)
        return -EINVAL;
    memcpy(to.sun_path, path, size);
    if (*path == '@')
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    const socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    if (!connect(fd, (const struct sockaddr *)&to, len))
        return fd;
    const int r = -errno;
    close(fd);
    return r;
}

/* 0, or a negative errno. */
static int send_to(const char *path, const void *data, size_t n)
{
    const int fd = connect_to(path);
    if (fd < 0)
        return fd;
    const int r = send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
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

/* Calls for each that systemd handed over, with its name, until one is not open any more. */
static void each_fd(void (*take)(void *owner, const char *name, int fd), void *owner)
{
    const char *names = getenv("LISTEN_FDNAMES");
    const uint64_t n = number("LISTEN_FDS");
    if (!names || number("LISTEN_PID") != (uint64_t)getpid())
        return;
    for (int fd = FIRST_FD; (uint64_t)(fd - FIRST_FD) < n && !fcntl(fd, F_SETFD, FD_CLOEXEC); fd++) {
        char name[NAME_SIZE];
        const size_t size = strcspn(names, ":");
        const bool fits = size < sizeof name; /* systemd has no longer one */
        memcpy(name, names, fits ? size : 0);
        name[fits ? size : 0] = '\0';
        take(owner, name, fd);
        names += size + (names[size] == ':');
    }
}

struct systemd_wanted {
    const char *name;
    int fd;
};

static void take_named(void *owner, const char *name, int fd)
{
    struct systemd_wanted *w = owner;
    if (*name && !strcmp(name, w->name))
        w->fd = fd;
}

int systemd_socket(const char *name)
{
    struct systemd_wanted w = {.name = name, .fd = -1};
    each_fd(take_named, &w);
    return w.fd;
}

struct systemd_kept {
    void (*each)(void *owner, const char *name, int fd);
    void *owner;
};

static void take_stored(void *owner, const char *name, int fd)
{
    const struct systemd_kept *s = owner;
    struct stat st;
    if (!fstat(fd, &st) && !S_ISSOCK(st.st_mode))
        s->each(s->owner, name, fd);
}

void systemd_stored(void (*each)(void *owner, const char *name, int fd), void *owner)
{
    each_fd(take_stored, &(struct systemd_kept){each, owner});
}

int systemd_connect(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    return path ? connect_to(path) : -ENOENT;
}

int systemd_store(int sock, const char *name, int fd)
{
    char text[NAME_SIZE + 32];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof fd)];
    } beside = {.room = ""};
    struct iovec io = {.iov_base = text};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    const int n = snprintf(text, sizeof text,
                           fd < 0 ? "FDSTOREREMOVE=1\nFDNAME=%s" : "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
    if (n < 0 || (size_t)n >= sizeof text)
        return -EINVAL;
    io.iov_len = (size_t)n;
    if (fd >= 0) {
        m.msg_control = beside.room;
        m.msg_controllen = sizeof beside.room;
        beside.head = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&beside.head), &fd, sizeof fd);
    }
    return sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
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
