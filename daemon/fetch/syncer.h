/* SPDX-License-Identifier: MIT
 *
 * A thread that makes what comes survive a power cut, while more comes: as soon as one sync has
 * ended, the next begins, with all that has come meanwhile. A note on the disk says what survives;
 * it is written once the bytes before it are safe. So a power cut costs what came during a sync,
 * and no more than SYNC_MOST: a disk that is slower than what comes makes that wait. All functions
 * are for one thread. */
#ifndef DAEMON_SYNCER_H
#define DAEMON_SYNCER_H

#include <stddef.h>
#include <stdint.h>

struct syncer;

enum { SYNC_MOST = 64 << 20 /* bytes that a power cut costs, at most */ };

/* Descriptors are borrowed until syncer_forget or syncer_free; bytes are copied. */
struct sync_order {
    int before; /* synced first; −1: nothing is */
    int file;   /* synced then */
    int note;   /* and then gets n bytes at `at`, and is synced itself */
    const void *bytes;
    size_t n;
    uint64_t at;
    uint64_t fresh; /* bytes of the file that have come since the order before */
};

/* 0 or −errno. */
int syncer_new(struct syncer **ret);
/* Takes the place of an order of the same file that has not begun. Waits while more than SYNC_MOST
 * bytes are not safe. −errno: a sync has failed, this one or an earlier one. */
int syncer_ask(struct syncer *s, const struct sync_order *o);
/* What was asked for is safe, or failed. */
void syncer_wait(struct syncer *s);
/* Nothing of this file is done from now on. −errno as above: the kernel says once that it has lost
 * bytes, so a later fsync of the file may say that all is well. */
int syncer_forget(struct syncer *s, int file);
/* Waits as above. NULL is fine. */
void syncer_free(struct syncer *s);

/* What the thread does with a note, for the caller's own thread. −errno: −EIO, the disk took a part
 * of it. */
int sync_note(int note, const void *bytes, size_t n, uint64_t at);

#endif
