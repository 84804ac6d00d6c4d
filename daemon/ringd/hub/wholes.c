/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/wholes.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/hub/carry_order.h"
#include "daemon/ringd/hub/errands.h"
#include "daemon/ringd/hub/nearest.h"
#include "daemon/ringd/hub/pulls.h"
#include "engine/err.h"

static int take(const struct wholes_setup *w, const char *model, struct pull **ret, struct err *err)
{
    bool parts;
    json_t *holders = errands_holders(w->errands, model, &parts);
    struct carry_order order = {.model = model, .content = w->content(w->owner, model), .whole = true};
    order.nfrom = nearest(w->members, holders, parts, order.from, CARRY_FROM);
    order.hub = parts || !order.nfrom;
    json_decref(holders);
    return pulls_take(w->pulls, &order, ret, err);
}

bool wholes_are_here(const struct wholes_setup *w, const char *model, char *why, size_t size)
{
    struct members_ring head = {.n = 1, .at = {members_self(w->members)}};
    struct err err;
    int r = 0;
    if (w->is_whole(w->owner, model))
        return true;
    if (!errands_are_done(w->errands, model, &head, why, size))
        return false;
    struct pull *p = pulls_find(w->pulls, model);
    if (!p || pull_may_retry(p, true))
        r = take(w, model, &p, &err);
    if (r)
        snprintf(why, size, "%s", err.text);
    else if (pull_state(p) == PULL_FAILED)
        snprintf(why, size, "%s does not come: %s", model, pull_why(p));
    else
        snprintf(why, size, "%.*s comes to this node", (int)strcspn(model, "@"), model);
    return false;
}
