/* SPDX-License-Identifier: MIT
 *
 * A schedule: which abstract task each rank does in which order within one training step. Knows
 * stages and microbatches, not bytes, links or transformers. */
#ifndef PIPE_SCHED_H
#define PIPE_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum sched_op {
    OP_F, /* forward */
    OP_I, /* backward to the input */
    OP_W, /* backward to the weights */
    OP_B, /* I then W, as one task */
    OP_R, /* the forward again, for a backward whose activations were not kept */
    OP_COUNT
};
const char *sched_op_name(enum sched_op op); /* "F", "I", "W", "B", "R" */

enum {
    SCHED_MAX_RANKS = 1024,
    SCHED_MAX_CHUNKS = 16, /* stages of one rank, of the built-in schedules */
    SCHED_MAX_CELLS =
        1 << 22, /* stages · microbatches: keeps a forecast within seconds and half a gigabyte */
};

struct sched_task {
    enum sched_op op;
    uint32_t stage, mb;
};
struct sched_list {
    struct sched_task *tasks; /* owned */
    size_t n;
    uint32_t *column; /* [n] owned: of a text, the cell of its line that each stands in, from 1; else NULL */
};
struct sched {
    size_t ranks, stages, microbatches;
    uint32_t *rank_of_stage; /* [stages], owned */
    struct sched_list *rank; /* [ranks], owned */
};
/* "1F3": stage, kind, microbatch. buf of at least 24 bytes; returned. */
char *sched_task_name(char *buf, size_t n, const struct sched_task *task);

/* Where a task of a rank stands, `at` counted from 1: "line 2, column 5" of a text, else "rank 1,
 * position 5"; at 0: the line or rank alone. brief: within the line, "column 5" or "position 5". */
struct sched_spot {
    char text[64];
};
struct sched_spot sched_spot(const struct sched *sched, size_t rank, size_t at, bool brief);

/* Where the stages lie. single: stage s on rank s. loop: on rank s mod p, so the last rank hands on
 * to the first over the closing cable. V: there and back, so that each turn stays on its rank and
 * the closing cable carries nothing. */
enum sched_placement { PLACE_SINGLE, PLACE_LOOP, PLACE_V };
uint32_t sched_place(enum sched_placement placement, size_t ranks, uint32_t stage);

/* What a built-in schedule is like, whatever its size. */
struct sched_info {
    const char *name;
    enum sched_placement placement;
    size_t min_chunks, max_chunks, chunks; /* stages per rank; the last where nothing is said */
    bool in_order; /* every stage goes back through the microbatches in ascending order */
};
const struct sched_info *sched_info(const char *name); /* NULL: unknown */
/* The names as an option shows its choices. */
#define SCHED_CHOICES "naive|gpipe|1f1b|eager-1f1b|interleaved-1f1b|looped-bfs|zb-h1|zb-h2|zbv|v-1f1b"
const char *const *sched_names(void); /* NULL-terminated */

/* Which schedule: a built-in one by name, or the one that `text` holds (sched_text.h), whose sizes
 * must be those given here. */
struct sched_request {
    const char *name;    /* not looked at where there is a text */
    size_t ranks;        /* 1 … SCHED_MAX_RANKS; of a text also 0: as it has */
    size_t chunks;       /* stages per rank; 0 = what the schedule usually has. Of a text: 0 */
    size_t microbatches; /* of a step; of a text also 0: as it has */
    const char *text;    /* borrowed, or NULL */
    /* The order is that of groups [first, end) of a step's m microbatches (plan_group.h), maybe of
     * several such steps. A built-in one goes back through each group in ascending order. 0 groups:
     * each microbatch is one of its own. */
    struct sched_groups {
        size_t m, groups, first, end;
    } groups;
};
/* "naive", "gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2",
 * "zbv", "v-1f1b": orders of docs/SCHEDULES.md. An unknown name is refused with the list of known
 * ones, a number of chunks with those the schedule takes. */
int sched_make(struct sched **ret, const struct sched_request *req, struct err *err);
void sched_free(struct sched *sched);
/* The same order with forwards done again where plan_compile puts them: an R right before every
 * backward that does not follow its own forward at once. −ENOMEM. */
int sched_again(struct sched **ret, const struct sched *plain, struct err *err);
/* The same order with stages cut finer: `of` [stages] says which stage of `coarse` each is a part
 * of, in ascending order and all of them. A task becomes one for each part, backwards from the
 * last. So replicas whose pipelines are cut at unlike layers have the same stages. −ENOMEM. */
int sched_refine(struct sched **ret, const struct sched *coarse, size_t stages, const uint32_t *of,
                 struct err *err);

/* --- on paper --------------------------------------------------------------------------------- */

/* What tasks cost, in any unit of time: of a stage, where `stage` is given, else of each. A B costs
 * i + w. An R costs r where the schedule has one, and nothing where it has none. u is what follows
 * once a step, the norm and the optimizer: no schedule has it. */
struct sched_cost {
    double f, i, w, r, u;
};
/* A message between neighbours: it holds its link for `transfer`, and is there `latency` after
 * that. */
struct sched_link {
    double transfer, latency;
};
struct sched_costs {
    struct sched_cost each;
    const struct sched_cost *stage; /* [stages], borrowed, or NULL */
    const struct sched_link *link;  /* [2·ranks], borrowed, or NULL = free: 2r is from rank r to the next,
                                       2r + 1 from rank r to the previous; of two ranks only 2r is used */
};
struct sched_sim {
    double makespan, bubble; /* bubble = 1 − work / (ranks·makespan) */
    double *span, *idle;     /* [ranks], owned by the caller through sched_sim_done */
    size_t *peak;            /* [ranks] microbatch·stages in flight: from F to the end of W */
    double *start, *end;     /* when each task begins and ends, rank after rank in the order of the lists */
};
/* Every task as early as its rank and its inputs allow; what passes between two stages of one rank
 * is there at once. Refuses a schedule that cannot run, naming rank, position, task and what each
 * rank was waiting for. Between ranks that are no neighbours a message is free: plan_compile
 * refuses such placements. */
int sched_simulate(struct sched_sim *ret, const struct sched *sched, const struct sched_costs *costs,
                   struct err *err);
void sched_sim_done(struct sched_sim *sim);

/* --- sums of gradients ------------------------------------------------------------------------ */

/* How replicas of the pipeline add up the gradients of a stage. They leave its rank in parts of
 * equal size, one after the other, each once the last backward to the weights has passed it. */
struct sched_sum {
    double seconds; /* that all of them take, when they are alone on their way */
    size_t parts;   /* 1: they leave when that backward is over; 0: there are none */
};
/* The last backward to the weights of each stage: when it begins and ends. from, until: [stages],
 * the caller's. They are raised only, so that a call for each replica, from zeros on, leaves the
 * latest. */
void sched_last_backwards(double *from, double *until, const struct sched *sched,
                          const struct sched_sim *sim);
/* When the last rank has the sums of all its stages, which go in the order of their last backwards.
 * sum: [stages]. */
double sched_sums_end(const struct sched *sched, const struct sched_sum *sum, const double *from,
                      const double *until);

#endif
