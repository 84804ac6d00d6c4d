/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/carry/carry_line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"

#define REKEY_US (UINT64_C(120) * 1000000)
enum {
    AROUND = SEAL_HEAD + SEAL_TAG,
    REKEY_RECORD = AROUND + 1,
    IN_MAX = AROUND + SEAL_MAX + SEAL_HEAD, /* a record, and the head of the next one */
    OUT_MAX = REKEY_RECORD + AROUND + SEAL_MAX
};

int carry_line_open(struct carry_line *l, struct ipc_lane *lane, int fd, struct instant now)
{
    *l = (struct carry_line){.fd = fd,
                             .tx = lane->tx,
                             .rx = lane->rx,
                             .in = xmalloc(IN_MAX),
                             .out = xmalloc(OUT_MAX),
                             .heard = now,
                             .said = now,
                             .moved = now,
                             .keyed = now};
    seal_wipe(&lane->tx);
    seal_wipe(&lane->rx);
    const int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

void carry_line_close(struct carry_line *l)
{
    close(l->fd);
    seal_wipe(&l->tx);
    seal_wipe(&l->rx);
    free(l->in);
    free(l->out);
}

/* --- what comes ------------------------------------------------------------------------------- */

/* At least n bytes: 1; 0: not yet; or an error. The head of the next record comes in the same call
 * as the end of one. */
static int fill(struct carry_line *l, size_t n, struct instant now)
{
    while (l->in_n < n) {
        const size_t most = n == SEAL_HEAD ? n : n + SEAL_HEAD;
        const ssize_t got = recv(l->fd, l->in + l->in_n, most - l->in_n, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno == EAGAIN ? 0 : -errno;
        if (!got)
            return -EPIPE;
        l->in_n += (size_t)got;
        l->heard = now;
    }
    return 1;
}

static int read_record(struct carry_line *l, struct carry_frame *ret, struct instant now)
{
    size_t n;
    memmove(l->in, l->in + l->in_used, l->in_n - l->in_used);
    l->in_n -= l->in_used;
    l->in_used = 0;
    int r = fill(l, SEAL_HEAD, now);
    if (r <= 0)
        return r;
    if (seal_length(l->in, &n))
        return -EBADMSG;
    r = fill(l, AROUND + n, now);
    if (r <= 0)
        return r;
    l->in_used = AROUND + n;
    if (seal_open(&l->rx, l->in, l->in + SEAL_HEAD, n, l->in + SEAL_HEAD + n) ||
        !carry_frame_read(ret, l->in + SEAL_HEAD, n))
        return -EBADMSG;
    return 1;
}

int carry_line_read(struct carry_line *l, struct carry_frame *ret, struct instant now)
{
    const int r = read_record(l, ret, now);
    if (r <= 0 || ret->kind != CARRY_REKEY)
        return r;
    if (seal_ratchet(&l->rx))
        return -EBADMSG;
    ret->kind = CARRY_WAIT; /* of no more meaning than that */
    return 1;
}

/* --- what goes -------------------------------------------------------------------------------- */

bool carry_line_is_free(const struct carry_line *l)
{
    return !l->out_n;
}

static uint8_t *space_at(struct carry_line *l)
{
    return l->out + l->out_n + SEAL_HEAD;
}

static int seal_it(struct carry_line *l, size_t n, struct instant now)
{
    const int r = seal_seal(&l->tx, l->out + l->out_n, space_at(l), n);
    l->out_n += AROUND + n;
    l->said = now;
    return r;
}

/* The frame lies where it would be without a record before it; that is short, so it goes behind. */
int carry_line_put(struct carry_line *l, size_t n, struct instant now)
{
    int r = seal_it(l, n, now);
    if (r || clock_since_us(now, l->keyed) < REKEY_US)
        return r;
    carry_frame_write(space_at(l), CARRY_REKEY, 0, 0);
    l->keyed = now;
    r = seal_it(l, 1, now);
    return r ? r : seal_ratchet(&l->tx);
}

uint8_t *carry_line_space(struct carry_line *l)
{
    return space_at(l);
}

int carry_line_say(struct carry_line *l, enum carry_kind kind, uint32_t a, uint32_t b, struct instant now)
{
    return carry_line_put(l, carry_frame_write(space_at(l), kind, a, b), now);
}

int carry_line_push(struct carry_line *l, struct instant now)
{
    while (l->out_at < l->out_n) {
        const ssize_t put =
            send(l->fd, l->out + l->out_at, l->out_n - l->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        l->out_at += (size_t)put;
        l->moved = now;
    }
    l->out_n = l->out_at = 0;
    return 0;
}
