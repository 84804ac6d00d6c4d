/* SPDX-License-Identifier: MIT
 *
 * peers.h as far as it shows the ways to other nodes: one for each connection, and the cables that
 * lead to a node over others. */
#include "tests/sim/cluster/sim.h"

#include <stdio.h>
#include <string.h>

#include "daemon/ringd/peer/peers.h"

static const struct sim_session *session_of(const struct sim_node *n, uint64_t path, int *ret_end)
{
    for (size_t c = 0; path && c < sim->cables; c++) {
        const struct sim_session *s = sim_session_at(n, c, ret_end);
        if (s && s->end[*ret_end].number == path)
            return s;
    }
    return NULL;
}

size_t peers_paths(struct peers *p, const uint8_t id[16], struct path ret[PEERS_MAX_PATHS])
{
    size_t n = 0;
    for (size_t c = 0; n < PEERS_MAX_PATHS && c < sim->cables; c++) {
        int e;
        const struct sim_session *s = sim_session_at((struct sim_node *)p, c, &e);
        if (!s || memcmp(sim->roster.at[s->end[!e].node->number].id, id, 16))
            continue;
        ret[n] = (struct path){.id = s->end[e].number,
                               .port = 1,
                               .cable = c + 1,
                               .ours = s->end[e].dials_lanes,
                               .peer_unanswered = s->end[e].peer_unanswered};
        snprintf(ret[n++].host, sizeof ret->host, "c%zu", c);
    }
    return n;
}

bool peers_path_name(struct peers *p, uint64_t path, struct path_name *ret)
{
    int e;
    const struct sim_session *s = session_of((struct sim_node *)p, path, &e);
    if (!s)
        return false;
    *ret = (struct path_name){.port = "eth0"};
    snprintf(ret->peer, sizeof ret->peer, "%s", sim->roster.at[s->end[!e].node->number].name);
    snprintf(ret->cable, sizeof ret->cable, "%016zx", (size_t)(s->cable - sim->cable) + 1);
    return true;
}

void peers_turn_path(struct peers *p, uint64_t path)
{
    int e;
    struct sim_session *s = (struct sim_session *)session_of((struct sim_node *)p, path, &e);
    char cable[17];
    if (!s)
        return;
    s->end[e].dials_lanes = false;
    snprintf(cable, sizeof cable, "%016zx", (size_t)(s->cable - sim->cable) + 1);
    peers_send(p, sim->roster.at[s->end[!e].node->number].id,
               json_pack("{s:s s:s}", "kind", "lane-turn", "cable", cable));
}

void peers_path_turned(struct peers *p, const uint8_t from[16], uint64_t cable)
{
    int e;
    if (!cable || cable > sim->cables)
        return;
    struct sim_session *s = sim_session_at((struct sim_node *)p, cable - 1, &e);
    if (s && s->end[!e].node == sim_node_of(from))
        s->end[e].dials_lanes = s->end[e].peer_unanswered = true;
}

uint64_t peers_path_of(struct peers *p, struct link *link, const uint8_t id[16])
{
    size_t cable;
    int e;
    if (sscanf(link_address(link), "c%zu", &cable) != 1)
        return 0;
    const struct sim_session *s = sim_session_at((struct sim_node *)p, cable, &e);
    return s && s->end[!e].node == sim_node_of(id) ? s->end[e].number : 0;
}

void peers_setup(struct peers *p, struct link_setup *ret)
{
    *ret = (struct link_setup){.base = (struct event_base *)p};
}

json_t *peers_clocks(struct peers *p, const uint8_t (*nodes)[16], size_t n)
{
    (void)p, (void)nodes, (void)n;
    return json_array();
}

json_t *peers_ways(struct peers *p)
{
    (void)p;
    return json_array();
}

/* The cables to that node, over others if need be, as connections stand now. */
bool sim_route(const struct sim_node *from, const uint8_t to[16], size_t ret[SIM_CABLES], size_t *ret_n)
{
    const struct sim_node *end = sim_node_of(to);
    size_t by[SIM_NODES], queue[SIM_NODES], first = 0, last = 0;
    bool seen[SIM_NODES] = {false};
    queue[last++] = from->number;
    seen[from->number] = true;
    while (first < last && !seen[end->number]) {
        const struct sim_node *at = &sim->at[queue[first++]];
        for (size_t c = 0; c < sim->cables; c++) {
            int e;
            const struct sim_session *s = sim_session_at(at, c, &e);
            const size_t next = s ? s->end[!e].node->number : 0;
            if (!s || seen[next])
                continue;
            seen[next] = true;
            by[next] = c;
            queue[last++] = next;
        }
    }
    size_t n = 0, at = end->number;
    if (!seen[at])
        return false;
    for (; at != from->number; at = sim->cable[by[at]].at[sim->cable[by[at]].at[0] == at])
        ret[n++] = by[at];
    *ret_n = n;
    return n > 0;
}
