/* SPDX-License-Identifier: MIT
 *
 * The plan: every rank's tasks with what each needs and emits, its slots, and so, before anything
 * starts, the memory and the messages. A plan is compiled from a program (what a round does) by the
 * same pure function on every node, so nodes agree without talking. Users write no SEND or RECV:
 * they are inferred.
 *
 * A job is a sequence of rounds; each round runs one program with its own plan. Message keys carry
 * the round.
 */
#ifndef PIPE_PLAN_H
#define PIPE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "pipe/plan_group.h"
#include "pipe/sched.h"

enum program {
    PROGRAM_TRAIN,   /* a step, or several of several adapters: the schedule's tasks, NORM down the ring and
                        UPDATE up it at the end of each */
    PROGRAM_FORWARD, /* losses only (evaluation, scoring): F for every microbatch, no slot kept */
    PROGRAM_DECODE,  /* generation: one F per microbatch (= one chunk of positions), the last one yields a
                        token */
    PROGRAM_SAVE, /* trained parameters, piece by piece, to rank 0; its stages, and LOAD's, are the ranks */
    PROGRAM_LOAD, /* the same from rank 0 */
    PROGRAM_RESTORE, /* the same, each unit from a rank that holds a copy to the one that trains it, the shorter
                        way round the ring */
};
/* SAVE, LOAD, RESTORE: pieces of parameters move from rank to rank. */
static inline bool program_moves(enum program program)
{
    return program == PROGRAM_SAVE || program == PROGRAM_LOAD || program == PROGRAM_RESTORE;
}

enum task_kind {
    TASK_F,
    TASK_I,
    TASK_W,
    TASK_B,    /* as in the schedule */
    TASK_NORM, /* of step `mb` of the plan: add my squared gradient norm to what came from stage+1 and pass it on to stage−1: summed
                    from the   last layer to the first whatever the split, so its bits do not depend on it */
    TASK_UPDATE, /* likewise: optimizer step, with the clip factor that stage 0 computed and each stage passes up */
    TASK_PUT,   /* SAVE, LOAD, RESTORE: pass piece `mb` on (or take it, at its destination) */
    TASK_LOSS,  /* TRAIN, FORWARD: stage 0 takes the loss of `mb` (from its own rank where the last stage is
                    there) */
    TASK_TOKEN, /* DECODE: stage 0 takes the token that the last stage sampled after microbatch `mb` */
    TASK_R,     /* TRAIN: the forward again: its activations were not kept */
    /* Of several pipelines, TRAIN: */
    TASK_ROWS,    /* rank 0 gives pipeline `mb` the rows of its microbatches, whose first rank takes them;
                     of slices DECODE too */
    TASK_DONE,    /* rank 0 takes the losses of step `mb` from a replica's first rank */
    TASK_TELL,    /* rank 0 gives the clip factor of step `mb` to a pipeline's first rank */
    TASK_GIVE,    /* gives part `mb` of a stage's gradients to another replica, */
    TASK_TAKE,    /* takes it; mb counts all parts of all steps */
    TASK_SQUARES, /* takes a replica's part of the norm of step `mb`: where the update is divided, in the first
                     replica */
    TASK_TIED,    /* likewise: the embedding of step `mb` is whole again, and goes to the head's copy */
    TASK_COUNT
};
const char *task_kind_name(enum task_kind kind);
/* F, I, W, B, R: a microbatch in a slot. */
static inline bool task_is_compute(enum task_kind kind)
{
    return kind <= TASK_B || kind == TASK_R;
}

enum msg_kind {
    MSG_ACT,         /* activations, stage−1 → stage: [T, dim] */
    MSG_GRAD,        /* gradient, stage+1 → stage: [T, dim] */
    MSG_TARGET,      /* labels, stage 0 → last, over the closing cable */
    MSG_LOSS,        /* summed loss (and log-probabilities if asked), last → stage 0 */
    MSG_TOKEN,       /* sampled token, last → stage 0 */
    MSG_NORM,        /* partial squared norm, stage+1 → stage */
    MSG_SCALE,       /* clip factor, stage−1 → stage */
    MSG_TIED_GRAD,   /* head's gradient of a tied embedding, last → stage 0, once a step */
    MSG_TIED_WEIGHT, /* the updated embedding, stage 0 → last */
    MSG_PARAM,       /* piece `mb` of the parameters, towards the rank that takes it */
    MSG_GO,   /* which program the next round runs: not in plans; passed along the ring before a round */
    MSG_HELD, /* part `mb` of what a rank has trained, for the next one to hold: not in plans */
    /* Between pipelines: */
    MSG_ROWS,    /* ids and labels of a pipeline's microbatches, rank 0 → its first rank */
    MSG_LOSSES,  /* their losses, of a step, back */
    MSG_PART,    /* part `mb` of the gradients of a replica's groups, to the one that adds it up */
    MSG_SUM,     /* the same of all replicas, back */
    MSG_SQUARES, /* sums of squares of a replica's slice, to the same stage of the first one */
    MSG_VALUES,  /* part `mb` of what a replica has updated, to another one */
    MSG_SLICE,   /* what a rank gives of an output that several share: not in plans */
    MSG_COUNT
};
const char *msg_kind_name(enum msg_kind kind);

/* Names a message of a round: unique within it. `stage` is the destination stage. */
struct msg_key {
    uint32_t round; /* filled in when the plan runs; 0 in a plan */
    uint16_t kind, stage;
    uint32_t mb;
};

enum {
    TASK_MAX_NEEDS = 3,
    TASK_MAX_EMITS = 3,
    SLOT_NONE = UINT32_MAX,
    PLAN_MAX_REPLICAS = 8,    /* of the pipeline, each slice counted */
    PLAN_MAX_CELLS = 1 << 18, /* stages · microbatches: keeps its dry run below a second or two */
    PLAN_MAX_PARTS = 1 << 15  /* of gradients, of all stages and steps: for the same reason */
};

/* Which ranks make up each pipeline, one after the other, and where stages lie in it. They may lie
 * otherwise in each: so may replicas have unlike numbers of ranks. */
struct plan_shape {
    size_t pipelines;
    size_t first[PLAN_MAX_REPLICAS + 1];      /* rank of each; behind the last the number of ranks */
    const uint32_t *place[PLAN_MAX_REPLICAS]; /* [stages] of each stage, borrowed; NULL: stage s at s */
};

struct task_emit {
    struct msg_key key;
    uint32_t to; /* rank */
};
struct task_need {
    struct msg_key key;
    uint32_t from; /* rank */
};
struct task {
    enum task_kind kind;
    uint32_t stage, mb;
    /* Numbers of the stage's slot and buffers that this task uses, or SLOT_NONE. */
    uint32_t slot;
    uint32_t activations;     /* what the layers keep until the whole backward is done */
    uint32_t bwd_x_only;      /* what they keep until I or B */
    uint32_t bwd_w_only;      /* what I leaves for W */
    bool first_use, last_use; /* of the slot: take it here, free it after this task */
    bool from_here,
        to_here;     /* activations or gradient come from, go to another stage of this rank: no message */
    bool recomputes; /* F: its stage keeps its input alone */
    /* GIVE and TAKE of gradients: the position in its rank's list of the stage's last backward of
     * the step. Behind that it may run ahead of its turn (exec_ahead). Else SLOT_NONE. */
    uint32_t after;
    uint32_t nneeds, nemits;
    struct task_need needs[TASK_MAX_NEEDS];
    struct task_emit emits[TASK_MAX_EMITS];
};

/* What comes to a rank from another one: n messages of a round. */
struct plan_link {
    uint32_t from;
    size_t n;
};
struct plan_rank {
    struct task *tasks; /* owned */
    size_t n;
    size_t slots;         /* most slots alive at once, of all its stages together */
    size_t handed;        /* most activations and gradients on their way from one of its stages to another */
    struct plan_link *in; /* [nin] owned: its incoming links, in the order of their first message */
    size_t nin;
    size_t credits; /* fewest receive buffers per incoming link (and unsent outputs per outgoing one) with
                         which this   plan cannot deadlock whatever the timing (≥ 1; the same on every rank) */
    size_t credits_fast; /* … with which none waits for a buffer in a unit-cost run with free communication,
                            and one more, to fill while a task computes (> credits; the same on every rank) */
};
struct plan {
    enum program program;
    size_t ranks, stages, microbatches; /* those of all its steps, and of all replicas */
    size_t steps, pipelines;
    struct plan_shape shape; /* without places */
    size_t groups;           /* of a step's microbatches */
    struct plan_rank *rank;  /* [ranks], owned */
    /* [stages], owned: most slots, and most buffers of each kind, in use at once. Where nothing is
     * recomputed, there are as many activations as slots. */
    size_t *slots, *activations, *bwd_x_only, *bwd_w_only;
};

/* One of several pipelines: the order of its replica's share of a step's microbatches, and how many
 * groups they are. A replica's groups come behind those of the replicas before it. */
struct plan_pipeline {
    const struct sched *sched; /* borrowed: all of them have as many stages */
    size_t groups;
};

struct plan_request {
    enum program program;
    const struct sched *sched; /* TRAIN of one pipeline: the order; otherwise NULL */
    size_t ranks;              /* of all pipelines; TRAIN: those of the schedules, or 0 */
    /* DECODE goes through the first alone, but through all slices; SAVE comes from it, LOAD and
     * RESTORE go to all. */
    size_t npipelines; /* 0 = 1 */
    /* So many pipelines, one behind the other, are the slices of a replica (0 = 1): they share the
     * layers of their stages, all with the same order and all of its microbatches. The first one's
     * last stage yields the token. */
    size_t slices;
    /* TRAIN and FORWARD of several: [npipelines], borrowed. FORWARD has no schedules; its
     * microbatches are shared out as those of a step are. */
    const struct plan_pipeline *pipelines;
    size_t groups;       /* of a step's microbatches (0 = 1), see plan_group */
    const size_t *parts; /* TRAIN of several: [stages], borrowed: in how many parts the gradients of
                            each stage go from replica to replica; 0: it trains nothing */
    /* Each replica updates the parts that it adds up, and gives the values to the others; else all
     * get the sums, and update all. SAVE: moments of a unit are on all ranks that have its
     * stage. */
    bool divided;
    size_t stages; /* not TRAIN: of the model, 0 = one per rank. DECODE takes one per rank only */
    const uint32_t *rank_of_stage; /* not TRAIN: [stages], borrowed; NULL = stage s on rank s */
    struct plan_shape shape;       /* not TRAIN; of no pipelines = as many ranks each, all placed like that */
    size_t microbatches;           /* FORWARD, DECODE; TRAIN takes the schedule's */
    /* TRAIN: the schedule's microbatches are those of so many steps (0 = 1), as many of each, one
     * step after the other; adapter_of_step [steps], borrowed: of which adapter each is, or NULL =
     * each of another one. A step of an adapter begins, on each stage, once the one before it has
     * ended there: an order in which that cannot be is refused. */
    size_t steps;
    const uint32_t *adapter_of_step;
    bool tied; /* TRAIN: embedding and head share a trained weight and lie on different stages */
    uint32_t lowest_trained; /* TRAIN: stages below this one get no gradient and send none: their backward
                                tasks vanish; 0 = all stages train */
    const bool *
        recompute; /* TRAIN: [stages], borrowed: stages that keep their input alone, or NULL; a stage with an R in its
                                schedule always does */
    bool want_token;         /* DECODE: the last microbatch's F emits a token */
    const size_t *first;     /* moves: split of the model (stages + 1 entries); units = first[stages] + 2 */
    const size_t *pieces;    /* moves: unit u's parameters travel as pieces [pieces[u], pieces[u + 1]) */
    const uint32_t *held_by; /* RESTORE: [units], borrowed: the rank that each unit comes from */
};

/* Compiles and dry-runs. Refuses what cannot run in a sentence that names rank, position, task and
 * reason: missing, duplicate or out-of-range tasks, B before F, W before I, I without W, B beside
 * I/W, a stage on two ranks, a cyclic wait (saying what each rank waited for). */
int plan_compile(struct plan **ret, const struct plan_request *req, struct err *err);
void plan_free(struct plan *plan);

/* The two halves of that verdict, apart so that others can ask for one of them. plan_check looks at
 * every list by itself (−EINVAL); sched_simulate adds the cyclic wait (−EDEADLK). Positions in
 * sentences count from 1. */
int plan_check(const struct sched *sched, struct err *err);
/* Fills in the credits of every rank of a finished plan. −ENOMEM, or −EDEADLK naming what each rank
 * waited for. */
int plan_find_credits(struct plan *plan, struct err *err);

/* How many steps of each adapter a round takes: so many that filling and emptying the pipeline is a
 * hundredth of it; 1 of an adapter that is alone, whose steps cannot follow each other. */
enum { PLAN_MAX_TURNS = 32 };
size_t steps_per_adapter(size_t ranks, size_t adapters, size_t microbatches);
/* Of the numbers of turns that rounds have where so many are the most, the greatest that is no more
 * than `turns`: the most itself and the powers of two below, so that few plans are all there
 * are. */
size_t steps_per_adapter_below(size_t turns, size_t most);
/* And as many as go in an order, at most `most`: step says which order, its microbatches being
 * those of one step. 1 where a step of an adapter would begin before its last one has ended; more
 * than PLAN_MAX_CELLS are not tried. */
int steps_per_adapter_go(size_t *ret, const struct sched_request *step, size_t adapters, size_t most,
                         struct err *err);

/* Which of the plan's steps a microbatch belongs to. */
static inline uint32_t plan_step(const struct plan *plan, uint32_t mb)
{
    return (uint32_t)(mb / (plan->microbatches / plan->steps));
}

/* Does the order go through the groups of its step's m microbatches one after the other, forward
 * through the last stage in ascending order, back through each stage in ascending or descending
 * order? `first`: the step's number of the schedule's first microbatch; of several steps each goes
 * so. */
bool plan_keeps_groups(const struct sched *sched, size_t groups, size_t m, size_t first, size_t steps);

/* Pipelines lie on ranks that follow one another, and every other one is turned round: so the ends
 * of two that follow one another are neighbours, as both of two are. Which rank has a place in a
 * pipeline, and back; where all have as many places. */
static inline uint32_t plan_rank_at(size_t places, size_t pipeline, size_t place)
{
    return (uint32_t)(pipeline * places + (pipeline % 2 ? places - 1 - place : place));
}
static inline uint32_t plan_place_of(size_t places, size_t rank)
{
    return (uint32_t)(rank / places % 2 ? places - 1 - rank % places : rank % places);
}

/* The same of any shape. place: borrowed, of all pipelines; NULL: stage s at s. */
struct plan_shape plan_shape_equal(size_t ranks, size_t pipelines, const uint32_t *place);
static inline size_t plan_shape_places(const struct plan_shape *shape, size_t pipeline)
{
    return shape->first[pipeline + 1] - shape->first[pipeline];
}
static inline uint32_t plan_shape_rank(const struct plan_shape *shape, size_t pipeline, size_t place)
{
    return (uint32_t)(pipeline % 2 ? shape->first[pipeline + 1] - 1 - place : shape->first[pipeline] + place);
}
size_t plan_shape_pipeline(const struct plan_shape *shape, size_t rank);
uint32_t plan_shape_place(const struct plan_shape *shape, size_t rank);
/* The rank that has a stage in a pipeline. */
static inline uint32_t plan_shape_stage(const struct plan_shape *shape, size_t pipeline, size_t stage)
{
    return plan_shape_rank(shape, pipeline, shape->place[pipeline] ? shape->place[pipeline][stage] : stage);
}

/* Do two of a job's ranks exchange messages? Neighbours in the ring do, those in the ring of a
 * pipeline, and those that have the same stage in several. */
bool plan_ranks_talk(const struct plan_shape *shape, size_t stages, size_t a, size_t b);

/* How many messages of a round come to the rank from that one. */
size_t plan_in_from(const struct plan_rank *rank, uint32_t from);

/* The rank's neighbours in the ring. */
static inline uint32_t plan_prev(size_t ranks, uint32_t rank)
{
    return (uint32_t)((rank + ranks - 1) % ranks);
}
static inline uint32_t plan_next(size_t ranks, uint32_t rank)
{
    return (uint32_t)((rank + 1) % ranks);
}

/* "1F3": stage, kind, microbatch; "0 norm" where there is no microbatch. buf of at least 24 bytes;
 * returned.
 */
char *task_name(char *buf, size_t n, const struct task *task);

#endif
