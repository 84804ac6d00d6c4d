/* SPDX-License-Identifier: MIT
 *
 * ringd's own option table. */
#ifndef DAEMON_CONF_H
#define DAEMON_CONF_H

#include "daemon/common/optable.h"

enum { CONF_RING_BYTES = 1024 }; /* of --ring, with its NUL: each node's record carries it */

extern const struct opt_def conf_table[];

/* Defaults, then the INI file (--config, else PREFIX/etc/ringd/ringd.conf, else
 * /etc/ringd/ringd.conf, if it is there), then flags. */
int conf_load(struct opts **ret, int argc, char **argv, bool *ret_help, struct err *err);

/* Bytes of an option such as 8G or 900M, 0 if it is not set, UINT64_MAX with a sentence if it is no
 * size (conf_load has checked --memory-limit). */
uint64_t conf_size(const struct opts *o, const char *name, struct err *err);

/* The ringd-stage of this installation, whether it is there or not; the caller frees. */
char *conf_default_stage(void);

#endif
