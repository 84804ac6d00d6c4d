/* SPDX-License-Identifier: MIT
 *
 * ringctl simulate --serve: what many streams would see on rings of any size. One thread. */
#ifndef DAEMON_CTL_SIMULATE_SERVE_H
#define DAEMON_CTL_SIMULATE_SERVE_H

#include "daemon/ctl/ctl.h"

/* Simulates and prints; an exit status. Its options are rows of ctl_simulate_options. */
int simulate_serve(const struct ctl *ctl);

#endif
