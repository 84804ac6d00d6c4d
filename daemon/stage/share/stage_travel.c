/* SPDX-License-Identifier: MIT */
#include "daemon/stage/share/stage_travel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/common/model/model_name.h"
#include "daemon/stage/serve/draft_model.h"
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

/* {"model", "shares", "sizes"} */
static int ask_of_model(json_t **ret, const struct st *heads, const struct job_plan *plan,
                        const struct config *config, struct err *err)
{
    json_t *shares = json_array();
    int r = 0;
    for (uint32_t rank = 0; rank < plan->ranks && !r; rank++) {
        struct share_want want;
        r = share_want_init(&want, plan, config, rank, err);
        if (r)
            break;
        json_array_append_new(shares, share_touched(heads, share_wants, &want));
        share_want_done(&want);
    }
    if (!r)
        *ret =
            json_pack("{s:s s:O s:o}", "model", plan->model, "shares", shares, "sizes", share_sizes(heads));
    json_decref(shares);
    return r;
}

/* All of it, on rank 0. */
static int ask_of_draft(json_t **ret, const char *draft, uint32_t ranks, struct err *err)
{
    struct st *heads;
    int r = st_open_heads(&heads, draft, err);
    if (r)
        return r;
    json_t *shares = json_pack("[o]", share_touched(heads, NULL, NULL));
    while (json_array_size(shares) < ranks)
        json_array_append_new(shares, json_array());
    *ret = json_pack("{s:s s:o s:o}", "model", draft, "shares", shares, "sizes", share_sizes(heads));
    st_close(heads);
    return 0;
}

bool stage_travel_concerns(const struct job_plan *plan)
{
    return !plan->tune.random_init && model_name_is_exact(plan->model);
}

int stage_travel_question(json_t **ret, const struct st *heads, const struct job_plan *plan,
                          const struct config *config, const char *draft, const json_t *nodes,
                          struct err *err)
{
    json_t *of_model = NULL, *of_draft = NULL;
    int r = heads ? ask_of_model(&of_model, heads, plan, config, err) : 0;
    if (!r && draft && model_name_is_exact(draft))
        r = ask_of_draft(&of_draft, draft, plan->ranks, err);
    if (r) {
        json_decref(of_model);
        return r;
    }
    *ret = of_model ? of_model : of_draft;
    if (of_model && of_draft)
        json_object_set_new(of_model, "draft", of_draft);
    if (*ret)
        json_object_set_new(*ret, "nodes", ids_of(nodes));
    return 0;
}

/* Takes the reference. ret: the answer, which the caller owns. */
static int ask(json_t **ret, const struct head *h, json_t *question, struct err *err)
{
    json_t *msg = NULL;
    int fd = -1;
    stage_event(h->events, "travel", question);
    const int r = ipc_receive(h->events->sock, &msg, NULL, &fd);
    if (fd >= 0)
        close(fd);
    if (r < 0)
        return err_set(err, r, "the daemon does not say what its nodes have of %s", h->plan.model);
    *ret = r ? NULL : msg;
    return 0;
}

/* So that the plan can say it; a plan for which nothing travels says that as well. */
static void note_spared(json_t **travel, size_t bytes)
{
    if (!bytes)
        return;
    if (!*travel)
        *travel = json_pack("{s:i s:i s:[]}", "bytes", 0, "hub", 0, "ranks");
    json_object_set_new(*travel, "spared", json_integer((json_int_t)bytes));
}

/* Of a large model that takes a second or two, so it is done once. */
static int open_heads(struct head *h, struct err *err)
{
    struct st **heads = &h->planning.heads;
    const bool concerns = stage_travel_concerns(&h->plan) && !h->planning.is_bare;
    const int r = *heads || !concerns ? 0 : st_open_heads(heads, h->plan.model, err);
    if (r)
        *heads = NULL;
    return r;
}

int stage_travel_ask(json_t **ret, struct head *h, struct err *err)
{
    json_t *question = NULL, *msg = NULL;
    *ret = NULL;
    int r = open_heads(h, err);
    if (!r)
        r = stage_travel_question(&question, h->planning.heads, &h->plan, &h->config,
                                  h->draft ? draft_model_dir(h->draft) : NULL, h->planning.nodes, err);
    st_close(h->planning.heads);
    h->planning.heads = NULL;
    if (r || !question)
        return r;
    r = ask(&msg, h, question, err);
    if (r)
        return r;
    *ret = json_incref(json_object_get(msg, "travel"));
    json_decref(msg);
    note_spared(ret, h->planning.travel_spared);
    return 0;
}

/* NULL: nobody lacks anything, or that is not known. The caller frees. */
static size_t *read_lacks(const json_t *lacks, size_t ranks, size_t units)
{
    size_t *all = calloc(ranks * units, sizeof *all), sum = 0;
    for (size_t i = 0; all && i < ranks * units; i++) {
        const json_int_t n = json_integer_value(json_array_get(json_array_get(lacks, i / units), i % units));
        all[i] = n > 0 ? (size_t)n : 0;
        sum += all[i] > 0;
    }
    if (sum)
        return all;
    free(all);
    return NULL;
}

int stage_travel_look(struct head *h, struct err *err)
{
    const struct job_plan *p = &h->plan;
    const size_t units = h->config.layers + 2;
    json_t *msg = NULL;
    free(h->planning.travel_lacks);
    h->planning.travel_lacks = NULL;
    h->planning.travel_spared = 0;
    if (!stage_travel_concerns(p) || h->planning.is_bare || p->ranks < 2 || h->spec.split)
        return 0;
    int r = open_heads(h, err);
    if (r)
        return r;
    const struct st *heads = h->planning.heads;
    r = ask(&msg, h,
            json_pack("{s:s s:o s:o s:o}", "model", p->model, "nodes", ids_of(h->planning.nodes), "units",
                      share_units(heads, h->config.layers), "sizes", share_sizes(heads)),
            err);
    if (!r)
        h->planning.travel_lacks = read_lacks(json_object_get(msg, "lacks"), p->ranks, units);
    json_decref(msg);
    return r;
}
