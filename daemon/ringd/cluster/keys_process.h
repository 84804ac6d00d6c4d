/* SPDX-License-Identifier: MIT
 *
 * The process that has this node's secret keys: started, asked, watched. It answers within
 * microseconds, so the loop waits for the answer; but not for ever. A ringd without it can neither
 * prove who it is nor let anybody in. So when it is gone, or silent for KEYS_PATIENCE_MS, that is
 * reported once, and the owner ends ringd, whose start makes another. One request is under way at
 * any time. Loop thread. */
#ifndef DAEMON_KEYS_PROCESS_H
#define DAEMON_KEYS_PROCESS_H

#include <sys/types.h>

#include "daemon/ringd/cluster/keys.h"

enum { KEYS_PATIENCE_MS = 5000 };

struct event_base;
struct keys_process;

/* program: keeps the keys in `dir`. To be called while this process has one thread. */
int keys_process_start(struct keys_process **ret, const char *program, const char *dir, struct err *err);
/* One that is at the other end of that socket, which is taken over; pid: of our child, 0: it is
 * none. */
struct keys_process *keys_process_on(int fd, pid_t pid);
/* It ends by itself. */
void keys_process_close(struct keys_process *p);

/* For keys_open. */
ssize_t keys_process_ask(void *owner, const uint8_t *request, size_t n, uint8_t *answer, size_t cap);
pid_t keys_process_pid(const struct keys_process *p); /* 0: it is no child of this process */
/* Why it is gone; NULL while it is there. */
const char *keys_process_trouble(const struct keys_process *p);
/* From now on `lost` is called, once, when it is gone: from the loop, or within keys_process_ask.
 * */
void keys_process_watch(struct keys_process *p, struct event_base *base,
                        void (*lost)(void *owner, const char *why), void *owner);

#endif
