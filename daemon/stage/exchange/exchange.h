/* SPDX-License-Identifier: MIT
 *
 * The data connections of a stage process: tagged messages in and out, sealed, with credits. The
 * compute thread posts receives and queues sends (small ones it sends itself); beside it two
 * receiving and two sending threads per connection move, seal and open the bytes while it computes.
 * A message is only sent when its receiver has posted a buffer for exactly that key, so no message
 * ever waits in front of another. A rank may be reached over several connections (lanes, one per
 * cable): messages travel in chunks, each over whichever lane is free, so unlike cables carry what
 * each can. Chunks are acknowledged; what a broken lane took with it is sent again over another
 * one, or over the next that is added. With no lane left, messages wait. Threads live in
 * exchange_send.c and exchange_receive.c. */
#ifndef DAEMON_EXCHANGE_H
#define DAEMON_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "engine/pipe/plan.h"
#include "net/seal.h"

struct progress;
struct exchange;

enum {
    /* Payload bytes per record: scratch stays in L2, latency bounded, and the unit of striping. */
    EXCHANGE_CHUNK = 256 * 1024,
    /* A chunk of fewer bytes is sealed, sent and opened sooner than a thread wakes for it. */
    EXCHANGE_SMALL = 64 * 1024,
};

int exchange_new(struct exchange **ret, struct progress *progress, struct err *err);
/* Closes the connections and joins the threads. */
void exchange_free(struct exchange *x);

/* Takes over a connected, authenticated socket to `rank` and starts its threads. May be called
 * again for a rank, also while it computes and from another thread: one more lane, or one in place
 * of a broken one. `path` is the caller's name for the lane, given back when it breaks. −EMLINK:
 * all lanes are in use. */
int exchange_add(struct exchange *x, uint32_t rank, uint64_t path, int fd, const struct seal *tx,
                 const struct seal *rx, struct err *err);

/* Called from a lane's thread, or from exchange_send, when it broke while the exchange was not
 * closing: why is a sentence. Of those that broke before, it is called at once. NULL: nobody wants
 * to know any more. */
void exchange_on_lost(struct exchange *x,
                      void (*lost)(void *owner, uint32_t rank, uint64_t path, const char *why), void *owner);
/* Breaks the lanes whose path (other than 0) is not among those still alive: a cable that is out
 * does not end its connections. */
void exchange_keep(struct exchange *x, const uint64_t *alive, size_t n);

/* Has the progress tell what the kernel knows of each lane by now. */
void exchange_sample_tcp(struct exchange *x);

/* A buffer of `size` bytes (64-byte aligned), recycled from earlier messages where one fits. */
void *exchange_buffer(struct exchange *x, size_t size);
void exchange_release(struct exchange *x, void *buffer);

/* Allows the neighbor to send the message: at most `size` bytes, exactly that many unless
 * `variable`. The neighbor hears of it when the caller tells. */
int exchange_post(struct exchange *x, uint32_t from, const struct msg_key *key, size_t size, bool variable);
/* 1 here, 0 not yet; −ECANCELED: see exchange_abandon. */
int exchange_ready(struct exchange *x, uint32_t from, const struct msg_key *key);
/* A message that is here: its buffer now belongs to the caller (exchange_release). */
void *exchange_take(struct exchange *x, uint32_t from, const struct msg_key *key, size_t *ret_size);

/* 1 if fewer than `limit` messages to the rank are unsent or unacknowledged, but for those of
 * exchange_queue_last; 0 if not. */
int exchange_room(struct exchange *x, uint32_t to, size_t limit);
/* Queues a buffer got from exchange_buffer; it is released when sent. A small one is sent at once,
 * by the caller, if there is a lane to send it. */
int exchange_send(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size);
/* The same for a caller that has something to compute meanwhile: the senders send it, whatever its
 * size, when the caller tells. */
int exchange_queue(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size);
/* Queued, too, but for what is not wanted soon: all else for the rank goes before it, and finds as
 * much room as without it. */
int exchange_queue_last(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer,
                        size_t size);
/* Has the senders take what is left to go out: what was posted and queued, and acknowledgements of
 * what came while the caller waited. All of it together wakes a sender of each lane once, and once
 * somebody who hears it; each time a computing thread may have to make room. To be called before
 * anything that takes long: exchange_wait does it itself. */
void exchange_kick(struct exchange *x);

/* From now on the compute thread reads by itself what the rank sends it: in exchange_wait, and
 * where it asks for what has not come. There it looks for some 100 µs before it sleeps. A message
 * takes half as long that way as over the receiving threads, if all that is between two waits are
 * small messages and computing. What is queued or has to be said leaves with the next message, or
 * when it sleeps. −errno: −ENOTCONN, −ENOMEM, or why an event cannot be written. exchange_leave
 * gives all ranks back to the receiving threads, as exchange_flush does; to be called before the
 * caller waits for anything but the exchange. exchange_kick then says what was held back. */
int exchange_attend(struct exchange *x, uint32_t rank);
void exchange_leave(struct exchange *x);

/* Sleeps until something changed since the last call of wait or poll functions: a message came or
 * left, a connection broke. */
void exchange_wait(struct exchange *x);
/* Until everything queued has arrived; −ETIME after `seconds`. */
int exchange_flush(struct exchange *x, int seconds);
/* Nothing will come of it any more: the compute thread is woken, and finds −ECANCELED wherever it
 * asks or waits. From any thread; nothing else is left to do but exchange_free. */
void exchange_abandon(struct exchange *x);
#endif
