/* SPDX-License-Identifier: MIT
 *
 * All commands of ringctl and the options that each of them takes. Only main.c includes this: the
 * commands lie below the table. */
#ifndef DAEMON_CTL_COMMANDS_H
#define DAEMON_CTL_COMMANDS_H

#include "daemon/ctl/ctl.h"

extern const struct ctl_tables ctl_tables;

#endif
