/* SPDX-License-Identifier: MIT */
#include "daemon/ipc.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The length and the descriptor travel in the first sendmsg; the rest is plain bytes. */
static int send_all(int sock, const char *data, size_t n, int fd)
{
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    while (n) {
        struct iovec iov = {(void *)(uintptr_t)data, n};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        if (fd >= 0) {
            msg.msg_control = control.buf;
            msg.msg_controllen = sizeof control.buf;
            struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof fd);
            memcpy(CMSG_DATA(c), &fd, sizeof fd);
        }
        ssize_t sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        data += sent;
        n -= (size_t)sent;
        fd = -1;
    }
    return 0;
}

int ipc_send(int sock, json_t *object, int fd)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!text)
        return -ENOMEM;
    size_t n = strlen(text);
    char *frame = malloc(n + 4);
    uint32_t length = htole32((uint32_t)n);
    int r = -ENOMEM;
    if (frame && n <= IPC_MAX) {
        memcpy(frame, &length, 4);
        memcpy(frame + 4, text, n);
        r = send_all(sock, frame, n + 4, fd);
    }
    free(frame);
    free(text);
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

int ipc_receive(int sock, json_t **ret, int *ret_fd)
{
    uint32_t length;
    *ret_fd = -1;
    int r = receive_all(sock, &length, sizeof length, ret_fd);
    if (r)
        return r;
    size_t n = le32toh(length);
    char *text = n <= IPC_MAX ? malloc(n + 1) : NULL;
    if (!text)
        return -EBADMSG;
    r = receive_all(sock, text, n, ret_fd);
    json_t *object = r ? NULL : json_loadb(text, n, 0, NULL);
    free(text);
    if (!object)
        return r ? r : -EBADMSG;
    *ret = object;
    return 0;
}
