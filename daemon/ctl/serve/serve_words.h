/* SPDX-License-Identifier: MIT
 *
 * The words of ringctl serve that are about what is served already. Each returns an exit status,
 * and has said why when it is not CTL_OK. One thread. */
#ifndef DAEMON_CTL_SERVE_WORDS_H
#define DAEMON_CTL_SERVE_WORDS_H

#include <jansson.h>

#include "daemon/ctl/ctl.h"

/* The jobs that serve, of all nodes, as GET /v1/jobs has them; the caller's. */
int serve_jobs(const struct ctl *ctl, json_t **ret);
/* The name of the job that serves it, the first if there are several, but of those whose head is in
 * reach; the caller frees. */
int serve_job_of(const struct ctl *ctl, const char *name, char **ret);

/* show NAME */
int serve_show_main(const struct ctl *ctl);
/* adapter (add NAME [ADAPTER=]DIR | remove NAME ADAPTER) */
int serve_adapter_main(const struct ctl *ctl);

#endif
