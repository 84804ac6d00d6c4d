/* SPDX-License-Identifier: MIT
 *
 * What all stage processes of a job agree on, made by the head's stage and handed round as JSON:
 * all that a node gets to know. The head's daemon reads in it who has which layers. Pure: any
 * thread. */
#ifndef DAEMON_JOB_PLAN_H
#define DAEMON_JOB_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/fields.h"
#include "daemon/common/job_type.h"
#include "daemon/common/model/model_name.h"
#include "engine/err.h"
#include "engine/layer/kv_type.h"
#include "engine/layer/preference.h"
#include "engine/model/slice.h"
#include "engine/model/tune.h"
#include "engine/num/num.h"
#include "engine/pipe/plan.h"
#include "engine/pipe/sched.h"

enum { JOB_MAX_ADAPTERS = 16, JOB_MAX_STEPS = JOB_MAX_ADAPTERS * PLAN_MAX_TURNS };
enum { JOB_SERVED_MAX = 256, JOB_DRAFT_MAX = 31 }; /* of a microbatch of rows: sequences; guesses of one */
enum { JOB_MAX_RANKS = 16, JOB_MAX_STAGES = JOB_MAX_RANKS * SCHED_MAX_CHUNKS, JOB_ORDER_MAX = 512 << 10 };

struct job_plan {
    enum job_type type;
    char model[4096]; /* directory, the same path on every node */
    char fingerprint[33];
    char
        content[MODEL_CONTENT +
                1]; /* which files the model is (PROTOCOL.md §7.5), "": it has no name, or nothing is known */
    char *
        weights; /* owned: what the head's tensors hold (engine/file/weights.h), or NULL: nothing is read, or by one node alone */
    size_t ranks, stages;
    size_t slices;   /* ranks that share the layers of each stage (engine/model/slice.h); 0 = 1 */
    size_t replicas; /* training: each has all stages on ranks of its own, in all slices; 0 = 1 */
    size_t first[JOB_MAX_STAGES + 1]; /* layers first[s] … first[s+1]−1 are stage s */
    uint32_t place[JOB_MAX_STAGES];   /* place of each stage in its pipeline: of one replica, its rank */
    /* Of replicas with unlike numbers of ranks the places in those behind the first: [nothers] =
     * (replicas − 1) · stages, replica after replica. 0: all have their stages at `place`. */
    size_t nothers;
    uint32_t others[JOB_MAX_STAGES];
    char schedule[32];   /* training: its name, "" = none */
    char *order;         /* owned: the schedule as its user wrote it, or NULL; at most JOB_ORDER_MAX bytes */
    size_t microbatches; /* of a training step */
    /* In how many groups their gradients are added up (plan_group), 0 = 1; of several replicas, how
     * many of these each has, and in how many parts each stage's gradients go between them. */
    size_t groups, share[PLAN_MAX_REPLICAS], parts[JOB_MAX_STAGES];
    bool
        divided; /* of several replicas each has the moments of a slice of what is trained, and updates that */
    size_t round_steps; /* training: most steps of a round, those of all adapters counted; else 1 */
    struct tune tune;
    /* Further adapters on the same weights: when training they share with `tune` what it is put
     * on. */
    size_t nmore;
    struct tune more[JOB_MAX_ADAPTERS - 1];
    bool training, kv;
    enum loss_kind loss; /* of training; of pairs, sequences 2i and 2i + 1 of a microbatch are one */
    bool copies; /* training: every rank keeps copies of what it trains in memory, and of its neighbour's */
    uint64_t submitted; /* when the job was, in seconds since 1970: copies on disks are of that job */
    bool by_layer;      /* as in stage_spec, and so are: */
    size_t kv_blocks;   /* as in stage_spec: of a job that serves; else 0 */
    bool rings;         /* layers with a window have rings instead of blocks */
    size_t kept_states; /* as `kept` in stage_spec, */
    size_t guesses;     /* and `guesses` */
    enum kv_type kv_type;
    size_t tokens, seqs, positions, sample, weight_bits;
    enum num_compute compute; /* what products with many rows are multiplied in */
    size_t vocab, dim;
    size_t slots[JOB_MAX_STAGES];
    /* Buffers, as in stage_spec. activations 0: one for each slot, else forwards run again;
     * bwd_w_only 0: the stage has no I and W. */
    size_t activations[JOB_MAX_STAGES], bwd_x_only[JOB_MAX_STAGES], bwd_w_only[JOB_MAX_STAGES];
    size_t bytes[JOB_MAX_RANKS]; /* predicted memory, */
    size_t draft_bytes;          /* and what of rank 0's is a draft model's; 0: there is none */
    /* Of the predicted memory what is mapped from the model's files, by unit: other jobs on the
     * node may map the same (model/mapped.h). Weights that are trained are none of it. */
    size_t nmapped; /* layers + 2; 0: nothing is mapped */
    size_t *mapped; /* owned: [nmapped] bytes */
    bool tied;      /* the head's matrix is the embedding: the rank of the head maps unit 0, too */
};

/* Where a key of a plan is to be found: as it goes round, as the API shows it and the store keeps
 * it, or both. */
enum job_plan_use { JOB_PLAN_SENT = 1, JOB_PLAN_SHOWN = 2 };

/* Every key of a plan, and of its `tune`. What is added, is added in this table, and its member in
 * the struct. */
const struct field *job_plan_fields(void);
const struct field *job_tune_fields(void);
extern const struct field_choice job_computes[];   /* num_compute's names, */
extern const struct field_choice job_kv_types[];   /* kv_type's */
extern const struct field_choice job_losses[];     /* loss_kind's, */
extern const struct field_choice job_lora_inits[]; /* and lora_init's */

json_t *job_plan_encode(const struct job_plan *plan);
/* As it is shown, without what placed_plan.c adds. */
json_t *job_plan_show(const struct job_plan *plan);
int job_plan_decode(struct job_plan *ret, const json_t *json, struct err *err);
void job_plan_done(struct job_plan *plan);

/* What an adapter trains; 0 is `tune`. */
static inline const struct tune *job_plan_tune(const struct job_plan *plan, size_t adapter)
{
    return adapter ? &plan->more[adapter - 1] : &plan->tune;
}

/* Of the arithmetic unit: in training int8 means both factors (num.h). */
static inline enum num_compute job_plan_compute(const struct job_plan *plan)
{
    return plan->training && plan->compute == NUM_INT8 ? NUM_BYTES : plan->compute;
}

/* A pipeline has all stages once: it is a slice of a replica. Those of one replica are one behind
 * the other. */
static inline size_t job_plan_replicas(const struct job_plan *plan)
{
    return plan->replicas ? plan->replicas : 1;
}
static inline size_t job_plan_slices(const struct job_plan *plan)
{
    return plan->slices ? plan->slices : 1;
}
static inline size_t job_plan_pipelines(const struct job_plan *plan)
{
    return job_plan_replicas(plan) * job_plan_slices(plan);
}
static inline struct slice job_plan_slice(const struct job_plan *plan, size_t pipeline)
{
    return (struct slice){pipeline % job_plan_slices(plan), plan->slices};
}
static inline size_t job_plan_groups(const struct job_plan *plan)
{
    return plan->groups ? plan->groups : 1;
}
/* Which ranks each pipeline has, and where stages lie in it; borrows from the plan. */
struct plan_shape job_plan_shape(const struct job_plan *plan);
/* Ranks of a pipeline; and of the first, which is as good as any but where `nothers` is set. */
size_t job_plan_places_of(const struct job_plan *plan, size_t pipeline);
static inline size_t job_plan_places(const struct job_plan *plan)
{
    return plan->nothers ? job_plan_places_of(plan, 0) : plan->ranks / job_plan_pipelines(plan);
}
size_t job_plan_pipeline_of(const struct job_plan *plan, size_t rank);
static inline size_t job_plan_replica_of(const struct job_plan *plan, size_t rank)
{
    return job_plan_pipeline_of(plan, rank) / job_plan_slices(plan);
}
/* Which rank a stage lies on in a pipeline. And does it lie on that rank, in its pipeline? */
uint32_t job_plan_rank_at(const struct job_plan *plan, size_t pipeline, size_t stage);
static inline bool job_plan_is_at(const struct job_plan *plan, size_t stage, size_t rank)
{
    return job_plan_rank_at(plan, job_plan_pipeline_of(plan, rank), stage) == rank;
}
/* A rank's place in its pipeline, and the ranks that it exchanges messages with, a bit each. */
uint32_t job_plan_place_of(const struct job_plan *plan, size_t rank);
uint32_t job_plan_talks(const struct job_plan *plan, size_t rank);
/* Groups of the replicas before that one. */
static inline size_t job_plan_first_group(const struct job_plan *plan, size_t replica)
{
    size_t n = 0;
    for (size_t d = 0; d < replica; d++)
        n += plan->share[d];
    return n;
}
/* Its microbatches of a step's m begin with this one; those of replica `replicas`, behind all. */
static inline size_t job_plan_first_microbatch(const struct job_plan *plan, size_t replica, size_t m)
{
    return replica < job_plan_replicas(plan)
               ? plan_group_first(job_plan_first_group(plan, replica), m, job_plan_groups(plan))
               : m;
}

/* The stage that trains a unit: 0 the embedding, 1 … the layers, then the head. */
size_t job_plan_stage_of_unit(const struct job_plan *plan, size_t unit);
/* Is the unit, one of nmapped, among what the rank maps? */
bool job_plan_maps(const struct job_plan *plan, size_t rank, size_t unit);
/* One stage on each rank. */
void job_plan_place_single(struct job_plan *plan);
/* Of a job that serves: sequences that are worked on at once, each of which has a state in linear
 * layers. Else 0. */
size_t job_plan_states(const struct job_plan *plan);
/* Of the groups of a step's m microbatches, those of a pipeline. */
struct sched_groups job_plan_own_groups(const struct job_plan *plan, size_t pipeline, size_t m);
/* The schedule of a pipeline's part of so many training steps of m microbatches each; borrows from
 * the plan. Where `nothers` is set, stages are to be cut finer (sched_refine). */
struct sched_request job_plan_schedule(const struct job_plan *plan, size_t pipeline, size_t m, size_t steps);
/* The schedules of a round of so many microbatches, which are those of so many steps, and what
 * plan_request wants to know of them. */
struct job_orders {
    struct sched *sched[PLAN_MAX_REPLICAS]; /* owned */
    struct plan_pipeline pipeline[PLAN_MAX_REPLICAS];
};
int job_orders_make(struct job_orders *ret, const struct job_plan *plan, size_t microbatches, size_t steps,
                    struct err *err);
/* For a round of losses alone: no schedules. */
void job_orders_share(struct job_orders *ret, const struct job_plan *plan);
/* Fills in who trains in which order, and groups and parts. Borrows from both. */
void job_orders_request(struct plan_request *ret, const struct job_orders *orders,
                        const struct job_plan *plan);
void job_orders_done(struct job_orders *orders);
/* Which stages do forwards again; ret [JOB_MAX_STAGES]. */
void job_plan_recompute(const struct job_plan *plan, bool *ret);

#endif
