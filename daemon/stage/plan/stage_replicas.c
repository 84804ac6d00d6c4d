/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_replicas.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/stage/plan/stage_alike.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/stage_nodes.h"
#include "engine/model/param_piece.h"
#include "engine/num/zero_blocks.h"
#include "engine/pipe/parallel_layout.h"

/* Of an adapter the sums take next to no memory; of all weights each buffer is as large as the
 * model. */
enum { GROUPS_OF_LORA = 8, GROUPS_OF_FULL = 2 };

size_t replicas_groups(const struct head *h, size_t m)
{
    const size_t usual = h->spec.full ? GROUPS_OF_FULL : GROUPS_OF_LORA,
                 wanted = h->spec.grad_groups ? h->spec.grad_groups : usual;
    return wanted < m ? wanted : m;
}

/* --- how many --------------------------------------------------------------------------------- */

/* A job that has lost a node goes on with fewer replicas: its bits are the same. */
static size_t fewer(const struct head *h, size_t nodes, size_t replicas, size_t places)
{
    const size_t fit = nodes / places;
    return h->spec.said && fit && fit < replicas ? fit : replicas;
}

static int check_lines(const struct job_spec *s, size_t lines, size_t places, struct err *err)
{
    return !lines || places == lines
               ? 0
               : err_set(err, -EINVAL,
                         "--parallel says pp=%zu, and --schedule %s has %zu lines: make them equal", places,
                         s->schedule, lines);
}

static void take_replicas(struct head *h, size_t replicas)
{
    h->plan.replicas = replicas > 1 ? replicas : 0;
    h->plan.divided = h->plan.replicas && h->spec.zero;
    h->plan.copies = h->plan.copies && !h->plan.divided;
}

int replicas_of_job(struct head *h, size_t lines, size_t *ret_ranks, struct err *err)
{
    const struct job_spec *s = &h->spec;
    size_t replicas = s->replicas ? s->replicas : 1, n = alike_nodes(h, replicas);
    size_t places = s->places ? s->places : lines ? lines : n / replicas;
    int r = check_lines(s, lines, places, err);
    if (r)
        return r;
    places = places ? places : 1;
    replicas = fewer(h, n, replicas, places);
    n = alike_nodes(h, replicas);
    if (replicas * places > n && (s->replicas || s->places))
        return alike_explain(
            h, replicas,
            err_set(err, -EINVAL,
                    "--parallel %s takes %zu nodes (%zu replica%s of %zu), and %zu take%s part: add nodes, "
                    "or lower dp or pp",
                    s->parallel, replicas * places, replicas, replicas == 1 ? "" : "s", places, n,
                    n == 1 ? "s" : ""),
            err);
    take_replicas(h, replicas);
    *ret_ranks = replicas * places < n ? replicas * places : n;
    return 0;
}

/* A job that was interrupted goes on with the nodes there are: its bits are the same. */
static bool is_again(const struct job_spec *s)
{
    return s->said || s->so_far || s->is_again;
}

/* Of fewer nodes first replicas go, then slices, then stages. */
struct shape_of_job {
    size_t replicas, slices, places;
};

static size_t nodes_of(const struct shape_of_job *j)
{
    return j->replicas * j->slices * j->places;
}

static void shrink(struct shape_of_job *j, size_t n)
{
    j->places = j->places > n ? n : j->places ? j->places : n;
    if (nodes_of(j) > n)
        j->replicas = n / (j->slices * j->places) ? n / (j->slices * j->places) : 1;
    if (nodes_of(j) > n)
        j->slices = n / j->places;
}

static int too_few(const struct job_spec *s, const struct shape_of_job *j, size_t n, struct err *err)
{
    char replicas[40] = "";
    if (j->replicas > 1)
        snprintf(replicas, sizeof replicas, "%zu replicas of ", j->replicas);
    return err_set(err, -EINVAL,
                   "--parallel %s takes %zu nodes (%s%zu stage%s, each shared by %zu), and %zu take%s part: "
                   "add nodes, or lower %stp or pp",
                   s->parallel, nodes_of(j), replicas, j->places, j->places == 1 ? "" : "s", j->slices, n,
                   n == 1 ? "s" : "", j->replicas > 1 ? "dp, " : "");
}

int slices_of_job(struct head *h, size_t lines, size_t *ret_ranks, struct err *err)
{
    const struct job_spec *s = &h->spec;
    struct shape_of_job j = {.replicas = s->replicas ? s->replicas : 1, .slices = s->slices ? s->slices : 1};
    size_t n = alike_nodes(h, j.replicas * j.slices);
    if (is_again(s) && n < j.slices) { /* a node has come that rounds otherwise */
        j.replicas = j.slices = 1;
        n = h->plan.ranks;
    }
    j.places = s->places ? s->places : lines ? lines : n / (j.replicas * j.slices);
    int r = check_lines(s, lines, j.places, err);
    if (r)
        return r;
    if (is_again(s))
        shrink(&j, n);
    j.places = j.places ? j.places : 1;
    if (nodes_of(&j) > n)
        return alike_explain(h, j.replicas * j.slices, too_few(s, &j, n, err), err);
    take_replicas(h, j.replicas);
    h->plan.slices = j.slices > 1 ? j.slices : 0;
    *ret_ranks = nodes_of(&j);
    return slice_check(&h->config, j.slices, h->plan.training, err);
}

size_t slices_most(const struct head *h)
{
    size_t most = SLICE_MOST;
    struct err quiet;
    while (most > 1 && slice_check(&h->config, most, true, &quiet))
        most--;
    return most;
}

/* --- what is counted -------------------------------------------------------------------------- */

/* What is counted: of each parameter what an update has, and of gradients what a slice makes. */
struct part_of {
    size_t update, updates;
    struct slice slice;
};
struct sent_values {
    size_t values, looked_up; /* of these: of tables that tokens are looked up in */
};
struct counting {
    struct part_of part;
    bool is_table; /* a matrix of this unit is one */
    struct sent_values sum;
    size_t parts, in_parts; /* parameters whose gradients several slices make, and values in them */
};

static int count(void *arg, const struct param_def *def)
{
    struct counting *c = arg;
    const size_t n = param_elements(def);
    if (def->fixed || !n)
        return 0;
    const struct param_slice update = param_slice(n, c->part.update, c->part.updates),
                             made = param_made(c->part.slice, def->rows, n / def->rows, def->grain);
    const size_t both = param_slice_both(update, made).n;
    c->sum.values += both;
    c->sum.looked_up += c->is_table && def->cols ? both : 0;
    c->parts += def->grain > 0;
    c->in_parts += def->grain ? both : 0;
    return 0;
}

/* Which gradients or values are counted. */
struct counted {
    const struct job_plan *plan;
    const struct config *config;
    enum unit_shared what;
    size_t updates; /* among so many replicas what is updated is shared out */
};

/* A head makes gradients of all words, also of a table that is the embedding. */
static void count_unit(struct counting *n, const struct counted *of, size_t adapter, size_t unit)
{
    const struct config *c = of->config;
    const struct param_def half = {.rows = c->vocab, .cols = c->dim, .grain = SLICE_ANY};
    n->is_table = !unit;
    tune_params(job_plan_tune(of->plan, adapter), family_find(c->family), c, unit, count, n);
    if (c->tied && of->plan->tune.kind == TUNE_FULL && unit > c->layers && of->what == UNIT_GRADS)
        count(n, &half);
}

/* --- slices ----------------------------------------------------------------------------------- */

/* As gqa.c, mlp.c and moe.c gather; of the head one row, at the first slice alone. */
struct slice_traffic slices_traffic(const struct job_plan *p, const struct config *c, size_t unit,
                                    double rows)
{
    const double others = p->slices ? (double)(p->slices - 1) / (double)p->slices : 0;
    const struct config_moe *m = &c->moe;
    if (!p->slices || !unit)
        return (struct slice_traffic){0, 0};
    if (unit > c->layers)
        return (struct slice_traffic){1, (double)c->vocab * sizeof(float) * others};
    const bool has_experts = config_has_experts(c, unit - 1);
    const size_t inner = has_experts ? m->chosen * m->ffn + m->shared_ffn : c->ffn,
                 wide = c->heads * c->head + inner + 2 * c->dim;
    const double scores = has_experts ? (double)m->experts : 0; /* the first slice gives them */
    return (struct slice_traffic){4 + has_experts + (has_experts && m->shared_ffn),
                                  rows * ((double)wide * others + scores) * sizeof(float)};
}

/* What the gradients of a layer's matrices want whole of the inside of attention and MLP. */
struct inside {
    const struct config *config;
    double times, width;
};

/* Matrices that lead from an inside back to the model's width; of an expert's tokens, as many as of
 * the others. */
static int count_inside(void *arg, const struct param_def *def)
{
    static const char *const leads_back[] = {".o_proj.", ".down_proj.", ".w2."};
    struct inside *n = arg;
    const struct config_moe *m = &n->config->moe;
    const bool reads = def->cols && (def->role == PARAM_FULL || def->role == PARAM_A),
               is_expert = strstr(def->name, ".experts.");
    for (size_t i = 0; reads && i < sizeof leads_back / sizeof *leads_back; i++)
        if (strstr(def->name, leads_back[i])) {
            n->times++;
            n->width += (double)def->cols * (is_expert ? (double)m->chosen / (double)m->experts : 1);
        }
    return 0;
}

struct slice_trains slices_trains(const struct job_plan *p, const struct config *c, size_t unit, double rows)
{
    enum { ATTENTION = 4, MLP = 3, EXPERTS_BACK = 5 }; /* matrices, and what is gathered going back */
    const double others = (double)(p->slices - 1) / (double)p->slices, each = rows * others * sizeof(float);
    const bool inner = unit && unit <= c->layers;
    const struct config_moe *m = &c->moe;
    const bool has_experts = inner && config_has_experts(c, unit - 1),
               is_dense = !has_experts || m->shared_ffn;
    const size_t chosen = has_experts ? m->chosen * m->ffn : 0, ffn = !has_experts ? c->ffn : m->shared_ffn;
    struct inside inside = {.config = c};
    /* Of experts the activations and their gradients, then those of gate and up. */
    const size_t back = (c->heads + 2 * c->kv_heads) * c->head + c->dim + is_dense * (2 * ffn + c->dim) +
                        has_experts * (4 * chosen + c->dim);
    struct slice_trains t = {.forward = slices_traffic(p, c, unit, rows)};
    if (unit > c->layers)
        t.forward = (struct slice_traffic){2, each * (double)(c->vocab + c->dim)};
    if (inner) {
        t.input = (struct slice_traffic){ATTENTION + MLP * is_dense + EXPERTS_BACK * has_experts,
                                         each * (double)back};
        tune_params(job_plan_tune(p, 0), family_find(c->family), c, unit, count_inside, &inside);
    }
    t.weights = (struct slice_traffic){inside.times, each * inside.width};
    struct counting shared = {.part = {0, 1, {0, 1}}};
    count_unit(&shared, &(struct counted){p, c, UNIT_GRADS, 1}, 0, unit);
    t.update = (struct slice_traffic){(double)shared.parts, (double)shared.in_parts * others * sizeof(float)};
    return t;
}

/* --- shares ----------------------------------------------------------------------------------- */

/* A replica is as fast as its slowest node, as all have the same layers; where each has a split of
 * its own, as all its nodes together. */
static double speed_of(const struct head *h, size_t replica)
{
    const struct plan_shape shape = job_plan_shape(&h->plan);
    const size_t first = replica * job_plan_slices(&h->plan), end = first + job_plan_slices(&h->plan);
    double slowest = 0, sum = 0;
    for (size_t k = first; k < end; k++)
        for (size_t place = 0; place < plan_shape_places(&shape, k); place++) {
            const double speed = stage_nodes_speed(h->planning.nodes, plan_shape_rank(&shape, k, place));
            slowest = !sum || speed < slowest ? speed : slowest;
            sum += speed;
        }
    return h->plan.nothers ? sum : slowest;
}

int replicas_share_out(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    double speed[PLAN_MAX_REPLICAS];
    p->groups = replicas_groups(h, p->microbatches);
    if (!p->replicas || h->planning.has_shares)
        return 0;
    if (p->groups < p->replicas)
        return err_set(err, -EINVAL,
                       "%zu replicas need as many groups of microbatches, and a step has %zu in %zu "
                       "microbatch%s: raise --grad-groups or --batch-size, or lower dp",
                       p->replicas, p->groups, p->microbatches, p->microbatches == 1 ? "" : "es");
    for (size_t d = 0; d < p->replicas; d++)
        speed[d] = speed_of(h, d);
    parallel_deal_out(p->share, speed, p->replicas, p->groups);
    return 0;
}

size_t replicas_largest(const struct job_plan *p)
{
    size_t largest = 0;
    for (size_t d = 1; d < p->replicas; d++)
        largest = p->share[d] > p->share[largest] ? d : largest;
    return largest;
}

int replicas_unit_bytes(size_t *ret, const struct head *h, size_t unit, struct err *err)
{
    size_t layer = unit ? unit - 1 : 0;
    bool inner = unit >= 1 && unit <= h->config.layers;
    struct stage_spec spec =
        job_plan_stage(&h->plan, &h->config, 0, replicas_largest(&h->plan) * job_plan_slices(&h->plan));
    for (size_t s = 0; s < h->plan.stages; s++)
        spec.slots = h->plan.slots[s] > spec.slots ? h->plan.slots[s] : spec.slots;
    spec.first_layer = inner ? layer : 0;
    spec.end_layer = inner ? layer + 1 : 0;
    spec.embed = unit == 0;
    spec.head = unit > h->config.layers;
    struct stage_bytes bytes;
    int r = stage_measure(&bytes, &spec, err);
    if (!r)
        *ret = bytes.total;
    return r;
}

/* --- parts ------------------------------------------------------------------------------------ */

static size_t updates_of(const struct job_plan *p)
{
    return p->divided ? p->replicas : 1;
}

/* Of units [first, end) with the adapter, and in the part, that have most. */
static struct sent_values most_of(const struct counted *of, size_t first, size_t end)
{
    const size_t slices = of->what == UNIT_GRADS ? job_plan_slices(of->plan) : 1;
    struct sent_values most = {0};
    for (size_t a = 0; a <= of->plan->nmore; a++)
        for (size_t i = 0; i < of->updates * slices; i++) {
            struct counting n = {.part = {i / slices, of->updates, {i % slices, slices}}};
            for (size_t u = first; u < end; u++)
                count_unit(&n, of, a, u);
            most = n.sum.values > most.values ? n.sum : most;
        }
    return most;
}

/* Of a stage in a split. */
static struct sent_values most_values(const struct counted *of, const size_t *first, size_t stages,
                                      size_t stage)
{
    return most_of(of, stage ? first[stage] + 1 : 0, first[stage + 1] + 1 + (stage + 1 == stages));
}

/* As many as there are replicas, so that each adds up one, or more of a size that travels well;
 * where slices are updated, as many of each. */
size_t replicas_parts(const struct job_plan *p, const struct config *c, size_t stage)
{
    const struct counted grads = {p, c, UNIT_GRADS, updates_of(p)};
    const size_t updates = updates_of(p), most = PLAN_MAX_PARTS / p->stages / p->round_steps / updates,
                 least = p->divided ? 1 : p->replicas,
                 values = p->replicas ? most_values(&grads, p->first, p->stages, stage).values : 0,
                 wanted = (values + PARAM_PIECE_VALUES - 1) / PARAM_PIECE_VALUES,
                 parts = wanted < least ? least : wanted;
    return !values ? 0 : (parts < most ? parts : most) * updates;
}

/* Nodes of the tree that a replica sends, of the one that sends most. */
static size_t most_nodes(const struct job_plan *p)
{
    return parallel_most_sums(p->share, p->replicas, job_plan_groups(p));
}

size_t replicas_part_bytes(const struct job_plan *p)
{
    return zero_blocks_bytes(most_nodes(p) * PARAM_PIECE_VALUES);
}

/* Of a table the rows of other words than those in so many tokens are zero, and stay behind. */
static double travelling(const struct sent_values *t, const struct config *c, double tokens)
{
    const double share = tokens < (double)c->vocab ? tokens / (double)c->vocab : 1;
    return (double)(t->values - t->looked_up) + (double)t->looked_up * share;
}

double replicas_unit_bytes_sent(const struct job_plan *p, const struct config *c, size_t unit, double tokens)
{
    const struct counted grads = {p, c, UNIT_GRADS, 1};
    const struct sent_values most = most_of(&grads, unit, unit + 1);
    return travelling(&most, c, tokens) * sizeof(float);
}

/* The nodes of what others add up; and to each of them the sums of what it adds up itself, or the
 * values. */
double replicas_sent_bytes(const struct head *h, const size_t *first, size_t stages, size_t stage)
{
    const struct job_plan *p = &h->plan;
    const struct counted grads = {p, &h->config, UNIT_GRADS, updates_of(p)},
                         values = {p, &h->config, UNIT_VALUES, updates_of(p)};
    if (!p->replicas)
        return 0;
    const double nodes = (double)most_nodes(p), step = (double)p->microbatches * (double)p->tokens,
                 of_node = step * (double)p->share[replicas_largest(p)] / (double)job_plan_groups(p) / nodes,
                 others = (double)((p->replicas - 1) * updates_of(p)) / (double)p->replicas;
    const struct sent_values sums = most_values(&grads, first, stages, stage);
    const double back = p->divided ? (double)most_values(&values, first, stages, stage).values
                                   : travelling(&sums, &h->config, step);
    return others * sizeof(float) * (travelling(&sums, &h->config, of_node) * nodes + back);
}

double replicas_spared_bytes(const struct head *h, const size_t *first, size_t stages, size_t stage)
{
    enum { MOMENTS = 2 };
    const struct job_plan *p = &h->plan;
    const struct counted all = {p, &h->config, UNIT_VALUES, 1},
                         kept = {p, &h->config, UNIT_VALUES, updates_of(p)};
    return p->divided ? MOMENTS * sizeof(float) *
                            (double)(most_values(&all, first, stages, stage).values -
                                     most_values(&kept, first, stages, stage).values)
                      : 0;
}
