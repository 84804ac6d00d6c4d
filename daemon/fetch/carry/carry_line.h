/* SPDX-License-Identifier: MIT
 *
 * A sealed connection that neither end waits for: records as they come, and one record at a time as
 * they go. Its key is ratcheted when it is two minutes old. One thread. */
#ifndef DAEMON_CARRY_LINE_H
#define DAEMON_CARRY_LINE_H

#include <stdbool.h>

#include "daemon/common/ipc.h"
#include "daemon/fetch/carry/carry_frame.h"
#include "net/clock.h"

struct carry_line {
    int fd; /* owned */
    struct seal tx, rx;
    uint8_t *in, *out; /* owned */
    size_t in_n, in_used, out_n, out_at;
    struct instant heard, said, moved; /* bytes that came, the last record, bytes that went */
    struct instant keyed;
};

/* Takes over the descriptor, and the keys, which are wiped where they were. 0 or −errno. */
int carry_line_open(struct carry_line *l, struct ipc_lane *lane, int fd, struct instant now);
void carry_line_close(struct carry_line *l);

/* 1: a frame, whose bytes are there until the next call; 0: not yet. −EPIPE: the other end has
 * closed it; −EBADMSG: a record that is forged, or nonsense; −errno. */
int carry_line_read(struct carry_line *l, struct carry_frame *ret, struct instant now);

/* May a record be begun? */
bool carry_line_is_free(const struct carry_line *l);
/* Where a frame's bytes go, of at most CARRY_BYTES behind CARRY_HEAD of its head; only while the
 * line is free. Then carry_line_put seals so much of it. 0 or −errno. */
uint8_t *carry_line_space(struct carry_line *l);
int carry_line_put(struct carry_line *l, size_t n, struct instant now);
/* A frame that is but its head. */
int carry_line_say(struct carry_line *l, enum carry_kind kind, uint32_t a, uint32_t b, struct instant now);
/* 0: all has left; −EAGAIN: the socket takes no more now; −errno. */
int carry_line_push(struct carry_line *l, struct instant now);

#endif
