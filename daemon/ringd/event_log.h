/* SPDX-License-Identifier: MIT
 *
 * Recent events, numbered, for whoever listens: a bounded ring in memory. The loop publishes;
 * HTTP's event streams read from their own thread (one mutex inside). A slow reader skips: it is
 * told from which id on it has lost events. */
#ifndef DAEMON_EVENT_LOG_H
#define DAEMON_EVENT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_log;
struct ledger;

/* How many events are kept at most, and how many bytes of their texts; the last one whatever its
 * size. */
struct event_log *event_log_new(size_t events, size_t bytes);
/* As the queue "events": the oldest events go when it is full. */
void event_log_register(struct event_log *log, struct ledger *ledger);
void event_log_free(struct event_log *log);
/* `type`: "job", "step", "valid", "token", "log", "node", "end"; json: one line, copied. job 0 =
 * not of a job. Returns the id. */
uint64_t event_log_publish(struct event_log *log, uint64_t job, const char *type, const char *json);
uint64_t event_log_newest(struct event_log *log); /* its id, 0 = none yet */
/* The first event after id `after` (of `job`, or of any when 0): a fresh string in
 * server-sent-events form "id: …\nevent: …\ndata: …\n\n", NULL if there is none yet. ret_id = its
 * id, or with NULL the newest id passed over: where to go on from. ret_last = it was an "end"
 * event. What was lost is told once as an event "resync" {"lost_after":…,"next":…}; after = 0 asks
 * for whatever is kept and has lost nothing. */
char *event_log_next(struct event_log *log, uint64_t job, uint64_t after, uint64_t *ret_id, bool *ret_last);
/* Called (under no lock) after every publish, on the publisher's thread. */
void event_log_on_publish(struct event_log *log, void (*fn)(void *owner), void *owner);

#endif
