/* SPDX-License-Identifier: MIT
 *
 * Telling the program that manages this machine's network to leave a cable's addresses alone: which
 * program that is, and the file that says so to it. Reads and writes files only, below a root that
 * tests choose; called by ringctl link, which has to be root for writing. One thread. */
#ifndef DAEMON_NETMANAGER_H
#define DAEMON_NETMANAGER_H

#include <stdbool.h>

#include "engine/err.h"

struct adopt_file {
    const char *
        manager; /* "systemd-networkd", "NetworkManager"; NULL: nobody manages the port, nothing is to be done */
    const char *apply; /* the command that makes the manager read it */
    char path[128];    /* without the root */
    char text[640];
};

/* The file for a port, which is only looked at. −EINVAL, −ENODEV, −EBUSY (a port that others depend
 * on), with a sentence. `root` is "" but in tests. */
int adopt_plan(struct adopt_file *ret, const char *root, const char *port, struct err *err);
/* Whole or not at all, and never over a file that adopt did not write. −errno with a sentence. */
int adopt_write(const char *root, const struct adopt_file *file, struct err *err);
/* Removes what adopt_write wrote for that port, whether or not it is still there. −ENOENT, −EEXIST
 * (not ours), ... */
int adopt_release(struct adopt_file *ret, const char *root, const char *port, struct err *err);

#endif
