/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/peer/routes.h"

#include <errno.h>
#include <string.h>

#include "daemon/ringd/log.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/peers_socket.h"
#include "daemon/ringd/peer/relay.h"

size_t paths_all(struct node *node, uint64_t ret[PATHS_MAX])
{
    size_t all = 0;
    for (size_t i = 1; i < members_count(node->members); i++) {
        struct path path[PEERS_MAX_PATHS];
        size_t n = peers_paths(node->peers, members_at(node->members, i)->id, path);
        for (size_t k = 0; k < n; k++)
            ret[all++] = path[k].id;
    }
    return all;
}

uint64_t paths_at(struct node *node, const char *address)
{
    char host[64];
    uint16_t port;
    if (peers_split_address(address, host, sizeof host, &port))
        return 0;
    for (size_t i = 1; i < members_count(node->members); i++) {
        struct path path[PEERS_MAX_PATHS];
        size_t n = peers_paths(node->peers, members_at(node->members, i)->id, path);
        for (size_t k = 0; k < n; k++)
            if (!strcmp(path[k].host, host))
                return path[k].id;
    }
    return 0;
}

/* --- what a relay asks its node --- */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    struct node *node = owner;
    return peers_send(node->peers, to, message);
}

static int next_hop(void *owner, const uint8_t to[16], struct relay_hop *ret)
{
    struct node *node = owner;
    struct path path[PEERS_MAX_PATHS];
    const struct member *hop = members_find(node->members, to);
    size_t n = peers_paths(node->peers, to, path);
    if (!n) {
        hop = members_next_hop(node->members, to);
        n = hop ? peers_paths(node->peers, hop->id, path) : 0;
    }
    if (!hop || !n)
        return -EHOSTUNREACH;
    *ret = (struct relay_hop){.path = path[0].id, .port = path[0].port, .max_segment = path[0].max_segment};
    memcpy(ret->id, hop->id, sizeof ret->id);
    memcpy(ret->host, path[0].host, sizeof ret->host);
    return 0;
}

static bool has_path(void *owner, uint64_t path)
{
    uint64_t all[PATHS_MAX];
    size_t n = paths_all(owner, all);
    for (size_t i = 0; i < n; i++)
        if (all[i] == path)
            return true;
    return false;
}

static uint64_t path_at(void *owner, const char *address)
{
    return paths_at(owner, address);
}

static bool works(void *owner, const uint8_t id[16], const uint8_t head[16], uint64_t job)
{
    struct node *node = owner;
    const struct member *m = members_find(node->members, id);
    return m && m->job == job && !memcmp(m->head, head, 16) && members_reachable(node->members, id);
}

static const char *name(void *owner, const uint8_t *id)
{
    struct node *node = owner;
    const struct member *m = id ? members_find(node->members, id) : NULL;
    return !id ? node->name : m ? m->name : "a node that is gone";
}

static void relay_log(void *owner, const char *text)
{
    (void)owner;
    log_info("%s", text);
}

struct relay *paths_relay_new(struct node *node)
{
    return relay_new(&(struct relay_setup){.base = node->base,
                                           .owner = node,
                                           .send = send_message,
                                           .next = next_hop,
                                           .has_path = has_path,
                                           .path_at = path_at,
                                           .works = works,
                                           .name = name,
                                           .log = relay_log});
}
