/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/peer/routes.h"

#include <errno.h>
#include <string.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/peer/peers_socket.h"
#include "daemon/ringd/peer/relay.h"

size_t paths_all(const struct members *members, struct peers *peers, uint64_t ret[PATHS_MAX])
{
    size_t all = 0;
    for (size_t i = 1; i < members_count(members); i++) {
        struct path path[PEERS_MAX_PATHS];
        size_t n = peers_paths(peers, members_at(members, i)->id, path);
        for (size_t k = 0; k < n; k++)
            ret[all++] = path[k].id;
    }
    return all;
}

uint64_t paths_at(const struct members *members, struct peers *peers, const char *address)
{
    char host[64];
    uint16_t port;
    if (peers_split_address(address, host, sizeof host, &port))
        return 0;
    for (size_t i = 1; i < members_count(members); i++) {
        struct path path[PEERS_MAX_PATHS];
        size_t n = peers_paths(peers, members_at(members, i)->id, path);
        for (size_t k = 0; k < n; k++)
            if (!strcmp(path[k].host, host))
                return path[k].id;
    }
    return 0;
}

bool paths_has(const struct members *members, struct peers *peers, uint64_t path)
{
    uint64_t all[PATHS_MAX];
    size_t n = paths_all(members, peers, all);
    for (size_t i = 0; i < n; i++)
        if (all[i] == path)
            return true;
    return false;
}

int paths_next_hop(const struct members *members, struct peers *peers, const uint8_t to[16],
                   struct relay_hop *ret)
{
    struct path path[PEERS_MAX_PATHS];
    const struct member *hop = members_find(members, to);
    size_t n = peers_paths(peers, to, path);
    if (!n) {
        hop = members_next_hop(members, to);
        n = hop ? peers_paths(peers, hop->id, path) : 0;
    }
    if (!hop || !n)
        return -EHOSTUNREACH;
    *ret = (struct relay_hop){.path = path[0].id, .port = path[0].port, .max_segment = path[0].max_segment};
    memcpy(ret->id, hop->id, sizeof ret->id);
    memcpy(ret->host, path[0].host, sizeof ret->host);
    return 0;
}
