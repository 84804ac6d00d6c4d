/* SPDX-License-Identifier: MIT
 *
 * What other nodes send goes to the one whom it concerns. */
#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/hub/census.h"
#include "daemon/ringd/hub/errands.h"
#include "daemon/ringd/hub/push_takes.h"
#include "daemon/ringd/hub/pushes.h"
#include "daemon/ringd/hub/supply_impl.h"

void supply_take_want(struct supply *s, const uint8_t from[16], const json_t *body)
{
    errands_take_want(s->errands, from, body);
}

void supply_take_told(struct supply *s, const uint8_t from[16], const json_t *body)
{
    errands_take_told(s->errands, from, body);
}

void supply_take_push(struct supply *s, const uint8_t from[16], const json_t *body)
{
    push_takes_take(s->push_takes, from, body);
}

void supply_take_pushed(struct supply *s, const uint8_t from[16], const json_t *body)
{
    pushes_take_pushed(s->pushes, from, body);
}

void supply_take_give(struct supply *s, const uint8_t from[16], const json_t *body)
{
    carriers_take_give(s->carriers, from, body);
}

void supply_take_denied(struct supply *s, const uint8_t from[16], const json_t *body)
{
    carriers_take_denied(s->carriers, from, body);
}

void supply_take_census(struct supply *s, const uint8_t from[16], const json_t *body)
{
    census_take_ask(s->census, from, body);
}

void supply_take_counted(struct supply *s, const uint8_t from[16], const json_t *body)
{
    census_take_counted(s->census, from, body);
}

int supply_lane_hello(struct supply *s, const struct link_hello *peer, char *why, size_t size)
{
    return carriers_hello(s->carriers, peer, why, size);
}

void supply_lane_up(struct supply *s, struct link *link)
{
    carriers_up(s->carriers, link);
}

void supply_paths_changed(struct supply *s)
{
    carriers_changed(s->carriers);
    census_changed(s->census);
}
