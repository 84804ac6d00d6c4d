/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/forecast/forecast.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "engine/pipe/plan.h"
#include "engine/pipe/split.h"

struct making {
    const struct forecast_request *req;
    size_t turns, steps;          /* of each adapter and of all, in the round that is run on paper */
    struct sched *sched;          /* owned */
    enum forecast_recompute *how; /* [nodes], owned */
    size_t *first;                /* [stages + 1], owned: layers of each stage */
    struct sched_cost *cost;      /* [stages], owned */
    struct sched_link *link;      /* [2·nodes], owned */
    struct sched_sim sim;         /* owned */
    struct forecast_node *node;   /* [nodes], owned */
};

static size_t layers_of(const struct making *m, size_t stage)
{
    return m->first[stage + 1] - m->first[stage];
}

static int check_turns(const struct making *m, const struct sched_request *step, struct err *err)
{
    size_t most = 1;
    int rc = steps_per_adapter_go(&most, step, m->req->adapters, m->turns, err);
    if (!rc && most != m->turns)
        return err_set(err, -EINVAL,
                       "%zu steps of each adapter cannot follow each other on %zu nodes, only %zu can: leave "
                       "--steps out, or take more adapters or microbatches",
                       m->turns, step->ranks, most);
    return rc;
}

/* --- nodes that share a stage ----------------------------------------------------------------- */

/* As stage_replicas.h counts them, of a layer without experts: outputs of attention and MLP going
 * forward; their gradients, and those of each matrix's input, going back; what W reads; and of a
 * model that is trained the gradients of seven matrices, once a step. */
enum { FORWARD_TIMES = 4, BACK_TIMES = 7, WEIGHTS_TIMES = 2, UPDATE_TIMES = 7 };

static double slices_of(const struct forecast_request *req)
{
    return req->slices > 1 ? (double)req->slices : 1;
}

/* What comes to a node of so many bytes of which it has its part. */
static double others_of(const struct forecast_request *req, double bytes)
{
    return bytes * (slices_of(req) - 1) / slices_of(req);
}

static double gather(const struct forecast_request *req, double times, double bytes)
{
    return req->slices > 1 ? times * req->latency + others_of(req, bytes) / req->rate : 0;
}

/* Of a layer and microbatch; r: its forward done again. */
static struct sched_cost gather_cost(const struct forecast_request *req)
{
    const double forward = gather(req, FORWARD_TIMES, req->gathered);
    return (struct sched_cost){
        .f = forward,
        .i = gather(req, BACK_TIMES, req->gathered_back),
        .w = req->gathered_weights > 0 ? gather(req, WEIGHTS_TIMES, req->gathered_weights) : 0,
        .r = forward};
}

/* Factors are whole on each node, and so is W, which gives the gradients of factors alone. */
static struct sched_cost layer_cost(const struct forecast_request *req)
{
    const struct sched_cost more = gather_cost(req);
    const double part = 1 / slices_of(req);
    return (struct sched_cost){.f = part * req->forward + more.f,
                               .i = part * req->input + more.i,
                               .w = (req->adapters ? 1 : part) * req->weights + more.w,
                               .r = part * req->forward + more.r};
}

/* Once a step, of so many layers. */
static double update_seconds(const struct forecast_request *req, size_t layers)
{
    const double bytes = req->params / (double)req->layers * req->grad_bytes;
    return req->adapters ? 0 : (double)layers * gather(req, UPDATE_TIMES, bytes);
}

/* Each node has all of a layer's input, and its part of what is kept beside that. */
static double kept_by(const struct forecast_request *req)
{
    const double input = fmin(req->message, req->kept);
    return input + (req->kept - input) / slices_of(req);
}

/* --- forwards done again ---------------------------------------------------------------------- */

/* The most that a node's layers keep for backwards at one moment. A buffer that is filled again is
 * there from the backward to its end, and during the forward itself. */
static double kept_most(const struct making *m, uint32_t rank, enum forecast_recompute how)
{
    const struct forecast_request *req = m->req;
    const struct sched_list *list = &m->sched->rank[rank];
    const double input = fmin(req->message, req->kept), kept = kept_by(req);
    double slots = 0, activations = 0, most = 0;
    for (size_t k = 0; k < list->n; k++) {
        const struct sched_task *t = &list->tasks[k];
        const double layers = (double)layers_of(m, t->stage);
        const bool ends = t->op == OP_W || t->op == OP_B;
        const double slot = how == FORECAST_STAGE   ? input
                            : how == FORECAST_LAYER ? layers * input
                                                    : layers * kept,
                     buffer = how == FORECAST_STAGE ? layers * kept : 0;
        slots += t->op == OP_F ? slot : 0;
        activations += t->op == OP_F || t->op == OP_I || t->op == OP_B ? buffer : 0;
        most = fmax(most, slots + activations);
        slots -= ends ? slot : 0;
        activations -= ends || t->op == OP_F ? buffer : 0;
    }
    return most + (how == FORECAST_LAYER ? kept : 0);
}

static double memory_of(const struct making *m, uint32_t rank, enum forecast_recompute how)
{
    const struct forecast_request *req = m->req;
    size_t layers = 0;
    for (size_t s = 0; s < m->sched->stages; s++)
        layers += m->sched->rank_of_stage[s] == rank ? layers_of(m, s) : 0;
    return kept_most(m, rank, how) + (double)layers / (double)req->layers *
                                         (req->params * req->param_bytes +
                                          (double)req->adapters * req->adapter_params * req->adapter_bytes);
}

/* A layer's forward is a part of the backward that wants it: with I and W apart, of both. */
static void add_forwards(struct making *m)
{
    for (uint32_t r = 0; r < m->req->nodes; r++)
        for (size_t k = 0; k < m->sched->rank[r].n; k++) {
            const struct sched_task *t = &m->sched->rank[r].tasks[k];
            const double forward = (double)layers_of(m, t->stage) * layer_cost(m->req).r;
            struct sched_cost *cost = &m->cost[t->stage];
            if (m->how[r] == FORECAST_STAGE)
                cost->r = forward;
            if (m->how[r] == FORECAST_LAYER && t->mb == 0 && t->op != OP_F)
                *(t->op == OP_W ? &cost->w : &cost->i) += forward;
        }
}

static int recompute(struct making *m, struct err *err)
{
    const struct forecast_request *req = m->req;
    struct sched *again = NULL;
    bool any = false;
    for (uint32_t r = 0; r < req->nodes; r++) {
        const bool is_short = req->node_memory > 0 && memory_of(m, r, FORECAST_NONE) > req->node_memory;
        m->how[r] = req->recompute != FORECAST_AUTO ? req->recompute
                    : is_short                      ? FORECAST_STAGE
                                                    : FORECAST_NONE;
        any = any || m->how[r] == FORECAST_STAGE;
    }
    add_forwards(m);
    int rc = any ? sched_again(&again, m->sched, err) : 0;
    if (!rc && any) {
        sched_free(m->sched);
        m->sched = again;
    }
    return rc;
}

/* --- the order -------------------------------------------------------------------------------- */

/* The order of a step, or of a round of several adapters. */
static int make_order(struct making *m, struct err *err)
{
    const struct forecast_request *req = m->req;
    struct sched_request want = {
        .name = req->schedule, .ranks = req->nodes, .chunks = req->chunks, .microbatches = req->microbatches};
    int rc = 0;
    m->turns = req->turns ? req->turns : 1;
    if (req->adapters && !req->turns)
        rc = steps_per_adapter_go(&m->turns, &want, req->adapters,
                                  steps_per_adapter(req->nodes, req->adapters, req->microbatches), err);
    else if (req->adapters)
        rc = check_turns(m, &want, err);
    m->steps = m->turns * (req->adapters ? req->adapters : 1);
    want.microbatches *= m->steps;
    return rc ? rc : sched_make(&m->sched, &want, err);
}

static int prepare(struct making *m, struct err *err)
{
    const struct forecast_request *req = m->req;
    int rc = make_order(m, err);
    if (rc)
        return rc;
    size_t stages = m->sched->stages;
    m->first = calloc(stages + 1, sizeof *m->first);
    m->cost = calloc(stages, sizeof *m->cost);
    m->link = calloc(2 * req->nodes, sizeof *m->link);
    m->node = calloc(req->nodes, sizeof *m->node);
    m->how = calloc(req->nodes, sizeof *m->how);
    if (!m->how || !m->first || !m->cost || !m->link || !m->node)
        return err_set(err, -ENOMEM, "out of memory");
    rc = split_layers(m->first, &(struct split_request){.stages = stages, .layers = req->layers}, err);
    const struct sched_cost layer = layer_cost(req);
    for (size_t s = 0; !rc && s < stages; s++) {
        double n = (double)layers_of(m, s);
        m->cost[s] = (struct sched_cost){.f = n * layer.f, .i = n * layer.i, .w = n * layer.w};
    }
    for (size_t l = 0; l < 2 * req->nodes; l++)
        m->link[l] = (struct sched_link){req->message / req->rate, req->latency};
    return rc ? rc : recompute(m, err);
}

/* A message of the task to the stage behind or, of a backward, before its own; true where it leaves
 * the node. */
static bool leaves(const struct sched *sched, const struct sched_task *t, uint32_t *ret_to)
{
    bool forward = t->op == OP_F, backward = t->op == OP_I || t->op == OP_B;
    if (forward ? t->stage + 1 == sched->stages : !backward || !t->stage)
        return false;
    *ret_to = sched->rank_of_stage[forward ? t->stage + 1 : t->stage - 1];
    return *ret_to != sched->rank_of_stage[t->stage];
}

/* Bytes, and seconds, of what a node gathers in a task. A layer whose forward is done again within
 * a backward gathers for that, too. */
static void add_gathered(struct forecast_node *node, const struct making *m, const struct sched_task *t)
{
    const struct forecast_request *req = m->req;
    const struct sched_cost each = gather_cost(req);
    const double layers = (double)layers_of(m, t->stage);
    const bool is_forward = t->op == OP_F || t->op == OP_R, goes_back = t->op == OP_I || t->op == OP_B,
               has_weights = t->op == OP_W || t->op == OP_B,
               again = node->recompute == FORECAST_LAYER && !is_forward;
    const double times = (is_forward || again) ? 1 : 0;
    node->gathering += layers * (times * each.f + (goes_back ? each.i : 0) + (has_weights ? each.w : 0));
    node->gathered += layers * others_of(req, times * req->gathered + (goes_back ? req->gathered_back : 0) +
                                                  (has_weights ? req->gathered_weights : 0));
}

static void account(struct making *m, uint32_t rank)
{
    const struct forecast_request *req = m->req;
    const struct sched *sched = m->sched;
    struct forecast_node *node = &m->node[rank];
    node->recompute = m->how[rank];
    for (size_t s = 0; s < sched->stages; s++)
        node->layers += sched->rank_of_stage[s] == rank ? layers_of(m, s) : 0;
    for (size_t k = 0; k < sched->rank[rank].n; k++) {
        const struct sched_task *t = &sched->rank[rank].tasks[k];
        uint32_t to;
        if (leaves(sched, t, &to))
            *(to == plan_next(sched->ranks, rank) ? &node->to_next : &node->to_prev) += req->message;
        add_gathered(node, m, t);
    }
    const double update = update_seconds(req, node->layers), steps = (double)m->steps;
    node->to_next /= steps;
    node->to_prev /= steps;
    node->gathered /= steps;
    node->gathered +=
        update > 0
            ? others_of(req, (double)node->layers / (double)req->layers * req->params * req->grad_bytes)
            : 0;
    node->gathering = node->gathering / steps + update;
    node->in_flight = m->sim.peak[rank];
    node->busy = (m->sim.makespan - m->sim.idle[rank]) / steps + update;
    node->memory = memory_of(m, rank, m->how[rank]);
}

/* When the ring has the sums of all gradients. Each node sends its replicas all but its own share
 * of its gradients, and the sum of that to them. from, until: [stages], zeros. */
static double reduced_at(const struct making *m, struct sched_sum *sum, double *from, double *until)
{
    const struct forecast_request *req = m->req;
    const double replicas = (double)req->replicas,
                 trained = req->adapters ? req->adapter_params : req->params,
                 layer = trained / (double)req->layers * req->grad_bytes * 2 * (replicas - 1) / replicas /
                         req->rate;
    sched_last_backwards(from, until, m->sched, &m->sim);
    for (size_t s = 0; s < m->sched->stages; s++) {
        const size_t layers = layers_of(m, s);
        sum[s] = (struct sched_sum){(double)layers * layer, req->overlap == FORECAST_BY_UNIT ? layers : 1};
        if (req->overlap == FORECAST_BEHIND)
            until[s] = m->sim.makespan;
    }
    return sched_sums_end(m->sched, sum, from, until) + 2 * req->latency;
}

static int reduce(struct making *m, double *ret_seconds, struct err *err)
{
    const size_t stages = m->sched->stages;
    struct sched_sum *sum = calloc(stages, sizeof *sum);
    double *from = calloc(stages, sizeof *from), *until = calloc(stages, sizeof *until);
    const bool has_memory = sum && from && until;
    *ret_seconds =
        has_memory && m->req->replicas > 1 ? fmax(reduced_at(m, sum, from, until) - m->sim.makespan, 0) : 0;
    free(sum);
    free(from);
    free(until);
    return has_memory ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int check(const struct forecast_request *req, struct err *err)
{
    if (req->layers < 1 || !(req->rate > 0) || !(req->forward + req->input + req->weights > 0))
        return err_set(err, -EINVAL,
                       "a forecast needs at least one layer, a link rate above 0, and a layer time above 0");
    return 0;
}

int forecast_make(struct forecast *ret, const struct forecast_request *req, struct err *err)
{
    struct making m = {.req = req};
    int rc = check(req, err);
    if (!rc)
        rc = prepare(&m, err);
    if (!rc)
        rc = sched_simulate(&m.sim, m.sched, &(struct sched_costs){.stage = m.cost, .link = m.link}, err);
    double reducing = 0;
    rc = rc ? rc : reduce(&m, &reducing, err);
    if (!rc) {
        struct forecast f = {
            .nodes = req->nodes, .stages = m.sched->stages, .turns = m.turns, .node = m.node};
        double work = 0;
        for (uint32_t r = 0; r < req->nodes; r++) {
            account(&m, r);
            work += m.node[r].busy;
            f.updating = fmax(f.updating, update_seconds(req, m.node[r].layers));
        }
        f.reducing = reducing;
        f.seconds = m.sim.makespan / (double)m.steps + reducing + f.updating;
        f.bubble = 1 - work / ((double)req->nodes * f.seconds);
        m.node = NULL;
        *ret = f;
    }
    sched_sim_done(&m.sim);
    sched_free(m.sched);
    free(m.how);
    free(m.first);
    free(m.cost);
    free(m.link);
    free(m.node);
    return rc;
}

void forecast_done(struct forecast *f)
{
    free(f->node);
    *f = (struct forecast){0};
}

struct forecast_node forecast_most(const struct forecast *f)
{
    struct forecast_node most = {0};
    for (size_t r = 0; r < f->nodes; r++) {
        const struct forecast_node *n = &f->node[r];
        most.layers = n->layers > most.layers ? n->layers : most.layers;
        most.in_flight = n->in_flight > most.in_flight ? n->in_flight : most.in_flight;
        most.busy = fmax(most.busy, n->busy);
        most.memory = fmax(most.memory, n->memory);
        most.to_next = fmax(most.to_next, n->to_next);
        most.to_prev = fmax(most.to_prev, n->to_prev);
        most.gathering = fmax(most.gathering, n->gathering);
        most.gathered = fmax(most.gathered, n->gathered);
    }
    return most;
}
