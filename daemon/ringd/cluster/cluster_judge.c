/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/cluster.h"

int cluster_judge(const struct cluster *c, const uint8_t peer_key[static AUTH_KEY],
                  const struct link_hello *peer, char *why, size_t size)
{
    const struct roster *roster = cluster_roster(c);
    struct cert cert;

    if (cluster_state(c) != CLUSTER_MEMBER) {
        snprintf(why, size, "this node is in no cluster: join it with a token from `ringctl invite`");
        return -EPERM;
    }
    const char *cluster = roster->name;
    if (cert_open(peer->cert, sizeof peer->cert, cluster_key(c), &cert) ||
        sodium_memcmp(cert.pub, peer_key, sizeof cert.pub)) {
        snprintf(
            why, size,
            "%s has no certificate of cluster %s for its key: join it with a token from `ringctl invite`",
            peer->name, cluster);
        return -EPERM;
    }
    if (strcmp(cert.name, peer->name)) {
        snprintf(why, size, "a node calls itself %s and is certified as %s: restart ringd on it", peer->name,
                 cert.name);
        return -EPERM;
    }
    switch (roster_judge(roster, &cert)) {
    case ROSTER_IS_MEMBER:
    case ROSTER_IS_NEW: return 0;
    case ROSTER_OLD_CERT:
        snprintf(why, size, "%s shows an outdated certificate of cluster %s: join it again with a new token",
                 peer->name, cluster);
        break;
    case ROSTER_WAS_REMOVED:
    case ROSTER_UNKNOWN:
        snprintf(why, size,
                 "%s was removed from cluster %s; to let it back in, make a token with `ringctl invite` and "
                 "give it to "
                 "`ringctl join` on %s",
                 peer->name, cluster, peer->name);
    }
    return -EPERM;
}
