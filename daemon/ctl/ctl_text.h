/* SPDX-License-Identifier: MIT
 *
 * A model's chat template, asked here and now, before a job is submitted that would need it. */
#ifndef DAEMON_CTL_TEXT_H
#define DAEMON_CTL_TEXT_H

#include <jansson.h>

#include "daemon/ctl/ctl.h"

/* Would the template of the model take these messages? Starts a ringd-stage and waits for it, at
 * most 30 s, or until signal_fd (a signalfd) can be read. CTL_OK also where it cannot be found out
 * here, as with files that only the daemon may read: then the job will say. CTL_FAILED: the reason
 * has been printed. template_args may be NULL. */
int ctl_text_check(const char *model, const json_t *messages, const json_t *template_args, int signal_fd);

#endif
