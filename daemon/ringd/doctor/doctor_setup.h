/* SPDX-License-Identifier: MIT
 *
 * What the doctor needs to ask other nodes, and to answer them. */
#ifndef DAEMON_DOCTOR_SETUP_H
#define DAEMON_DOCTOR_SETUP_H

#include <stdint.h>

struct cables;
struct cluster;
struct event_base;
struct mailbox;
struct members;
struct opts;
struct peers;
struct spawner;
struct store;
struct workers;

struct doctor_setup {
    /* all borrowed */
    struct event_base *base;
    struct mailbox *mailbox;
    const char *state_dir;
    const struct opts *opts; /* as it is now: it may be read again */
    struct cluster *cluster;
    struct members *members;
    struct cables *cables;
    struct peers *peers;
    struct store *store;
    struct spawner *spawner;
    struct workers *workers;
    int64_t keys_pid; /* of ringd-keys; 0: not known */
};

#endif
