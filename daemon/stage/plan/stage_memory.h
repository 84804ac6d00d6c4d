/* SPDX-License-Identifier: MIT
 *
 * How much memory this stage process really has, for comparison with what was planned, and when
 * that is worth a word to the head: at most once a second, and only after a change one can see.
 * Main thread of ringd-stage; reading aside PURE. */
#ifndef DAEMON_STAGE_MEMORY_H
#define DAEMON_STAGE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_type.h"
#include "engine/err.h"
#include "net/clock.h"

struct memory_use { /* bytes */
    uint64_t rss;   /* resident: mapped weights that have been read, and all below */
    uint64_t anon;  /* of it what is no file's: values, slots, scratch */
    uint64_t peak;  /* most that was ever resident */
};
struct memory_watch {
    struct instant looked; /* {0} = not yet: then it is due */
    struct memory_use told;
};

/* status: the text of /proc/PID/status. −EBADMSG: a number is missing. */
int memory_parse(struct memory_use *ret, const char *status);
int memory_read(struct memory_use *ret); /* of this process; −errno */
size_t memory_of_machine(void);          /* bytes; 0: it does not tell */

/* The options that make a job of this type smaller, as in "use %s". */
const char *memory_way_out(enum job_type type);

/* Puts behind a sentence about memory that the system refused what was planned for this stage (0:
 * nothing yet), what it has, and what the machine could still give. */
void memory_explain(struct err *err, enum job_type type, size_t planned);

bool memory_due(struct memory_watch *w,
                struct instant now); /* true: it is looked at now, and not again for a second */
bool memory_changed(struct memory_watch *w, const struct memory_use *use); /* true: this one is told */

#endif
