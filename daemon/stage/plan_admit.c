/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan_admit.h"
#include "daemon/stage/hold/line_feed.h"

#include <errno.h>
#include <math.h>

#include "daemon/stage/hold/held_memory.h"
#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/round_plan.h"
#include "engine/pipe/split.h"
#include "engine/train/data.h"

enum { COUNT_MAX = INT32_MAX }; /* of tokens, sequences, positions: they are numbered in 32 bits */

static const char *const programs[] = {"train", "forward", "decode", "save", "load", "restore"};

/* --- the plan --------------------------------------------------------------------------------- */

static int refuse_plan(struct err *err, const char *field, size_t is, const char *than, size_t limit)
{
    return err_set(err, -EBADMSG,
                   "the head's plan does not fit this node: %s is %zu, which must be %s %zu; same ringd and "
                   "same model on all nodes?",
                   field, is, than, limit);
}

static int at_most(struct err *err, const char *field, size_t is, size_t limit)
{
    return is > limit ? refuse_plan(err, field, is, "at most", limit) : 0;
}

static int exactly(struct err *err, const char *field, size_t is, size_t wanted)
{
    return is != wanted ? refuse_plan(err, field, is, "exactly", wanted) : 0;
}

static int at_least(struct err *err, const char *field, size_t is, size_t limit)
{
    return is < limit ? refuse_plan(err, field, is, "at least", limit) : 0;
}

/* Layers of an adapter are of the model. A job trains something, or it does not. */
static int admit_tune(const struct tune *t, const struct job_plan *p, const struct config *c, struct err *err)
{
    if (p->training ? t->kind == TUNE_NONE : t->kind == TUNE_FULL)
        return err_set(
            err, -EBADMSG,
            "the head's plan does not fit this node: a job of type %s has tune.kind %d; same ringd "
            "on all nodes?",
            job_type_name(p->type), (int)t->kind);
    int r = at_most(err, "tune.end_layer", t->end_layer, c->layers);
    return r || t->kind != TUNE_LORA || t->first_layer < t->end_layer
               ? r
               : refuse_plan(err, "tune.first_layer", t->first_layer, "below", t->end_layer);
}

/* A job that scores has a pool of them for a text, and nothing for rows of a data set. */
static int admit_caches(const struct job_plan *p, struct err *err)
{
    const bool is_text = p->type == JOB_SCORE && p->kv,
               has_pool = p->type == JOB_SERVE || p->type == JOB_EVAL || is_text;
    const int r = exactly(err, "kv", p->kv, p->type == JOB_GENERATE || has_pool);
    if (r)
        return r;
    return has_pool ? at_least(err, "kv_blocks", p->kv_blocks, 1)
                    : exactly(err, "kv_blocks", p->kv_blocks, 0);
}

/* Pairs need two sequences, and a reference an adapter that can be left out. */
static int admit_loss(const struct job_plan *p, struct err *err)
{
    const int r = p->loss == LOSS_NLL ? 0 : at_least(err, "seqs", p->seqs, PAIR_ANSWERS);
    return r || p->loss == LOSS_NLL || (p->training && (p->loss != LOSS_DPO || p->tune.kind == TUNE_LORA))
               ? r
               : err_set(err, -EBADMSG,
                         "the head's plan does not fit this node: a job of type %s with tune.kind %d has no "
                         "pairs for its loss; same ringd on all nodes?",
                         job_type_name(p->type), (int)p->tune.kind);
}

int plan_admit_model(const struct job_plan *p, const struct config *c, struct err *err)
{
    int r = exactly(err, "dim", p->dim, c->dim);
    if (!r)
        r = exactly(err, "vocab", p->vocab, c->vocab);
    if (!r)
        r = exactly(err, "training", p->training, p->type == JOB_TRAIN);
    if (!r)
        r = admit_caches(p, err);
    if (!r && p->kv_blocks)
        r = at_most(err, "seqs", p->seqs, JOB_SERVED_MAX);
    if (!r && p->type != JOB_SERVE)
        r = exactly(err, "draft_bytes", p->draft_bytes, 0);
    if (!r && p->kv_blocks)
        r = exactly(err, "the number of its stages", p->stages, job_plan_places(p));
    if (!r)
        r = at_most(err, "tokens", p->tokens, COUNT_MAX);
    if (!r)
        r = at_most(err, "seqs", p->seqs, p->tokens);
    if (!r)
        r = admit_loss(p, err);
    if (!r)
        r = at_most(err, "positions", p->positions, COUNT_MAX);
    if (!r)
        r = at_most(err, "sample", p->sample, p->training ? COUNT_MAX : 0);
    if (!r)
        r = at_most(err, "copies", p->copies, p->training && c->layers + 2 <= HELD_UNITS_MAX);
    for (size_t a = 0; a <= p->nmore && !r; a++)
        r = admit_tune(job_plan_tune(p, a), p, c, err);
    return r;
}

static int admit_split(const struct job_plan *p, const struct config *c, struct err *err)
{
    struct err why;
    int r = exactly(err, "the number of its layers", p->first[p->stages], c->layers);
    if (!r && split_check(p->first, p->stages, c->layers, &why))
        r = err_set(err, -EBADMSG, "the head's plan does not fit this node: %.300s", why.text);
    return r;
}

/* What a stage has of something is at most what all microbatches of a round need. */
static int admit_slots(const struct job_plan *p, struct err *err)
{
    const size_t most = p->microbatches * p->round_steps;
    int r = 0;
    for (size_t s = 0; s < p->stages && !r; s++) {
        const size_t slots = p->slots[s];
        r = at_least(err, "slots of a stage", slots, 1);
        if (!r)
            r = at_most(err, "slots of a stage", slots, most);
        if (!r)
            r = at_most(err, "activations of a stage", p->activations[s], slots);
        if (!r)
            r = at_most(err, "bwd_x_only of a stage", p->bwd_x_only[s], slots);
        if (!r && p->training)
            r = at_least(err, "bwd_x_only of a stage", p->bwd_x_only[s], 1);
        if (!r)
            r = at_most(err, "bwd_w_only of a stage", p->bwd_w_only[s], slots);
    }
    return r;
}

/* Fewer parts are larger than the memory that is planned for messages. */
static int admit_parts(const struct job_plan *p, const struct config *c, struct err *err)
{
    int r = 0;
    for (size_t s = 0; s < p->stages && !r; s++)
        r = exactly(err, "parts of a stage", p->parts[s], replicas_parts(p, c, s));
    return r;
}

/* The largest round of the job's own program, but of one step: whatever its sizes, its tasks lie as
 * those of all others. */
static int admit_first_round(const struct job_plan *p, const struct config *c, struct err *err)
{
    static const enum program of_type[JOB_TYPES] = {PROGRAM_TRAIN, PROGRAM_DECODE, PROGRAM_FORWARD,
                                                    PROGRAM_DECODE, PROGRAM_DECODE};
    struct go_step step = {.step = 1};
    const struct go go = {.program = p->kv ? PROGRAM_DECODE : of_type[p->type],
                          .microbatches = p->microbatches,
                          .want_token = p->kv,
                          .nsteps = p->training,
                          .steps = &step};
    struct plan *compiled = NULL;
    int r = round_compile(&compiled, p, c, &go, NULL, err);
    if (!r)
        r = plan_admit_compiled(p, compiled, err);
    plan_free(compiled);
    return r;
}

int plan_admit(const struct job_plan *p, const struct config *c, uint32_t rank, bool is_head, struct err *err)
{
    if (rank >= p->ranks)
        return refuse_plan(err, "the rank of this node", rank, "below", p->ranks);
    if (is_head != (rank == 0))
        return err_set(err, -EBADMSG,
                       "the head's plan does not fit this node: it gives it rank %u, and rank 0 is the node "
                       "that planned the job",
                       rank);
    int r = plan_admit_model(p, c, err);
    if (!r)
        r = admit_split(p, c, err);
    if (!r)
        r = at_most(err, "microbatches", p->microbatches, PLAN_MAX_CELLS / p->stages);
    if (!r)
        r = at_most(err, "round_steps", p->round_steps, PLAN_MAX_CELLS / p->stages / p->microbatches);
    if (!r)
        r = admit_slots(p, err);
    if (!r)
        r = admit_parts(p, c, err);
    return r ? r : admit_first_round(p, c, err);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Tables of rotary positions are no part of what a stage is measured to take. */
static size_t bytes_of_tables(const struct job_plan *p, const struct config *c)
{
    const size_t longest = p->positions > p->sample ? p->positions : p->sample;
    return (size_t)(config_rope_floats(c, longest) * sizeof(float));
}

int plan_admit_positions(const struct job_plan *p, const struct config *c, size_t machine, struct err *err)
{
    static const size_t least[KV_TYPES] = {[KV_F32] = 4, [KV_BF16] = 2, [KV_INT8] = 1}; /* of a number */
    const size_t cached = p->kv ? p->positions * 2 * c->kv_heads * c->head * least[p->kv_type] : 0,
                 takes = bytes_of_tables(p, c) + cached;
    const struct err_amounts is = err_amounts(takes, machine);
    return machine && takes > machine
               ? err_set(err, -EBADMSG,
                         "the head's plan does not fit this node: positions is %zu, which takes %s, and this "
                         "machine has %s of memory: use shorter rows, or a smaller --max-tokens",
                         p->positions, is.need, is.have)
               : 0;
}

/* Other jobs are promised memory by what a plan says that this one maps. */
static int admit_mapped(const struct job_plan *p, uint32_t rank, size_t mapped, struct err *err)
{
    size_t said = 0;
    for (size_t u = 0; u < p->nmapped; u++)
        said += job_plan_maps(p, rank, u) ? p->mapped[u] : 0;
    return said <= mapped
               ? 0
               : err_set(err, -EBADMSG,
                         "the head's plan does not fit this node: by mapped, rank %u maps %zu bytes "
                         "of the model, and here it maps %zu: copy the model again",
                         (unsigned)rank, said, mapped);
}

int plan_admit_memory(const struct job_plan *p, const struct config *c, uint32_t rank, size_t machine,
                      struct err *err)
{
    struct stage_bytes bytes = {0};
    size_t stages = 0;
    int r = plan_admit_positions(p, c, machine, err);
    if (!r)
        r = stage_chunks(&bytes, p, c, rank, err);
    if (!r)
        r = admit_mapped(p, rank, bytes.mapped, err);
    size_t held = 0;
    if (!r)
        r = held_bytes(&held, p, c, rank, err);
    for (size_t s = 0; s < p->stages; s++)
        stages += job_plan_is_at(p, s, rank);
    const size_t takes = r ? 0 : bytes.total - bytes.mapped + stages * bytes_of_tables(p, c) + held;
    const struct err_amounts is = err_amounts(takes, machine);
    return r || !machine || takes <= machine
               ? r
               : err_set(
                     err, -EBADMSG,
                     "the head's plan does not fit this node: its buffers for tokens %zu, positions %zu and "
                     "slots take %s, and this machine has %s of memory: use another split, shorter rows, "
                     "or a smaller --micro-batch-size",
                     p->tokens, p->positions, is.need, is.have);
}

/* --- a compiled round ------------------------------------------------------------------------- */

static int refuse_round(struct err *err, const char *what, size_t stage, size_t needs, size_t has)
{
    return err_set(
        err, -EBADMSG,
        "the head's plan does not fit its own schedule: a round needs %zu %s of stage %zu, and the "
        "plan gives it %zu; same ringd on all nodes?",
        needs, what, stage, has);
}

static int admit_places(const struct job_plan *p, const struct plan *compiled, struct err *err)
{
    for (size_t r = 0; r < compiled->ranks; r++)
        for (size_t k = 0; k < compiled->rank[r].n; k++) {
            const uint32_t stage = compiled->rank[r].tasks[k].stage;
            if (!job_plan_is_at(p, stage, r))
                return err_set(err, -EBADMSG,
                               "the head's plan does not fit its own schedule: places has stage %u on rank "
                               "%u, its schedule on rank %zu; same ringd on all nodes?",
                               stage, job_plan_rank_at(p, job_plan_pipeline_of(p, r), stage), r);
        }
    return 0;
}

int plan_admit_compiled(const struct job_plan *p, const struct plan *compiled, struct err *err)
{
    if (program_moves(compiled->program))
        return 0; /* they know ranks alone, and hold no slot */
    for (size_t s = 0; s < p->stages; s++) {
        const size_t slots = p->slots[s], activations = p->activations[s] ? p->activations[s] : slots,
                     bwd_x_only = p->bwd_x_only[s] ? p->bwd_x_only[s] : slots;
        if (compiled->slots[s] > slots)
            return refuse_round(err, "slots", s, compiled->slots[s], slots);
        if (compiled->activations[s] > activations)
            return refuse_round(err, "buffers for activations", s, compiled->activations[s], activations);
        if (compiled->bwd_x_only[s] > bwd_x_only)
            return refuse_round(err, "buffers of bwd_x_only", s, compiled->bwd_x_only[s], bwd_x_only);
        if (compiled->bwd_w_only[s] > p->bwd_w_only[s])
            return refuse_round(err, "buffers of bwd_w_only", s, compiled->bwd_w_only[s], p->bwd_w_only[s]);
    }
    return admit_places(p, compiled, err);
}

/* --- GO --------------------------------------------------------------------------------------- */

static bool has_program(const struct job_plan *p, uint32_t program)
{
    const bool trains = p->type == JOB_TRAIN;
    switch (program) {
    case PROGRAM_TRAIN:
    case PROGRAM_SAVE: return trains;
    case PROGRAM_FORWARD: return trains || (p->type == JOB_SCORE && !p->kv);
    case PROGRAM_DECODE: return p->type == JOB_GENERATE || (trains && p->sample);
    case PROGRAM_LOAD: return p->tune.kind != TUNE_NONE;
    case PROGRAM_RESTORE: return trains && p->copies;
    default: return false;
    }
}

static int refuse_go(struct err *err, uint32_t from, const struct go *go, const char *field, uint64_t is)
{
    return err_set(err, -EBADMSG,
                   "rank %u started a round (%s) that this job has no place for: %s is %llu; same ringd on "
                   "all nodes?",
                   from, programs[go->program], field, (unsigned long long)is);
}

static int admit_flags(const struct job_plan *p, const struct go *go, uint32_t from, struct err *err)
{
    const bool moves = program_moves(go->program);
    if (go->program == PROGRAM_RESTORE && !go->state)
        return refuse_go(err, from, go, "the flag for optimizer state", 0);
    if (go->state && !(moves && p->training))
        return refuse_go(err, from, go, "the flag for optimizer state", 1);
    if (go->logprobs && !go->want_token)
        return refuse_go(err, from, go, "the flag for log-probabilities", 1);
    if (go->top && (!go->logprobs || go->top > p->vocab))
        return refuse_go(err, from, go, "the number of likeliest tokens", go->top);
    if (go->want_token && go->program != PROGRAM_DECODE)
        return refuse_go(err, from, go, "the flag for a token", 1);
    const bool holds = go->program == PROGRAM_TRAIN || go->program == PROGRAM_RESTORE;
    if (go->hold && !(holds && p->copies))
        return refuse_go(err, from, go, "the flag for copies", 1);
    if (go->keep && !(go->program == PROGRAM_SAVE && p->copies))
        return refuse_go(err, from, go, "the flag for copies on the disk", 1);
    if (go->kept && !(go->program == PROGRAM_TRAIN && p->copies))
        return refuse_go(err, from, go, "the flag that copies are on all disks", 1);
    return 0;
}

/* Without these checks a choice would write outside its scratch, or make numbers that are none. */
static int admit_choice(const struct job_plan *p, const struct go *go, uint32_t from, struct err *err)
{
    const struct sample_params *c = &go->choice;
    if (c->nadjust && (go->program != PROGRAM_DECODE || !p->kv))
        return refuse_go(err, from, go, "the number of adjustments", c->nadjust);
    for (size_t i = 0; i < c->nadjust; i++) {
        if (c->adjust[i].id >= p->vocab)
            return refuse_go(err, from, go, "the token of an adjustment", c->adjust[i].id);
        if (!(c->adjust[i].repeat > 0) || !isfinite(c->adjust[i].repeat) || !isfinite(c->adjust[i].add))
            return refuse_go(err, from, go, "the number of an adjustment that is not one", i);
    }
    return 0;
}

static int admit_steps(const struct job_plan *p, const struct go *go, uint32_t from, struct err *err)
{
    const bool refers = go->program == PROGRAM_FORWARD && p->loss == LOSS_DPO;
    if (go->adapter > p->nmore && !(refers && go->adapter == GO_NO_ADAPTER))
        return refuse_go(err, from, go, "the adapter", go->adapter);
    if (go->nsteps > p->round_steps)
        return refuse_go(err, from, go, "the number of steps", go->nsteps);
    for (size_t i = 0; i < go->nsteps; i++) {
        if (go->steps[i].adapter > p->nmore)
            return refuse_go(err, from, go, "the adapter of a step", go->steps[i].adapter);
        if (!go->steps[i].step)
            return refuse_go(err, from, go, "the number of a step", 0);
        const float dscale = (float)go->steps[i].dscale;
        if (!(dscale > 0) || !isfinite(dscale)) /* 0 is a forward without a backward */
            return refuse_go(err, from, go, "the dscale of a step that is no number above 0", i);
        const double beta = go->steps[i].beta;
        if (p->loss == LOSS_NLL ? beta != 0 : !(beta > 0) || !isfinite(beta))
            return refuse_go(err, from, go,
                             "the beta of a step that is no number above 0, or is one of a "
                             "job without pairs",
                             i);
    }
    return 0;
}

/* The microbatches of a job that has pairs hold whole ones. */
static int admit_pairs(const struct job_plan *p, const struct go *go, uint32_t from, struct err *err)
{
    const bool has_rows =
        p->loss != LOSS_NLL && (go->program == PROGRAM_TRAIN || go->program == PROGRAM_FORWARD);
    size_t pairs = 0;
    for (size_t m = 0; m < go->microbatches && has_rows; m++) {
        if (go->mb[m].n % PAIR_ANSWERS)
            return refuse_go(err, from, go, "the number of sequences of a microbatch of pairs", go->mb[m].n);
        pairs += go->mb[m].n / PAIR_ANSWERS;
    }
    if (go->nrefs != (p->loss == LOSS_DPO && go->program == PROGRAM_TRAIN ? pairs : 0))
        return refuse_go(err, from, go, "the number of references", go->nrefs);
    for (size_t i = 0; i < go->nrefs; i++)
        if (!isfinite(go->refs[i]))
            return refuse_go(err, from, go, "a reference that is no number", i);
    return 0;
}

/* Each unit of the model from a rank that there is. */
static int admit_held(const struct job_plan *p, const struct go *go, uint32_t from, struct err *err)
{
    const size_t units = p->first[p->stages] + 2;
    if (go->nheld != (go->program == PROGRAM_RESTORE ? units : 0))
        return refuse_go(err, from, go, "the number of units that are held", go->nheld);
    for (size_t u = 0; u < go->nheld; u++)
        if (go->held_by[u] >= p->ranks)
            return refuse_go(err, from, go, "the rank that holds a unit", go->held_by[u]);
    return 0;
}

static int admit_seqs(const struct job_plan *p, const struct go *go, const struct seqs *mb, uint32_t from,
                      struct err *err)
{
    const bool decodes = go->program == PROGRAM_DECODE;
    if (!mb->n || mb->n > (decodes ? 1 : p->seqs))
        return refuse_go(err, from, go, "the number of sequences of a microbatch", mb->n);
    for (size_t i = 0; i < mb->n; i++) {
        const uint32_t n = mb->start[i + 1] - mb->start[i];
        if (!n || (!decodes && n > p->positions))
            return refuse_go(err, from, go, "the length of a sequence", n);
    }
    return mb->start[mb->n] > p->tokens
               ? refuse_go(err, from, go, "the number of tokens of a microbatch", mb->start[mb->n])
               : 0;
}

static int admit_microbatches(const struct job_plan *p, const struct go *go, uint32_t from, struct err *err)
{
    const size_t steps = go->nsteps ? go->nsteps : 1, cached = p->kv ? p->positions : p->sample;
    const bool moves = program_moves(go->program);
    const bool trains = go->program == PROGRAM_TRAIN;
    if (moves ? go->microbatches > 0
              : !go->microbatches || go->microbatches > steps * p->microbatches ||
                    (trains && go->microbatches != steps * p->microbatches))
        return refuse_go(err, from, go, "the number of microbatches", go->microbatches);
    uint64_t tokens = 0;
    for (size_t m = 0; m < go->microbatches; m++) {
        int r = admit_seqs(p, go, &go->mb[m], from, err);
        if (r)
            return r;
        tokens += go->mb[m].start[go->mb[m].n];
    }
    if (go->program == PROGRAM_DECODE && (tokens > cached || go->at > cached - tokens))
        return refuse_go(err, from, go, "its first position", go->at);
    return 0;
}

static int admit_lines(const struct job_plan *p, const struct go *go, uint32_t from, struct err *err)
{
    return go->nlines && (from || go->nlines > line_feed_room(p))
               ? err_set(
                     err, -EBADMSG,
                     "rank %u sent %zu bytes of lines, for which this job has no place; same ringd on all "
                     "nodes?",
                     from, go->nlines)
               : 0;
}

int plan_admit_go(const struct job_plan *p, const struct go *go, uint32_t from, struct err *err)
{
    int r = admit_lines(p, go, from, err);
    if (r)
        return r;
    if (go->program == GO_STOP || (go->program == GO_SERVE && p->kv_blocks))
        return 0;
    if (!has_program(p, go->program))
        return err_set(err, -EBADMSG,
                       "rank %u started a round of program %u (%s), which a job of type %s does not have; "
                       "same ringd on all nodes?",
                       from, go->program, go->program <= PROGRAM_RESTORE ? programs[go->program] : "unknown",
                       job_type_name(p->type));
    r = admit_flags(p, go, from, err);
    if (!r)
        r = admit_choice(p, go, from, err);
    if (!r)
        r = admit_steps(p, go, from, err);
    if (!r)
        r = admit_held(p, go, from, err);
    if (!r)
        r = admit_microbatches(p, go, from, err);
    return r ? r : admit_pairs(p, go, from, err);
}

/* --- what messages hold ----------------------------------------------------------------------- */

int plan_admit_labels(const struct job_plan *p, const int32_t *labels, size_t n, uint32_t mb, uint32_t from,
                      struct err *err)
{
    for (size_t t = 0; t < n; t++)
        if (labels[t] != LABEL_NONE && (labels[t] < 0 || (size_t)labels[t] >= p->vocab))
            return err_set(err, -EBADMSG,
                           "rank %u sent %d as label of token %zu of microbatch %u; the model has the tokens "
                           "0 to %zu",
                           from, labels[t], t, mb, p->vocab - 1);
    return 0;
}

int plan_admit_token(const struct job_plan *p, uint32_t token, const char *what, uint32_t from,
                     struct err *err)
{
    return token < p->vocab
               ? 0
               : err_set(err, -EBADMSG, "rank %u sent %u as %s; the model has the tokens 0 to %zu", from,
                         token, what, p->vocab - 1);
}
