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
/* --template-arg NAME=VALUE as "template_args", values as JSON where they are that. */
int ctl_spec_template_args(const struct ctl *ctl, json_t *spec);
/* Posts it there, and waits so long for the answer. Takes over spec. */
int ctl_spec_send(const struct ctl *ctl, const char *path, enum job_type type, json_t *spec,
                  unsigned within_s, json_t **ret);
/* Posts the job; CTL_OK and its name, or the reason has been printed. Takes over spec. */
int ctl_spec_submit(const struct ctl *ctl, enum job_type type, json_t *spec, char ret_name[CTL_JOB_NAME]);

#endif
