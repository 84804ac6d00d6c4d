/* SPDX-License-Identifier: MIT
 *
 * The types of jobs. Pure: any thread. */
#ifndef DAEMON_JOB_TYPE_H
#define DAEMON_JOB_TYPE_H

#include "daemon/common/fields.h"
#include "engine/err.h"

enum job_type { JOB_TRAIN, JOB_GENERATE, JOB_SCORE, JOB_SERVE, JOB_EVAL, JOB_TYPES };
extern const struct field_choice job_types[]; /* their names */

/* Whose turn it is where not all have room: somebody waits for every word of the first, for the end
 * of the second, and for nothing of the third. */
enum job_class { JOB_CLASS_SERVE, JOB_CLASS_INTERACTIVE, JOB_CLASS_TRAIN, JOB_CLASSES };
enum job_class job_class_of(enum job_type type);
const char *job_class_name(enum job_class c); /* "serve", "interactive", "train"; "?" of no such class */

const char *job_type_name(enum job_type type); /* "train", "serve", …; "?" of no such type */
const char *job_type_unit(enum job_type type); /* what its progress is counted in: "step", "token", "row" */
int job_type_read(enum job_type *ret, const char *name, struct err *err); /* −EINVAL with a sentence */

#endif
