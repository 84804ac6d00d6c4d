/* SPDX-License-Identifier: MIT
 *
 * How other threads reach the loop: they post, the loop calls. The only thing the HTTP and store
 * threads share with it. */
#ifndef DAEMON_MAILBOX_H
#define DAEMON_MAILBOX_H

struct event_base;
struct mailbox;

int mailbox_new(struct mailbox **ret, struct event_base *base);
void mailbox_free(
    struct mailbox *box); /* loop thread, when nobody posts any more; undelivered calls are dropped */
/* Any thread: fn(arg) runs on the loop thread, in order of posting. */
void mailbox_post(struct mailbox *box, void (*fn)(void *arg), void *arg);
/* Loop thread: drops what was posted with this arg and not yet called, because arg is about to
 * go. */
void mailbox_forget(struct mailbox *box, const void *arg);

#endif
