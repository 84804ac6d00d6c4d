/* SPDX-License-Identifier: MIT
 *
 * The node's own key pair and the cluster's secret, as files only their owner can read. Called once, at
 * start. */
#ifndef DAEMON_IDENTITY_H
#define DAEMON_IDENTITY_H

#include "engine/err.h"
#include "net/auth.h"

/* STATE/identity: made on first start, 0600. */
int identity_load(struct auth_identity *ret, const char *state_dir, struct err *err);
/* The pre-shared key of all connections, derived from the secret file's bytes (at least 16). A missing file
 * is made: a node alone needs no ceremony, and others are told to copy it. */
int secret_load(uint8_t psk[static AUTH_PSK], const char *path, struct err *err);

/* 32 lower-case hex digits; buf of 33. */
void id_hex(char buf[33], const uint8_t id[static 16]);
int id_parse(uint8_t id[static 16], const char *hex); /* −EINVAL */

#endif
