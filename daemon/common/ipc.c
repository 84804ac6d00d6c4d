/* SPDX-License-Identifier: MIT */
#include "daemon/common/ipc.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LENGTH = 4 };
#define IS_LANE (UINT32_C(1) << 31) /* in the length: not an object */

struct ipc_frame {
    int fd;         /* owned until it has left; −1 */
    const int *fds; /* borrowed until let_go; NULL: none, or they have left */
    size_t n_fds;
    void (*let_go)(void *owner);
    void *owner;
    size_t n, at;
    char bytes[];
};

static int frame_new(struct ipc_frame **ret, const void *body, size_t n, uint32_t mark, int fd)
{
    uint32_t length = htole32((uint32_t)n | mark);
    struct ipc_frame *f = n <= IPC_MAX ? malloc(sizeof *f + LENGTH + n) : NULL;
    if (!f)
        return -ENOMEM;
    *f = (struct ipc_frame){.fd = -1, .n = LENGTH + n};
    if (fd >= 0 && (f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0) {
        int r = -errno;
        free(f);
        return r;
    }
    memcpy(f->bytes, &length, LENGTH);
    memcpy(f->bytes + LENGTH, body, n);
    *ret = f;
    return 0;
}

int ipc_frame_new(struct ipc_frame **ret, json_t *object, int fd)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(object);
    int r = text ? frame_new(ret, text, strlen(text), 0, fd) : -ENOMEM;
    free(text);
    return r;
}

int ipc_frame_new_lane(struct ipc_frame **ret, const struct ipc_lane *lane, int fd)
{
    return frame_new(ret, lane, sizeof *lane, IS_LANE, fd);
}

int ipc_frame_new_fds(struct ipc_frame **ret, const int *fds, size_t n, void (*let_go)(void *owner),
                      void *owner)
{
    if (!n || n > IPC_FDS_MAX)
        return -E2BIG;
    struct ipc_frame *f = malloc(sizeof *f + 1);
    if (!f)
        return -ENOMEM;
    *f = (struct ipc_frame){.fd = -1, .fds = fds, .n_fds = n, .let_go = let_go, .owner = owner, .n = 1};
    f->bytes[0] = ' '; /* descriptors travel with a byte */
    *ret = f;
    return 0;
}

static void fds_left(struct ipc_frame *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    if (f->fds)
        f->let_go(f->owner);
    f->fds = NULL;
}

/* The descriptors travel with the first bytes. */
int ipc_frame_push(struct ipc_frame *f, int sock)
{
    union {
        char buf[CMSG_SPACE(IPC_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    while (f->at < f->n) {
        struct iovec iov = {f->bytes + f->at, f->n - f->at};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        const size_t size = (f->fds ? f->n_fds : 1) * sizeof f->fd;
        if (f->fd >= 0 || f->fds) {
            memset(control.buf, 0, CMSG_SPACE(size));
            msg.msg_control = control.buf;
            msg.msg_controllen = CMSG_SPACE(size);
            struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(size);
            memcpy(CMSG_DATA(c), f->fds ? f->fds : &f->fd, size);
        }
        ssize_t sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        f->at += (size_t)sent;
        fds_left(f);
    }
    return 0;
}

size_t ipc_frame_left(const struct ipc_frame *f)
{
    return f->n - f->at;
}

void ipc_frame_free(struct ipc_frame *f)
{
    if (!f)
        return;
    fds_left(f);
    explicit_bzero(f->bytes, f->n);
    free(f);
}

int ipc_send(int sock, json_t *object)
{
    struct ipc_frame *f = NULL;
    int r = ipc_frame_new(&f, object, -1);
    if (!r)
        r = ipc_frame_push(f, sock);
    ipc_frame_free(f);
    return r;
}

static int receive_all(int sock, void *to, size_t n, int *ret_fd)
{
    char *at = to;
    while (n) {
        union {
            char buf[CMSG_SPACE(sizeof(int))];
            struct cmsghdr align;
        } control;
        struct iovec iov = {at, n};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.buf,
                             .msg_controllen = sizeof control.buf};
        ssize_t got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? -errno : -EPIPE;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && ret_fd)
            memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
        at += got;
        n -= (size_t)got;
    }
    return 0;
}

static int receive_object(int sock, json_t **ret, size_t n, int *ret_fd)
{
    char *text = n <= IPC_MAX ? malloc(n + 1) : NULL;
    if (!text)
        return -EBADMSG;
    int r = receive_all(sock, text, n, ret_fd);
    json_t *object = r ? NULL : json_loadb(text, n, 0, NULL);
    free(text);
    if (!object)
        return r ? r : -EBADMSG;
    *ret = object;
    return 0;
}

int ipc_receive(int sock, json_t **ret, struct ipc_lane *ret_lane, int *ret_fd)
{
    uint32_t length;
    *ret_fd = -1;
    int r = receive_all(sock, &length, sizeof length, ret_fd);
    if (r)
        return r;
    length = le32toh(length);
    if (!(length & IS_LANE))
        return receive_object(sock, ret, length, ret_fd);
    if (!ret_lane || (length & ~IS_LANE) != sizeof *ret_lane)
        return -EBADMSG;
    r = receive_all(sock, ret_lane, sizeof *ret_lane, ret_fd);
    return r ? r : 1;
}

/* What came of them, in the order it was sent. */
static size_t take_fds(struct msghdr *msg, int *ret, size_t most)
{
    size_t n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (n < most)
                ret[n++] = fd;
            else
                close(fd);
        }
    }
    return n;
}

ssize_t ipc_read_fds(int sock, void *to, size_t size, int flags, int *ret, size_t *ret_n, bool *ret_cut)
{
    union {
        char buf[CMSG_SPACE(IPC_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {to, size};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof control.buf};
    ssize_t got;
    do
        got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | flags);
    while (got < 0 && errno == EINTR);
    *ret_n = got < 0 ? 0 : take_fds(&msg, ret, IPC_FDS_MAX);
    *ret_cut = got >= 0 && msg.msg_flags & MSG_CTRUNC;
    return got < 0 ? -errno : got;
}

int ipc_receive_fds(int sock, int *ret, size_t n)
{
    int fds[IPC_FDS_MAX];
    size_t have;
    bool is_cut;
    char byte;
    const ssize_t got = ipc_read_fds(sock, &byte, 1, 0, fds, &have, &is_cut);
    if (got == 1 && !is_cut && have == n) {
        memcpy(ret, fds, n * sizeof *fds);
        return 0;
    }
    for (size_t i = 0; i < have; i++)
        close(fds[i]);
    return got < 0 ? (int)got : got == 0 ? -EPIPE : is_cut ? -EMFILE : -EBADMSG;
}
