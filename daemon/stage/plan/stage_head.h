/* SPDX-License-Identifier: MIT
 *
 * What rank 0 knows of a job, and how it plans one: it reads model, tokenizer and data, and decides
 * split, memory and microbatches. Driving the planned job is stage_drive.h. Stage process of rank
 * 0, main thread. */
#ifndef DAEMON_STAGE_HEAD_H
#define DAEMON_STAGE_HEAD_H

#include <stdatomic.h>

#include "daemon/stage/stage_data.h"
#include "daemon/common/job_plan.h"
#include "daemon/stage/stage_event.h"
#include "daemon/common/job_spec.h"
#include "daemon/stage/stage_sweep.h"
#include "daemon/stage/chat_inbox.h"
#include "daemon/stage/serve/ask_inbox.h"
#include "daemon/stage/so_far.h"
#include "engine/model/adapter.h"
#include "engine/text/tokenizer.h"
#include "engine/train/data.h"

struct draft_model;
struct eval_work;
struct maps;
struct num;

/* One of the adapters that a job trains on the same weights, or serves; of every other job there is
 * one, without a name. */
struct head_adapter {
    char name[SWEEP_NAME];
    json_t *json; /* owned: the job as it would be without the others, what spec points into */
    struct job_spec spec;
    struct data_order *order; /* owned, or NULL */
    struct adapter_in *in;    /* owned: values to start from, or NULL */
    uint64_t first_step;      /* done before */
};

/* What only planning works on and decides; head_plan leaves here what the daemon is to know. */
struct head_planning {
    uint64_t weights_key; /* of what the plan's ranks map (mapped.h); 0: nothing */
    json_t *nodes;        /* owned: what there is, by rank; the order may be turned while it is planned */
    bool is_mirrored;     /* it was: rank 1 is the last of those given */
    uint32_t chosen;      /* places in the ring of the nodes that take part, a bit each; 0 = all do */
    bool has_split;       /* plan.first was decided before the stages were: searched for, or given */
    bool has_shares;      /* and plan.share by a search */
    bool has_layout;      /* and all that --parallel auto looks for */
    bool wants_speed;     /* what a generation takes is foreseen, to choose a plan by it */
    bool must_not_time;   /* a job runs on this node: only what is kept of earlier timings counts */
    bool is_bare;         /* the model is a config alone: nothing of it can be timed, and nothing run */
    size_t lacks;         /* bytes of memory that are missing: no plan was made; 0: none are */
    char lacks_at[33];    /* id of the node that lacks them */
    json_t *forecast;     /* owned: what a step will take, or NULL */
    json_t *speed;        /* owned: what a generation or a scoring will, or NULL */
    size_t *
        travel_lacks; /* owned: [ranks · (layers + 2)] bytes of each unit that a rank's node lacks; NULL: none */
    struct st *heads;     /* owned: of a model with a name, while it is planned; or NULL */
    size_t travel_spared; /* so many bytes need not travel, for the split was chosen by that */
    char kernels[64];     /* what the CPUs of its nodes compute with, each once: "avx2+neon" */
    json_t *pace; /* owned: what costs and speeds the layers were shared out by, or NULL: as the user said */
};

/* A job that trains goes on later: at once on other nodes, or when its user says so. */
enum head_leave { HEAD_STAYS, HEAD_LEAVES, HEAD_SAVES_AND_LEAVES };

struct head {
    struct stage_events *events; /* borrowed: the process's */
    struct head_planning planning;
    /* Planned once, and read by those who drive the job. */
    json_t *json;          /* owned, what it was asked for; */
    struct job_spec asked; /* read from that: its sweep, if it has one, is all in adapters */
    struct job_spec spec;  /* what all adapters have in common, and the rest of the first */
    struct head_adapter adapters[JOB_MAX_ADAPTERS];
    size_t nadapters; /* ≥ 1 once it is planned */
    struct job_plan plan;
    struct config config;
    const struct family *family;
    struct tokenizer *tok;                       /* owned, or NULL */
    struct stage_data train, valid;              /* owned; of a job without, nothing */
    struct stage_data more_valid[JOB_EVAL_SETS]; /* owned: spec.eval_data, in its order */
    struct draft_model *draft; /* owned: of a job that serves, or NULL; it is opened with the stage */
    struct eval_work *eval;    /* owned: of a job that evaluates, or of --eval-questions; or NULL */
    uint64_t steps;            /* of a training job: the last one */
    uint32_t *ids;             /* owned: prompt, of a training job that of its samples, or text to score */
    size_t nids;
    uint32_t *
        held_by; /* owned: the rank that holds a copy of each unit, after held_step; NULL: no job was interrupted */
    uint64_t held_step;
    json_t *said; /* owned: what spec.said points to, if more was said than the plan was made with; NULL */
    struct so_far so_far; /* owned: of a generation that goes on, what was read and generated before */
    /* Changes while the job runs. */
    bool said_positions; /* that something is longer than the model was made for */
    atomic_int
        leave; /* enum head_leave: the job is to stop after its next step; set by the thread that listens */
    bool has_left;             /* and has */
    atomic_uint_fast64_t kept; /* the last step that all ranks were to put onto their disks and have
                                  answered, twice, and 1 more if it is there; set by that thread */
    bool is_stuck;             /* a thread of it hangs at a disk: this process is good for nothing more */
    struct ask_inbox asks;     /* requests, of a job that serves */
    struct chat_inbox inbox; /* what is said after the first answer, where the spec keeps the model loaded */
};

void head_init(struct head *h, struct stage_events *events);
void head_done(struct head *h);
/* As new, but for the tokenizer and the rows that it has read: the next plan is of the same job. */
void head_rest(struct head *h);

/* nodes: [{"id","name","kernels","speed","slowness","memory","mbps","mapped"}, …] in ring order,
 * the head's first; `mapped` is what stages of other jobs map there: [{"job","weights","units"},
 * …], with the key of mapped.h and runs of units, first one and the one after the last in turns.
 * Fills head->plan; a refusal is a sentence that says what to change. Takes a reference to
 * `spec`. */
int head_plan(struct head *h, enum job_type type, json_t *spec, const json_t *nodes, struct err *err);

/* Opens the draft model that was planned, if one was. num, maps: borrowed until head_rest or
 * head_done. A job that has served before goes on without one that cannot be opened, and says
 * so. */
int head_open_draft(struct head *h, struct num *num, struct maps *maps, struct err *err);

/* Part of it (stage_take.c): the nodes that take part, the stages and where they lie, the layers of
 * each, slots and memory. */
int head_split(struct head *h, struct err *err);
/* The same on all nodes of the plan (stage_split.c). */
int head_split_on_nodes(struct head *h, struct err *err);
/* −ENOSPC, −EINVAL: this plan cannot be, which says nothing of another one. */
bool plan_cannot_be(int code);

/* The conversation of a generation, written down by the model's chat template: h->ids. The token
 * that ends a turn ends the answer too. */
int head_read_chat(struct head *h, struct err *err);

/* What the order of the rows follows from, for the record of a state (a new object; NULL without
 * memory). A run that is resumed must follow from the same: its states are open. */
json_t *head_order_record(const struct head *h, size_t adapter);
/* What each adapter is, into the plan; opens what they begin with (stage_tunes.c). */
int head_plan_tunes(struct head *h, struct err *err);
/* In that record: what a run has decided so far, which one that resumes it goes on with. */
#define HEAD_SO_FAR "so_far"
/* And how many rows a microbatch had. */
#define HEAD_MICRO_BATCH "micro_batch_size"
/* And what the CPUs of its nodes computed with. */
#define HEAD_KERNELS "kernels"
/* Where nobody says how many rows a microbatch has, a run that is resumed goes on with as many as
 * it began with, whatever --parallel auto would choose. */
void head_keep_cut(struct head *h);
int head_check_order(const struct head *h, size_t adapter, struct err *err);

/* spec.said from now on, copied: other nodes may have had lines that the daemon did not know when
 * it asked for the plan. NULL: it is as it was. */
void head_take_said(struct head *h, const json_t *said);
/* Does the daemon have this event of a step already? A job that begins again after a loss says
 * nothing twice. */
bool head_was_said(const struct head *h, const char *kind, size_t adapter, uint64_t step);

/* Says, once in a job, that sequences of n tokens are longer than the model was made for; `what`
 * they are ("the prompt and --max-tokens together are"). */
void head_say_positions(struct head *h, size_t n, const char *what);

#endif
