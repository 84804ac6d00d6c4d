/* SPDX-License-Identifier: MIT
 *
 * One job as its head knows it: request, life, result; and its JSON forms for the API and the
 * store. No behaviour: coord and job_life drive it. */
#ifndef DAEMON_JOB_H
#define DAEMON_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_spec.h"
#include "daemon/ringd/job/deputy/origin.h"
#include "daemon/ringd/job/survive/barred.h"
#include "daemon/ringd/job/survive/interruption.h"
#include "daemon/ringd/job/survive/kept.h"
#include "daemon/ringd/job/survive/slow_nodes.h"
#include "daemon/ringd/job/job_state.h"
#include "daemon/ringd/job/plan/job_change.h"
#include "daemon/ringd/job/plan/placed_plan.h"
#include "net/clock.h"
#include "net/ring.h"

struct copies;
struct takeover;
struct loan;
struct shortage;
struct timeline;
struct timelines;
struct token_log;

/* Seconds from when a job left the queue until all was planned, opened, connected, until rank 0
 * began its first task, and until the first step or token was there; 0 = not yet. */
struct job_start {
    struct instant began;
    double planned, opened, connected, first_task, first_result;
};

struct job {
    struct job *next;
    uint64_t id;
    enum job_type type;
    enum job_state state;
    struct job_spec asked;           /* read from spec; all zero of a job that is only planned */
    json_t *spec, *result;           /* owned; result NULL until there is one */
    size_t spec_bytes;               /* what the spec takes, as coord counts it */
    struct loan *loan;               /* held until it ends: what its client opened for it; NULL: nothing */
    struct job_change *change;       /* owned: what it is to be planned again with; NULL: nothing */
    uint64_t changes;                /* how often that has changed */
    char error[768];                 /* why it failed, or why it still waits */
    struct shortage *shortage;       /* owned: what its last plan lacked; NULL: it was never planned */
    char unsaved[512];               /* why its last save is not on the disk; "": it is */
    int64_t created, started, ended; /* seconds since 1970, 0 = not yet */
    bool has_asks;                   /* it serves, and somebody waits for an answer */
    bool is_wanted;                  /* a head elsewhere waits for this job's nodes */
    bool is_idle;     /* it has answered, and waits for what is said next: `result` is the answer */
    struct job_turn { /* what was said next, until a stage has read it */
        bool is_here;
        json_t *words; /* owned; NULL: it is over */
    } turn;
    uint64_t step, steps;
    uint64_t tokens;        /* generated, or trained, so far; */
    uint64_t tokens_before; /* of a job that serves: before the stage that serves now */
    double loss;
    bool has_loss;
    struct instant began_running; /* this attempt, */
    uint64_t began_step;          /* behind that step */
    struct instant progressed;    /* of its last step or token, or since it runs */
    double longest_step;          /* seconds between two of them */
    struct job_start start;
    /* while it runs */
    struct job_nodes offered; /* while it is planned: the nodes that the plan is made of */
    struct placed_plan *plan; /* owned; NULL until there is one */
    /* By rank of the plan. */
    bool ready[RING_MAX_NODES], connected[RING_MAX_NODES], stopped[RING_MAX_NODES], opened;
    struct job_memory {
        uint64_t rss, anon,
            peak; /* bytes resident, of them no file's, and most there ever were; 0 = not told */
    } memory[RING_MAX_NODES];
    struct copies *copies; /* owned: of an earlier attempt, as its ranks say; NULL: of none */
    struct kept_step kept; /* which step is on the disks of its ranks */
    json_t *restore;       /* owned: those it goes on from (copies.h); NULL: none */
    char *coming
        [RING_MAX_NODES]; /* owned: what this rank waits for before it opens its layers; NULL: nothing */
    /* owned: the nodes that relay from a rank to another; NULL: none do */
    char *through[RING_MAX_NODES][RING_MAX_NODES];
    struct timeline *timeline;   /* owned: its last step, as planned; NULL: no plan, or no training */
    struct timelines *timelines; /* owned: of every step, for who asked for them; NULL: nobody did */
    enum job_state outcome;      /* what STOPPING leads to */
    bool has_left;               /* it has stopped after a step: its stages end by themselves */
    enum job_state leaves_for;   /* what follows once it has stopped after a step; 0: it was not asked to */
    struct instant uneven_since; /* other layers on its nodes would pay since then; {0}: they would not */
    struct slow_nodes slow;      /* as learned in this attempt and earlier ones */
    struct barred barred;
    struct interruption interruption; /* the latest; its count is 0: there was none */
    uint32_t attempt;                 /* how often it was begun before */
    uint64_t offered_step;            /* whose adapter went to --serve-as last */
    uint64_t saved_step;              /* what --adapter-out holds of this job; 0: nothing */
    uint64_t
        best_step; /* the folders "best" there are those of an old head's save of that step; 0: none are */
    struct token_log *token_log; /* owned: to go on with; NULL: it generates nothing, or ends with a loss */
    uint64_t log_from; /* bytes of --log, at that save or before this job: so much is not looked at again */
    uint64_t log_step; /* until which step they have all lines of this job */
    uint64_t log_lost; /* step of --log until which lines may be missing that no save covers */
    bool is_log_lost;  /* a machine took such lines with it: so it did of what others know beyond */
    bool is_spared;    /* memory ran out once: from then on every layer is recomputed */
    json_t *lent; /* owned: files of an earlier life's loan that are closed now (loan_about); NULL: none */
    bool wants_files; /* the daemon cannot open them by itself: its client hands them in, or it waits */
    bool is_restored; /* it was submitted in one */
    struct job_nodes deputies; /* that may have a dossier of it (deputy/dossier_send.h) */
    struct job_nodes ran;      /* those of the last attempt that all of its ranks have written down */
    bool is_asked_for;         /* the daemon was started again: they are all asked before it goes on */
    bool is_without_deputies;  /* its user says that it goes on without asking */
    struct origin origin;      /* this node took it over; job 0: it was submitted here */
    struct job_former {        /* from whom */
        struct job_head {
            uint8_t id[16];
            char name[64];
            uint64_t job; /* its number there; 0: nobody */
        } from;
        uint32_t attempt;
    } taken;
    struct job_head moved; /* JOB_MOVED: who took it over, and its number there */
    json_t *said; /* owned: {kind: {adapter: step}}, how far its events have come; NULL: there were none */
};

/* Takes the reference. `asked` borrows from spec; NULL: nobody looks at it. */
struct job *job_new(uint64_t id, enum job_type type, const struct job_spec *asked, json_t *spec);
void job_free(struct job *job);
/* Takes over a plan, instead of the one it has: nothing is known yet of how its ranks do. */
void job_set_plan(struct job *job, struct placed_plan *plan);
/* Its ranks: those of its plan or, while there is none, the nodes that it may get. */
static inline const struct job_nodes *job_nodes(const struct job *job)
{
    return job->plan ? &job->plan->nodes : &job->offered;
}
/* The folders "best" where its result goes are those of that save, or of a later one; 0: there are
 * none. */
uint64_t job_best_step(const struct job *job);
/* Has that rank done what the job's state waits for? Also if it waits for nothing. */
/* Was it planned before, here or by another head? */
bool job_is_again(const struct job *job);
bool job_has_answered(const struct job *job, size_t rank);
/* The first rank that has not done what the job's state waits for, 0 if it waits for none; and how
 * many have not, unless NULL. */
size_t job_first_waited(const struct job *job, size_t *ret_left);
/* What it waits for, as a sentence without a full stop: "node b is opening its layers, and 2 more
 * nodes are"; "" if it waits for nothing. Of a job that is queued or interrupted that is its
 * error. */
void job_waits_for(const struct job *job, char *text, size_t size);
/* It has said events of that kind up to that step; adapter: "" where there is one. */
void job_said(struct job *job, const char *kind, const char *adapter, uint64_t step);
/* Has it? */
bool job_has_said(const struct job *job, const char *kind, const char *adapter, uint64_t step);
/* The last step that all of its adapters have said, or have said to leave out. It has a plan. */
uint64_t job_said_by_all(const struct job *job);
/* The event "logged", which may be NULL: so much of --log is on the disk. */
void job_logged(struct job *job, const json_t *event);
/* job->restore: the newest copies that its ranks have, but none of a step that one of its adapters
 * has not said, whose line in --log went with the machine, or that has a best adapter which is not
 * on the disk. It has a plan. */
void job_choose_copies(struct job *job);
/* Back to what it was when it left the queue, for another try: what it has trained, saved and said
 * counts on. */
void job_reset(struct job *job);

/* It has its change from now on: there is one. Its spec is counted as coord counts it. */
void job_take_change(struct job *job);
void job_drop_change(struct job *job); /* if there is one: it never will */

/* What is said next to a conversation that waits for it; NULL ends it. Takes the reference. */
void job_hold_turn(struct job *job, json_t *words);
void job_drop_turn(struct job *job); /* a stage has read it */

/* What the stage of a rank says of its memory, a "memory" event; −EBADMSG: nonsense. */
int job_set_memory(struct job *job, size_t rank, const json_t *event);
void job_progress(struct job *job, struct instant now); /* it made a step, a token, or said something */
/* How it ended, as the end of a sentence that names it: "it is done", "it failed: …", "it was
 * cancelled". record: of job_encode. */
void job_how_it_ended(char *text, size_t size, const json_t *record);
/* From whom this node took it over: for one that has job->taken. */
struct takeover job_takeover(const struct job *job);
/* Puts down that a point of job->start is reached, the first time it is. */
void job_mark(const struct job *job, double *at, struct instant now);

json_t *job_encode_short(const struct job *job);             /* a row of GET /v1/jobs, and the "job" event */
json_t *job_encode_open(const struct job *job, size_t rank); /* the message "job-open" to that rank */
json_t *job_encode(const struct job *job);                   /* with spec, plan and result */

#endif
