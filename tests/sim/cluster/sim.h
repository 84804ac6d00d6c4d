/* SPDX-License-Identifier: MIT
 *
 * A cluster of 2 to 5 daemons in one process, on a clock that stands still while they compute: the
 * real code of members, messages, coord and worker, and in place of what touches the kernel the
 * seams of this folder, which link instead of it:
 *
 *   clock.c   net/clock.h, timer.h: one queue of events, by time; numbers drawn from the seed
 *   net.c     peer/peers.h: cables, control connections, messages and records between nodes
 *   paths.c   the rest of it: the ways to each node
 *   data.c    link.h and relay.h as far as data connections go
 *   stage.c   job/spawn.h: stage processes as small state machines
 *   copies.c  memfd_create: copies of what they train
 *   disk.c    store/store.h: the database, what of it is committed; results on the disk
 *   aside.c   aside.h: work that waits for a disk
 *   daemon.c  a daemon's life: opening, wiring, killing; the cluster, the log
 *   heads.c   who heads a job
 *   story.c   what users and faults do, drawn from the seed
 *   check.c   what must hold
 *   heap.c, json_text.c  malloc and json_dumps, faster
 *
 * One thread, one world at a time. The seed decides everything. */
#ifndef TESTS_SIM_CLUSTER_H
#define TESTS_SIM_CLUSTER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/node.h"
#include "net/link.h"
#include "net/roster.h"

enum {
    SIM_NODES = 5,
    SIM_CABLES = 8,
    SIM_JOBS = 6,
    SIM_TURNS = 32,
    SIM_MEMORY = 1 << 30,
    SIM_MS = 1000,
    SIM_S = 1000000
};

struct sim_node;

/* --- time ------------------------------------------------------------------------------------- */

/* Embedded first in what it is about. */
struct sim_event {
    uint64_t at_us, order;
    size_t place;          /* in the queue, from 1; 0: it is not there */
    struct sim_node *node; /* it happens on: waits while that stands still; NULL: in the world */
    void (*run)(struct sim_event *e);
};
void sim_at(struct sim_event *e, uint64_t in_us); /* again, if it was there already */
void sim_cancel(struct sim_event *e);
/* The next event happens; false: there is none before `until_us`. */
bool sim_step(uint64_t until_us);
void sim_queue_free(void);
uint64_t sim_random(uint64_t below); /* below 2^32 */
static inline bool sim_chance(uint64_t percent)
{
    return sim_random(100) < percent;
}
uint64_t sim_between(uint64_t least, uint64_t most);
/* From least to most, small ones as likely as large ones. */
uint64_t sim_span(uint64_t least, uint64_t most);

/* --- the network ------------------------------------------------------------------------------ */

struct sim_record { /* of a node, as its owner said it */
    unsigned refs;
    struct member member;
    json_t *json; /* owned; NULL: nobody had to read it yet */
};
struct sim_letter;
struct sim_end { /* of a control connection */
    struct sim_node *node;
    bool is_open, is_up, dials_lanes, peer_unanswered;
    uint64_t number;                 /* names the path there */
    struct sim_letter *first, *last; /* owned: under way to this end */
    struct sim_flow {
        struct sim_event event;
        struct sim_session *session;
    } flow, silence; /* the next letter arrives; nothing was heard for too long */
};
struct sim_session {
    struct sim_cable *cable;
    uint64_t delay_us;
    struct sim_end end[2];
};
struct sim_cable {
    struct sim_event retry; /* another connection is made */
    size_t at[2];           /* nodes */
    bool is_cut[2];         /* towards that end */
    bool is_out;            /* pulled: both ends know */
    struct sim_session *session;
};
bool sim_passes(const struct sim_cable *c, int to);
void sim_net_changed(void); /* cables or nodes are others: what was held up goes on */
void sim_session_lose(struct sim_cable *c, const char *why);
void sim_net_stop(struct sim_node *n, bool closes); /* its connections; closes: its kernel says so */
void sim_net_free(void);
void sim_beat_start(struct sim_node *n);
void sim_record_drop(struct sim_record *r);
/* The connection over that cable which is up at this node, and its end there; NULL. */
struct sim_session *sim_session_at(const struct sim_node *n, size_t cable, int *ret_end);
bool sim_route(const struct sim_node *from, const uint8_t to[16], size_t ret[SIM_CABLES], size_t *ret_n);

/* --- data connections ------------------------------------------------------------------------- */

struct spawn;
struct sim_conn {
    size_t number, hops, route[SIM_CABLES];
    bool is_broken;
    struct sim_conn_end {
        struct sim_event event; /* it hears that the connection broke */
        struct sim_conn *conn;
        struct sim_node *node;
        unsigned life;
        struct link *link;    /* while the daemon has it */
        struct spawn *stage;  /* then its stage */
        uint32_t rank;        /* at the other end, and */
        uint64_t path;        /* as this end calls it */
        bool is_deaf;         /* it could not hear yet that it broke */
        struct spawn *untold; /* a stage that will say so once it runs */
    } end[2];
};
bool sim_conn_passes(const struct sim_conn *c);
struct sim_conn_end *sim_conn_of_fd(int fd);
void sim_conn_break(struct sim_conn *c, const struct sim_conn_end *by, const char *why);
void sim_data_changed(void);
void sim_data_stop(struct sim_node *n); /* its daemon has ended */
void sim_data_free(void);
void sim_data_forget(void);             /* connections of jobs that have ended: nobody may have one */
struct sim_conn *sim_conn_at(size_t i); /* NULL: there are no more */

/* --- stages ----------------------------------------------------------------------------------- */

void sim_stages_pump(void);
struct spawn *sim_stage_next(const struct spawn *s); /* all processes that run; NULL: the first */
struct sim_node *sim_stage_node(const struct spawn *s);
void sim_stage_kill(struct spawn *s, bool is_starved); /* by somebody else; the kernel, for memory */
void sim_stages_stop(struct sim_node *n);
void sim_stage_lane_lost(struct sim_conn_end *e);
void sim_memory_lose(struct sim_node *n);                       /* with its daemon */
void sim_copies_made(struct spawn *s);                          /* rank 0 has made a step */
void sim_copies_over(const struct sim_node *head, uint64_t id); /* it ends, and does not go on */

/* --- disks ------------------------------------------------------------------------------------ */

struct store *sim_disk_new(struct sim_node *n);
void sim_disk_free(struct store *s);
void sim_disk_forget(struct store *s); /* all jobs, which have ended: as --history-limit has it */
void sim_disk_close(struct store *s);  /* its daemon ends */
void sim_disk_crash(struct store *s);  /* what was not committed is gone */
void sim_disk_start(struct store *s);
/* Of a job's record and lines as they are on the disk, "" and 0: none. */
const char *sim_disk_state(const struct store *s, uint64_t job);
const char *sim_disk_record(const struct store *s, uint64_t job);
uint64_t sim_disk_said(const struct store *s, uint64_t job); /* the last step that it has of a job */
const char *sim_disk_left(const struct store *s); /* a key of what it keeps of other heads' jobs; NULL */
void sim_aside_stop(struct sim_node *n);          /* its daemon has ended */

/* --- daemons ---------------------------------------------------------------------------------- */

struct sim_node {
    struct node node; /* the daemon's, as far as it has parts here */
    size_t number;
    bool is_on, is_powered;
    unsigned life;
    unsigned machine;              /* how often the machine was started */
    uint64_t boot, still_until_us; /* it stands still until then */
    uint64_t clock_us;             /* its clock beside the world's, */
    int64_t wall_us;               /* its calendar too */
    uint64_t slow_disk_us;
    uint64_t numbers;             /* of its connections */
    struct sim_event start, wake; /* its daemon starts; it stands still no more */
    struct sim_event beat;
    struct sim_record *known[SIM_NODES]; /* owned: the latest of each */
    char words[SIM_NODES][200];          /* why the last connection to each ended */
    struct store *disk;                  /* owned: stays */
    struct sim_piece *pieces;            /* owned: of work aside */
    uint64_t saved[SIM_JOBS];            /* the step of each job's result on its disk */
    unsigned memory[SIM_JOBS];           /* grows when copies of that job are rightly gone */
    size_t holds;                        /* it has copies of this job, from 1 */
};
static inline bool sim_is_still(const struct sim_node *n);
void sim_daemon_start(struct sim_node *n);
void sim_daemon_kill(struct sim_node *n, bool closes); /* closes: as when a process ends */
void sim_daemon_changed_soon(struct sim_node *n);
void sim_flood_self(struct sim_node *n);

/* --- stories ---------------------------------------------------------------------------------- */

struct sim_run {          /* of a job's stages, from copies or from the disk until one of them is lost */
    uint64_t began, made; /* steps */
    int64_t attempt;
    bool is_restored, is_settled; /* from copies; it has whole ones of its own */
    bool is_over;                 /* as its head has said: its nodes need no copies any more */
    size_t ranks;
    unsigned nodes, memory[SIM_NODES]; /* a bit for each; its `memory` then */
};
struct sim_head {
    struct sim_node *node;
    uint64_t id; /* there */
};
struct sim_job {
    struct sim_run run, next; /* the latest that has whole copies of its own; the present one */
    bool copies;              /* it has any */
    uint64_t id;              /* at its head; 0: not submitted yet */
    struct sim_node *head;
    size_t turn, stepped; /* so many have taken it over; who made the last step: 0 is `head` */
    struct sim_head taken[SIM_TURNS];
    bool generates; /* tokens, one for each step */
    uint64_t steps, save_every, wait_for;
    size_t least_nodes; /* fewer cannot hold it */
    uint64_t bytes;     /* of memory that its stages take together, beside what they map, */
    size_t model;       /* which model that is of, 1 …; 0: they map nothing that others may share */
    int on_loss;        /* enum on_loss */
    uint64_t plan_us, open_us, step_us;
    bool is_submitted, is_cancelled; /* the head has agreed to */
    bool fitted;                     /* it ran once */
    unsigned starved;                /* so often a stage of it was ended for want of memory */
    uint64_t said, saved;            /* the last step of each that the log has */
    uint64_t told; /* the last that those who follow it now have heard of: all tokens are said again */
};
struct sim {
    uint64_t seed, now_us, random, order, events;
    struct sim_event **queue;
    size_t queued, cap;
    struct opts *opts;
    bool is_traced, by_text; /* messages travel as bytes, and not as values */
    bool lives_long;         /* no daemon is ended before the world is */
    struct sim_node *here;   /* where the present event happens */
    struct roster roster;
    size_t nodes, cables, jobs;
    struct sim_node at[SIM_NODES];
    struct sim_cable cable[SIM_CABLES];
    struct sim_job job[SIM_JOBS];
    struct sim_conn **conns; /* owned, each */
    size_t nconns, cap_conns;
    struct sim_file **files; /* owned, each; NULL: nobody has it any more */
    size_t nfiles;
    struct spawn *stages;
    uint64_t heals_us; /* from then on nothing breaks any more */
    uint64_t most_events;
    unsigned faults[16];
    char wrong[600]; /* the first thing that must not be; "" */
};
extern struct sim *sim; /* the one that runs: clocks and processes have no other way to find it */

static inline bool sim_is_still(const struct sim_node *n)
{
    return n->still_until_us > sim->now_us;
}
struct sim_node *sim_node_of(const uint8_t id[16]);
void sim_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sim_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

struct sim_head sim_head_of(const struct sim_job *job); /* the latest */
/* NULL: there is none. *ret_turn: how often it was taken over until that node had it. */
struct sim_job *sim_job_at(const struct sim_node *head, uint64_t id, size_t *ret_turn);
void sim_head_takes(struct sim_node *n, const json_t *note);       /* of "taken" */
void sim_head_loses(const struct sim_node *n, const json_t *note); /* that note, in a crash: nobody knows */
/* It reads what it has of the job: so many steps were said. */
void sim_head_begins(const struct sim_node *n, uint64_t id, uint64_t said);

struct acts;
struct acts *sim_story_begin(void);
void sim_story_free(struct acts *all);
void sim_story_go_on(struct acts *all); /* other jobs and faults, after the last ones are over */

/* --- what must hold --------------------------------------------------------------------------- */

void sim_check_said(struct sim_node *n, uint64_t job, const char *kind, const char *json);
void sim_check_memory(const struct sim_node *n); /* a stage opens there */
void sim_check_step(const struct spawn *s);      /* its rank 0 has made a step */
bool sim_check_is_over(void);                    /* all jobs have ended */
void sim_check_end(void);
void sim_describe(void);

/* False: something was wrong, and sim->wrong says what. */
bool sim_run(uint64_t seed, bool is_traced);
/* One world with other jobs and faults again and again, for so many of its hours: prints what its
 * daemons hold. False: likewise, or they hold more and more. */
bool sim_run_hours(uint64_t seed, uint64_t hours);
/* Bytes that are taken; NULL where a sanitizer has its own heap. */
size_t sim_heap_taken(void) __attribute__((weak));

#endif
