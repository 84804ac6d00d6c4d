/* SPDX-License-Identifier: MIT */
#include "daemon/stage/share/stage_travel.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/common/model/model_name.h"
#include "daemon/stage/share/stage_share.h"
#include "daemon/stage/stage_event.h"

static json_t *ids_of(const json_t *nodes)
{
    json_t *ids = json_array(), *node;
    size_t i;
    json_array_foreach (nodes, i, node)
        json_array_append(ids, json_object_get(node, "id"));
    return ids;
}

int stage_travel_question(json_t **ret, const struct job_plan *plan, const struct config *config,
                          const json_t *nodes, struct err *err)
{
    struct st *heads;
    json_t *shares = json_array();
    int r = st_open_heads(&heads, plan->model, err);
    if (r)
        heads = NULL;
    for (uint32_t rank = 0; rank < plan->ranks && !r; rank++) {
        struct share_want want;
        r = share_want_init(&want, plan, config, rank, err);
        if (r)
            break;
        json_array_append_new(shares, share_touched(heads, share_wants, &want));
        share_want_done(&want);
    }
    if (!r)
        *ret = json_pack("{s:s s:o s:O s:o}", "model", plan->model, "nodes", ids_of(nodes), "shares", shares,
                         "sizes", share_sizes(heads));
    json_decref(shares);
    st_close(heads);
    return r;
}

int stage_travel_ask(json_t **ret, const struct head *h, struct err *err)
{
    json_t *question, *msg = NULL;
    int fd = -1;
    *ret = NULL;
    if (h->plan.tune.random_init || !model_name_is_exact(h->plan.model))
        return 0;
    int r = stage_travel_question(&question, &h->plan, &h->config, h->planning.nodes, err);
    if (r)
        return r;
    stage_event(h->events, "travel", question);
    r = ipc_receive(h->events->sock, &msg, NULL, &fd);
    if (fd >= 0)
        close(fd);
    if (!r)
        *ret = json_incref(json_object_get(msg, "travel"));
    if (r >= 0)
        json_decref(msg);
    return r < 0 ? err_set(err, r, "the daemon does not say what its nodes have of %s", h->plan.model) : 0;
}
