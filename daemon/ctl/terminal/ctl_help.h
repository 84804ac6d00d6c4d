/* SPDX-License-Identifier: MIT
 *
 * How ringctl is used, as text made from its tables: all commands, one of them, and the short
 * overview. One thread. */
#ifndef DAEMON_CTL_HELP_H
#define DAEMON_CTL_HELP_H

#include "daemon/ctl/ctl.h"

/* The command of that name; NULL if there is none. */
const struct ctl_command *ctl_find_command(const struct ctl_tables *tables, const char *name);
/* Says that there is no such command, with the one whose name is near; CTL_USAGE. */
int ctl_unknown_command(const struct ctl_tables *tables, const char *wrong);
/* The command's options, then the global ones; the caller frees. */
struct opt_def *ctl_all_options(const struct ctl_tables *tables, const struct ctl_command *command);

void ctl_help_all(const struct ctl_tables *tables);
/* defs: of ctl_all_options. */
void ctl_help_command(const struct ctl_command *command, const struct opt_def *defs);
/* What ringctl alone prints: the names of the commands by purpose, and where to begin. */
void ctl_help_overview(const struct ctl_tables *tables);

#endif
