/* SPDX-License-Identifier: MIT
 *
 * The fields of a spec as options of a command: name, type, range, default and help come from the
 * rows of job_spec_fields. Pure: any thread. */
#ifndef DAEMON_CTL_SPEC_OPTIONS_H
#define DAEMON_CTL_SPEC_OPTIONS_H

#include <stdbool.h>

#include "daemon/common/fields.h"
#include "daemon/common/optable.h"

/* Has the row an option for that use (JOB_SPEC_OF…)? */
bool spec_option_is_for(const struct field *field, unsigned use);

/* The options of the rows for `use` in their order, then those of both tables, which may be NULL;
 * the last has no name. The caller frees it, in one piece. */
struct opt_def *spec_options_new(unsigned use, const struct opt_def *own, const struct opt_def *global);

#endif
