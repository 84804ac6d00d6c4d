/* SPDX-License-Identifier: MIT
 *
 * Secret keys in the test's own process: identities that hold their pair themselves, and a keeper
 * that is asked without a socket. */
#ifndef TESTS_LIB_OWN_KEYS_H
#define TESTS_LIB_OWN_KEYS_H

#include <limits.h>

#include "daemon/keys/keeper.h"
#include "daemon/ringd/cluster/keys.h"

/* Pairs are kept until the program ends, OWN_PAIRS of them. 0, or −EIO. */
enum { OWN_PAIRS = 4096 };
int own_identity(struct auth_identity *ret);
int own_identity_from_seed(struct auth_identity *ret, const uint8_t seed[static AUTH_SEED]);
const struct auth_pair *own_pair(const struct auth_identity *id);

/* The path of a program of this build: that of a test begins with it. */
void own_program(char ret[static PATH_MAX], const char *name);

/* Keys behind a keeper of the caller's, which is made anew from the seed: as after a restart. NULL:
 * it cannot be. keys_close. */
struct keys *own_keys(struct keeper *keeper, const uint8_t seed[static AUTH_SEED]);

#endif
