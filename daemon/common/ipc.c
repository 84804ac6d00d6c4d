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
    int fd; /* owned until it has left; −1 */
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

/* The descriptor travels with the first bytes. */
int ipc_frame_push(struct ipc_frame *f, int sock)
{
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    while (f->at < f->n) {
        struct iovec iov = {f->bytes + f->at, f->n - f->at};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        if (f->fd >= 0) {
            msg.msg_control = control.buf;
            msg.msg_controllen = sizeof control.buf;
            struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof f->fd);
            memcpy(CMSG_DATA(c), &f->fd, sizeof f->fd);
        }
        ssize_t sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        f->at += (size_t)sent;
        if (f->fd >= 0)
            close(f->fd);
        f->fd = -1;
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
    if (f->fd >= 0)
        close(f->fd);
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
