/* SPDX-License-Identifier: MIT
 *
 * The keys of a spec that somebody submits: one with a slip of the pen would set nothing, and
 * nobody would hear of it. Pure: any thread. */
#ifndef DAEMON_SPEC_KEYS_H
#define DAEMON_SPEC_KEYS_H

#include <jansson.h>

#include "daemon/common/job_type.h"
#include "engine/err.h"

/* A key that jobs of this type do not have, or that only the daemon sets: −EINVAL and a sentence
 * with the key and the nearest one. */
int spec_keys_check(enum job_type type, const json_t *spec, struct err *err);

#endif
