/* SPDX-License-Identifier: MIT
 *
 * PURE: names for the addresses of the cluster's cables, as lines of /etc/hosts would have them:
 * NODE-PORT.ring. Called by ringctl links --hosts. */
#ifndef DAEMON_HOSTS_H
#define DAEMON_HOSTS_H

#include <jansson.h>
#include <stddef.h>

enum { HOSTS_LABEL = 64 };

/* One label of a DNS name: letters, digits and single dashes, lower case; "x" if nothing of it is
 * left. */
void hosts_label(char ret[static HOSTS_LABEL], const char *node, const char *port);

/* A list of {"address", "name", "why"}, both ends of every cable, of what GET /v1/ports of the node
 * called `self` says: of its own cables and of what the other nodes tell of theirs; `why` is not
 * empty for the subnets that are not set. Two ports never have one name. */
json_t *hosts_list(const json_t *ports, const char *self);

#endif
