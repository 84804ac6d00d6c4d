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
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/job_state.h"
#include "net/clock.h"
#include "net/ring.h"

struct timeline;
struct timelines;

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
    json_t *spec, *plan, *result;    /* owned; plan and result NULL until there is one */
    size_t spec_bytes;               /* what the spec takes, as coord counts it */
    char error[768];                 /* why it failed, or why it still waits */
    int64_t created, started, ended; /* seconds since 1970, 0 = not yet */
    bool is_wanted;                  /* a head elsewhere waits for this job's nodes */
    bool is_idle; /* it has answered, and waits for what is said next: `result` is the answer */
    uint64_t step, steps;
    uint64_t tokens; /* generated, or trained, so far */
    double loss;
    bool has_loss;
    struct instant progressed; /* of its last step or token, or since it runs */
    double longest_step;       /* seconds between two of them */
    struct job_start start;
    /* while it runs */
    size_t ranks;
    uint8_t nodes[RING_MAX_NODES][16];
    char names[RING_MAX_NODES][64];
    uint64_t available[RING_MAX_NODES]; /* bytes each node had for its stage when it was planned */
    bool ready[RING_MAX_NODES], connected[RING_MAX_NODES], stopped[RING_MAX_NODES], opened;
    struct job_memory {
        uint64_t rss, anon,
            peak; /* bytes resident, of them no file's, and most there ever were; 0 = not told */
    } memory[RING_MAX_NODES];
    char *through[RING_MAX_NODES]; /* owned: the nodes that relay from this rank to the next; NULL: none do */
    struct timeline *timeline;     /* owned: its last step; NULL until it is planned, or does not train */
    struct timelines *timelines;   /* owned: of every step, for who asked for them; NULL: nobody did */
    enum job_state outcome;        /* what STOPPING leads to */
};

/* Takes the reference. `asked` borrows from spec; NULL: nobody looks at it. */
struct job *job_new(uint64_t id, enum job_type type, const struct job_spec *asked, json_t *spec);
void job_free(struct job *job);
/* Its ranks are the nodes of that ring; what the stage that plans is told of them. */
json_t *job_take_nodes(struct job *job, const struct members_ring *ring);
/* Only those of its nodes take part whose rank has a bit in `chosen`, rank 0 among them; 0 = all.
 * Before job_mirror. */
void job_choose(struct job *job, uint32_t chosen);
/* Its plan has them the other way round: rank 1 is who was the last. */
void job_mirror(struct job *job);
/* The first rank that has not done what the job's state waits for, 0 if it waits for none; and how
 * many have not, unless NULL. */
size_t job_first_waited(const struct job *job, size_t *ret_left);
/* What it waits for, as a sentence without a full stop: "node b is opening its layers, and 2 more
 * nodes are"; "" if it waits for nothing. Of a queued job that is its error. */
void job_waits_for(const struct job *job, char *text, size_t size);
size_t job_rank_of(const struct job *job, const uint8_t id[16]); /* job->ranks: it has none */
/* Back to what it was when it was submitted, for another try. */
void job_reset(struct job *job);

/* What the stage of a rank says of its memory, a "memory" event; −EBADMSG: nonsense. */
int job_set_memory(struct job *job, size_t rank, const json_t *event);
void job_progress(struct job *job, struct instant now); /* it made a step, a token, or said something */
/* How it ended, as the end of a sentence that names it: "it is done", "it failed: …", "it was
 * cancelled". record: of job_encode. */
void job_how_it_ended(char *text, size_t size, const json_t *record);
/* Puts down that a point of job->start is reached, the first time it is. */
void job_mark(const struct job *job, double *at, struct instant now);

json_t *job_encode_short(const struct job *job);             /* a row of GET /v1/jobs, and the "job" event */
json_t *job_encode_open(const struct job *job, size_t rank); /* the message "job-open" to that rank */
size_t job_rank_of_stage(const json_t *plan, size_t stage);  /* of the plan the stages were told */
json_t *job_encode_plan(const struct job *job); /* what was planned, by rank; null if it was not */
json_t *job_encode(const struct job *job);      /* with spec, plan and result */

#endif
