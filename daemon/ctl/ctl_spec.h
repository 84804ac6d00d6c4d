/* SPDX-License-Identifier: MIT
 *
 * From options to a job's spec: keys are option names with _ for -, values have the option's JSON
 * type, paths are absolute because the daemon has another working directory. */
#ifndef DAEMON_CTL_SPEC_H
#define DAEMON_CTL_SPEC_H

#include <jansson.h>

#include "daemon/ctl/ctl.h"

json_t *ctl_spec_new(const struct ctl *ctl);
/* --template-arg NAME=VALUE as "template_args", values as JSON where they are that. CTL_OK, or what
 *  is wrong has been printed. */
int ctl_spec_template_args(const struct ctl *ctl, json_t *spec);
/* "1,2,3" → [1,2,3]; NULL if it is anything else. */
json_t *ctl_spec_ids(const char *text);
/* Posts it there, and waits so long for the answer. Takes over spec. */
int ctl_spec_send(const struct ctl *ctl, const char *path, const char *type, json_t *spec, unsigned within_s,
                  json_t **ret);
/* Posts the job; CTL_OK and its name, or the reason has been printed. Takes over spec. */
int ctl_spec_submit(const struct ctl *ctl, const char *type, json_t *spec, char ret_name[CTL_JOB_NAME]);

#endif
