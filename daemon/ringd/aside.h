/* SPDX-License-Identifier: MIT
 *
 * Work that may wait for a disk, done beside the loop: each piece on a thread of its own, which
 * hands it back through the mailbox. A disk that hangs holds up that piece alone. Loop thread. */
#ifndef DAEMON_ASIDE_H
#define DAEMON_ASIDE_H

#include <stdbool.h>
#include <stddef.h>

struct aside;
struct mailbox;

enum { ASIDE_MOST = 16 /* pieces at once, those that hang among them */ };

struct aside *aside_new(struct mailbox *mailbox); /* borrowed */
/* Loop thread, before the mailbox goes. Work that is not over is left behind: its `drop` runs when
 * it is, on its thread. NULL is fine. */
void aside_free(struct aside *a);

/* A piece of work, embedded first in what it is about. */
struct aside_work {
    void (*run)(struct aside_work *w);  /* on the thread: touches nothing but w */
    void (*done)(struct aside_work *w); /* then on the loop, which frees w */
    void (*drop)(struct aside_work *w); /* instead, where the loop has ended: frees w; any thread */
    bool is_left;                       /* by its owner: `drop` instead of `done`. Loop thread */
    struct aside *aside;                /* the rest is aside.c's */
    struct aside_work *next;
};

/* Takes w over. −EAGAIN: too much is under way, or there is no thread; then w stays the
 * caller's. */
int aside_run(struct aside *a, struct aside_work *w);

#endif
