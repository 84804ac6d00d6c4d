/* SPDX-License-Identifier: MIT
 *
 * Subnets, MTU and ports to be up, decided from what is seen. Pure. */
#include "daemon/ringd/peer/cables_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

static const struct port *find_port(const struct cables_facts *f, unsigned ifindex)
{
    for (size_t i = 0; i < f->nports; i++)
        if (f->ports[i].ifindex == ifindex)
            return &f->ports[i];
    return NULL;
}

const struct cable_plan *cables_plan_find(const struct cables_plan *plan, uint64_t id)
{
    for (size_t i = 0; i < plan->n; i++)
        if (plan->at[i].id == id)
            return &plan->at[i];
    return NULL;
}

void cables_plan_done(struct cables_plan *plan)
{
    free(plan->at);
    *plan = (struct cables_plan){0};
}

/* --- subnets ---------------------------------------------------------------------------------- */

/* "10.0.0.0/8 on eth0" */
static void describe(char ret[static CABLES_WHY], const struct cables_facts *f, const struct ports_prefix *p)
{
    struct prefix prefix = {.family = (uint8_t)p->family, .plen = p->plen};
    const struct port *port = find_port(f, p->ifindex);
    char text[PREFIX_TEXT];

    memcpy(prefix.at, p->at, sizeof prefix.at);
    prefix_format(&prefix, text);
    if (port)
        snprintf(ret, CABLES_WHY, "the %s %s on %s", p->is_route ? "route to" : "address", text, port->name);
    else if (p->ifindex)
        snprintf(ret, CABLES_WHY, "the %s %s on interface %u", p->is_route ? "route to" : "address", text,
                 p->ifindex);
    else
        snprintf(ret, CABLES_WHY, "the route to %s", text);
}

static void choose_six(struct cable_plan *c, const struct cables_facts *f, const struct subnet_end *mine,
                       const struct subnet_end *theirs)
{
    struct subnet_taken taken = {f->taken, f->ntaken, c->ifindex};
    const struct ports_prefix *other;
    char what[CABLES_WHY];

    if (subnet_cable6(&c->six, f->cluster, mine, theirs) < 0)
        return;
    other = subnet_obstacle(&taken, &c->six.mine);
    /* what only covers it gives way to the longer prefix, and loses two addresses of 2^63 */
    c->is_six_free = !other || other->plen < c->six.mine.plen;
    if (!other)
        return;
    describe(what, f, other);
    snprintf(c->why6, sizeof c->why6,
             c->is_six_free ? "%.150s covers it, and goes without these two addresses"
                            : "%.150s is in its way: remove that, or do without",
             what);
}

/* What the machine has, and what the cables before this one have by the plan. Freed by the
 * caller. */
static struct ports_prefix *list_taken(const struct cables_plan *now, const struct cables_facts *f,
                                       size_t *ret_n)
{
    struct ports_prefix *list = xcalloc(f->ntaken + now->n + 1, sizeof *list);
    size_t n = f->ntaken;

    if (n > 0)
        memcpy(list, f->taken, n * sizeof *list);
    for (size_t i = 0; i < now->n; i++) {
        const struct prefix *four = &now->at[i].four.mine;
        struct ports_prefix p = {.family = four->family, .plen = four->plen, .is_route = true};

        p.ifindex = now->at[i].ifindex;
        memcpy(p.at, four->at, sizeof p.at);
        if (four->family)
            list[n++] = p;
    }
    *ret_n = n;
    return list;
}

/* Whether both ends may have one at all. */
static bool allow_four(struct cable_plan *c, const struct cables_facts *f, const struct cable *cable)
{
    char here[PREFIX_TEXT], there[PREFIX_TEXT];

    if (f->pool.family == 0)
        return false;
    prefix_format(&f->pool, here);
    if (cable->pool.family == 0) {
        snprintf(c->why4, sizeof c->why4, "%s has no ipv4-pool: give it the same as here, %s", cable->name,
                 here);
        return false;
    }
    prefix_format(&cable->pool, there);
    if (!prefix_equal(&cable->pool, &f->pool)) {
        snprintf(c->why4, sizeof c->why4, "ipv4-pool is %s here and %s on %s: give both the same", here,
                 there, cable->name);
        return false;
    }
    if (cable->attempt == SUBNET_NO_ROOM)
        snprintf(c->why4, sizeof c->why4,
                 "%s has no /31 of ipv4-pool = %s free: give both a larger pool or another one", cable->name,
                 here);
    return cable->attempt != SUBNET_NO_ROOM;
}

static void choose_four(struct cable_plan *c, const struct cables_facts *f, const struct cable *cable,
                        const struct subnet_end *mine, const struct subnet_end *theirs,
                        const struct subnet_taken *taken)
{
    uint8_t at_least = cable->attempt > c->attempt ? cable->attempt : c->attempt;

    c->told = c->attempt;
    if (!allow_four(c, f, cable))
        return;
    if (subnet_choose4(&c->four, &c->attempt, &f->pool, mine, theirs, at_least, taken, c->why4,
                       sizeof c->why4) == 0)
        c->told = c->attempt;
    else
        c->told = SUBNET_NO_ROOM;
}

/* --- the whole -------------------------------------------------------------------------------- */

static uint32_t choose_mtu(const struct port *port, const struct cable *cable)
{
    uint32_t mtu;

    if (port->kind != PORT_TB || cable->kind != PORT_TB || port->max_mtu == 0 || cable->max_mtu == 0)
        return 0;
    mtu = port->max_mtu < cable->max_mtu ? port->max_mtu : cable->max_mtu;
    return mtu < RLINK_MIN_MTU ? 0 : mtu < RLINK_MAX_MTU ? mtu : RLINK_MAX_MTU;
}

static int compare_seen(const void *a, const void *b)
{
    const struct neighbour_view *const *x = a, *const *y = b;

    return ((*x)->cable.id > (*y)->cable.id) - ((*x)->cable.id < (*y)->cable.id);
}

/* Whether something on the port says that the cable which was there is no more. */
static bool is_replaced(const struct cables_plan *now, const struct cables_facts *f,
                        const struct cable_plan *was)
{
    for (size_t i = 0; i < f->nseen; i++)
        if (f->seen[i].cable.ifindex == was->ifindex && f->seen[i].cable.shared)
            return true;
    for (size_t i = 0; i < now->n; i++)
        if (now->at[i].ifindex == was->ifindex || prefix_overlaps(&now->at[i].four.mine, &was->four.mine))
            return true;
    return false;
}

static bool is_member(const struct cables_facts *f, const uint8_t *node)
{
    const struct roster_entry *e = f->roster ? roster_find(f->roster, node) : NULL;

    return f->is_member && (!f->roster || (e && e->status == ROSTER_ACTIVE));
}

/* A cable that is out: what it has is neither renewed nor taken away while its lease may run, or
 * every restart of the other end would take the addresses from whoever uses them. */
static void keep_out(struct cables_plan *now, const struct cables_plan *before, const struct cables_facts *f,
                     uint64_t *again_us)
{
    for (size_t i = 0; i < before->n; i++) {
        struct cable_plan was = before->at[i];
        uint64_t left;

        if (cables_plan_find(now, was.id) || !find_port(f, was.ifindex) || !is_member(f, was.peer) ||
            is_replaced(now, f, &was))
            continue;
        if (!was.is_out)
            was.out = f->now;
        was.is_out = true;
        if (clock_since_us(f->now, was.out) >= CABLES_LEASE_US)
            continue;
        left = CABLES_LEASE_US - clock_since_us(f->now, was.out);
        if (*again_us == 0 || left < *again_us)
            *again_us = left;
        now->at[now->n++] = was;
    }
}

/* Only two ports on one cable: what is shared has no subnet. */
static size_t list_cables(const struct cables_plan *plan, const struct cables_facts *f,
                          const struct neighbour_view **ret, uint64_t *ret_again_us)
{
    size_t n = 0;

    *ret_again_us = 0;
    for (size_t i = 0; i < f->nseen; i++) {
        const struct neighbour_view *v = &f->seen[i];
        uint64_t left = v->known_us < CABLES_SETTLE_US ? CABLES_SETTLE_US - v->known_us : 0;

        if (v->state != NEIGHBOUR_TWO_WAY || v->cable.shared)
            continue;
        if (left == 0 || cables_plan_find(plan, v->cable.id))
            ret[n++] = v;
        else if (*ret_again_us == 0 || left < *ret_again_us)
            *ret_again_us = left;
    }
    if (n > 1)
        qsort(ret, n, sizeof *ret, compare_seen);
    return n;
}

uint64_t cables_plan_update(struct cables_plan *plan, const struct cables_facts *f)
{
    const struct neighbour_view **cables = xcalloc(f->nseen + 1, sizeof *cables);
    struct cables_plan now = {xcalloc(f->nseen + plan->n + 1, sizeof *now.at), 0};
    uint64_t again_us;
    size_t n = list_cables(plan, f, cables, &again_us);

    for (size_t i = 0; i < n; i++) {
        const struct cable *cable = &cables[i]->cable;
        const struct cable_plan *was = cables_plan_find(plan, cable->id);
        const struct port *port = find_port(f, cable->ifindex);
        struct cable_plan *c = &now.at[i];
        struct subnet_end mine = {.port_id = cable->port_id}, theirs = {.port_id = cable->peer_port_id};
        struct subnet_taken taken = {.ifindex = cable->ifindex};

        *c = (struct cable_plan){
            .id = cable->id, .ifindex = cable->ifindex, .attempt = was ? was->attempt : 0};
        memcpy(mine.node, f->node, 16);
        memcpy(theirs.node, cable->node_id, 16);
        memcpy(c->peer, cable->node_id, 16);
        c->mtu = port ? choose_mtu(port, cable) : 0;
        if (f->is_member) {
            struct ports_prefix *list = list_taken(&now, f, &taken.n);

            taken.at = list;
            choose_six(c, f, &mine, &theirs);
            choose_four(c, f, cable, &mine, &theirs, &taken);
            free(list);
        }
        now.n++;
    }
    free(cables);
    keep_out(&now, plan, f, &again_us);
    cables_plan_done(plan);
    *plan = now;
    return again_us;
}

static struct linkctl_want want_address(const struct cable_plan *c, const struct prefix *addr)
{
    return (struct linkctl_want){
        .verb = RLINK_ADDR_ADD, .ifindex = c->ifindex, .addr = *addr, .lapses = c->is_out};
}

size_t cables_plan_want(const struct cables_plan *plan, const struct cables_facts *f,
                        struct linkctl_want *out)
{
    size_t n = 0;

    for (size_t i = 0; i < f->nports; i++) {
        const struct port *p = &f->ports[i];

        if ((p->kind == PORT_TB || p->named) && p->kind != PORT_OTHER && !p->enslaved)
            out[n++] = (struct linkctl_want){.verb = RLINK_SET_UP, .ifindex = p->ifindex};
        if (p->up && p->carrier && !p->has_link_local && !p->enslaved && !p->has_default_route &&
            p->kind != PORT_WIFI)
            out[n++] = (struct linkctl_want){.verb = RLINK_LINK_LOCAL, .ifindex = p->ifindex};
    }
    for (size_t i = 0; i < plan->n; i++) {
        const struct cable_plan *c = &plan->at[i];

        if (c->mtu && !c->is_out)
            out[n++] = (struct linkctl_want){.verb = RLINK_SET_MTU, .ifindex = c->ifindex, .mtu = c->mtu};
        if (c->is_six_free)
            out[n++] = want_address(c, &c->six.mine);
        if (c->four.mine.family)
            out[n++] = want_address(c, &c->four.mine);
    }
    return n;
}

void cables_mtu_trouble(char ret[static CABLES_WHY], const struct port *port, const struct cable *cable)
{
    uint32_t smaller = port->mtu < cable->mtu ? port->mtu : cable->mtu;

    *ret = '\0';
    if (port->mtu == 0 || cable->mtu == 0 || port->mtu == cable->mtu)
        return;
    snprintf(ret, CABLES_WHY,
             "the MTU is %u here and %u on %s, so large packets get lost: ip link set dev %s mtu %u on %s",
             port->mtu, cable->mtu, cable->name,
             port->mtu > cable->mtu || !*cable->port_name ? port->name : cable->port_name, smaller,
             port->mtu > cable->mtu ? "this node" : cable->name);
}
