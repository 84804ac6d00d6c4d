/* SPDX-License-Identifier: MIT
 *
 * A stage process of the simulation: stage.c runs it, check.c looks at it. */
#ifndef TESTS_SIM_CLUSTER_STAGE_H
#define TESTS_SIM_CLUSTER_STAGE_H

#include "daemon/common/progress.h"
#include "tests/sim/cluster/sim.h"

/* Tokens that say that the job is through, or that it leaves after its last step. */
#define STAGE_END UINT64_MAX
#define STAGE_LEAVE (UINT64_MAX - 1)

enum stage_doing {
    STAGE_NEW,
    STAGE_PLANNING,
    STAGE_PLANNED,
    STAGE_OPENING,
    STAGE_READY,
    STAGE_LEFT,       /* it has stopped after a step, and */
    STAGE_LETTING_GO, /* rests */
    STAGE_IDLE,       /* it runs, and has no token */
    STAGE_COMPUTING,
    STAGE_COMMITTING, /* it asks whether its words are on the disk */
    STAGE_SAVING,
    STAGE_ENDING,
    STAGE_GONE
};
/* Layers of any job's model, and units: of those, the embedding and the head. */
enum { STAGE_LAYERS = SIM_NODES + 1, STAGE_UNITS = STAGE_LAYERS + 2, STAGE_FILES = 4 };
enum { STAGE_MODELS = 3, STAGE_MAPPED = SIM_MEMORY / 4 }; /* models that jobs share, and bytes of one */
struct spawn {
    struct sim_event event; /* what it does is over */
    struct sim_event pass;  /* its token reaches the next one */
    struct spawn *next;
    struct sim_node *node;
    const struct spawn_ops *ops;
    void *owner;
    enum stage_doing doing;
    bool is_killed, is_starved, generates, has_prompt, leaves;
    size_t job, rank, ranks;
    uint64_t job_id, submitted; /* as its worker has it */
    int64_t attempt;
    uint8_t head[16];
    uint64_t in, out;           /* the token that it has, that it has done with; 0: none */
    uint64_t step, steps, said; /* rank 0 */
    uint64_t passed;            /* of its steps, as rank 1 has heard them; 0 also before it has heard */
    bool passes;                /* it has */
    struct progress progress;
    bool leaves_saving;                  /* it is to be on the disk, though there are copies */
    struct sim_file *files[STAGE_FILES]; /* references; the last is its own */
    size_t nfiles, given;
    json_t *nodes; /* owned: while it plans, what it was told of them */
};

void stage_say(struct spawn *s, const char *kind, json_t *event);
size_t stage_first_layer(size_t rank, size_t ranks);
json_t *stage_step(const struct spawn *s, uint64_t step); /* its event: a new object */
/* Of the attempt of that stage; NULL: that rank has no process. */
/* The plan of the job that it works on; mapped [STAGE_UNITS] lives as long. Jobs that share a model
 * have the same path in it. */
struct job_plan stage_plan(const struct spawn *s, size_t *mapped);
/* Why there is no plan, as the real one says it: a new object; NULL: there is one. */
json_t *stage_lack(const struct spawn *s, const struct job_plan *plan);
size_t stage_planned_job(const json_t *plan); /* its number in the simulation */

struct spawn *stage_of_rank(const struct spawn *s, size_t rank);

/* --- copies of what is trained (copies.c) --- */

void copies_take_file(struct spawn *s, int fd);
void copies_leave(struct spawn *s);
json_t *copies_report(const struct spawn *s);
/* As hold_give and hold_take do. False: the copy has not come. */
void copies_give(struct spawn *s, uint64_t step);
bool copies_take(struct spawn *s, uint64_t step);
/* With a token rank 1 hears what was said up to that step (daemon/stage/hold/line_feed.h). s: of
 * rank 0. */
void copies_pass_lines(struct spawn *s, struct spawn *next, uint64_t step);
/* The step that rank 0 goes on from: `restore` is NULL, or the head's choice. */
void copies_begin(struct spawn *s, const json_t *restore);

#endif
