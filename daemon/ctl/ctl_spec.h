/* SPDX-License-Identifier: MIT
 *
 * From a command's options to a job's spec, by the table of its fields. Paths are absolute because
 * the daemon has another working directory. What returns an exit status has said why when it is not
 * CTL_OK. */
#ifndef DAEMON_CTL_SPEC_H
#define DAEMON_CTL_SPEC_H

#include <jansson.h>

#include "daemon/common/job_type.h"
#include "daemon/ctl/ctl.h"

/* What was given of the fields for the command's `spec`, and defaults that only ringctl has. The
 * caller owns it. */
int ctl_spec_read(const struct ctl *ctl, json_t **ret);
/* Is that a job? Refuses with the sentence that the daemon would have. */
int ctl_spec_check(const struct ctl *ctl, enum job_type type, const json_t *spec);
/* An option whose values are NAME=VALUE, such as --template-arg, as an object `key` of the spec.
 * Values are taken as JSON where they are JSON. `example` is for the complaint. */
int ctl_spec_pairs(const struct ctl *ctl, const char *option, const char *key, const char *example,
                   json_t *spec);
/* "NAME=DIR", or DIR, whose last part is the name: a new member of `to`, with an absolute path. Of
 * an adapter (`is_adapter`) it may be a name of the store. `option` is for the complaint. */
int ctl_spec_named_path(const struct ctl *ctl, const char *option, bool is_adapter, const char *text,
                        json_t *to);
/* Posts it there, and waits so long for the answer. Takes over spec. */
int ctl_spec_send(const struct ctl *ctl, const char *path, enum job_type type, json_t *spec,
                  unsigned within_s, json_t **ret);
/* Posts the job; CTL_OK and its name, or the reason has been printed. Takes over spec. */
int ctl_spec_submit(const struct ctl *ctl, enum job_type type, json_t *spec, char ret_name[CTL_JOB_NAME]);

#endif
