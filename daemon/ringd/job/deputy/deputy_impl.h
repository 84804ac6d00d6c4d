/* SPDX-License-Identifier: MIT
 *
 * The deputy's inside, shared by deputy.c (dossiers that are kept), deputy_claim.c (whether a job
 * may be taken over) and deputy_taken.c (jobs that were). */
#ifndef DAEMON_DEPUTY_IMPL_H
#define DAEMON_DEPUTY_IMPL_H

#include "daemon/ringd/job/deputy/ballots.h"
#include "daemon/ringd/job/deputy/deputy.h"
#include "daemon/ringd/job/plan/placed_plan.h"
#include "net/clock.h"

struct claim;
struct part_fetch;

/* The folders "best" of a job with --early-stop, as of the save of a step. */
struct best_files {
    uint64_t step, number; /* the number is its head's for these files, and that of their folder here */
    json_t *files;         /* owned: as file_set_list has them, below --adapter-out; NULL: none */
};

struct dossier {
    struct deputy *deputy; /* borrowed: owner */
    struct dossier *next;
    uint64_t id; /* in the store, and of its folder */
    uint8_t head[16];
    char name[64]; /* of the head */
    uint64_t job;  /* its number there */
    /* What its record and life say; nodes.n 0: these have not come yet. */
    struct origin of;
    uint32_t attempt;
    struct job_nodes nodes;
    bool may_shrink;   /* it goes on without nodes that are lost */
    uint64_t wait_for; /* seconds until then */
    json_int_t number; /* of the latest news */
    json_t *inputs;    /* owned: their list */
    bool has_inputs;   /* they are here */
    char why_none[300];
    struct part_fetch *fetch; /* NULL: nothing is fetched */
    /* What is here; what is on its way; what the head has, where that is newer than both. */
    struct best_files best, fetched, coming;
    struct part_fetch *best_fetch; /* NULL: nothing is fetched */
    struct instant best_retry;     /* not before; 0: at once */
    int64_t seen;                  /* seconds since 1970: its head, when this was last looked at */
    bool was_reachable;
    struct instant lost, retry; /* since when it is out of reach; no claim before; 0: at once */
    struct instant heard;       /* the head of it, or it was asked whether it is still to be kept */
    struct claim *claim;        /* owned; NULL: none is under way */
};

/* A job of another head that is this node's now, until that head has its result. */
struct taken_job {
    struct taken_job *next;
    uint8_t head[16];
    char name[64];          /* of that head */
    uint64_t job, as;       /* its numbers there and here */
    uint64_t id;            /* of the folder of its inputs */
    json_t *inputs;         /* owned */
    struct best_files best; /* here as long as these; of use until the coord has the job */
    bool is_told;           /* the head, since it is in reach */
    struct file_set *files; /* of its result; NULL: not opened yet */
    bool is_opening;
};

struct deputy {
    struct deputy_setup setup;
    struct dossier *dossiers; /* owned */
    struct taken_job *taken;  /* owned */
    uint64_t next_id;
    json_int_t rounds;
    struct timer *timer; /* owned: something is due */
    bool is_stopped;
};

const uint8_t *deputy_self(const struct deputy *d);
bool deputy_reaches(const struct deputy *d, const uint8_t id[16]);
void deputy_send(const struct deputy *d, const uint8_t to[16], json_t *message); /* takes the reference */
struct dossier *deputy_find(const struct deputy *d, const uint8_t head[16], uint64_t job);
/* Out of the list and of memory, and its note from the store; with `drops` also all that is kept of
 * it. */
void deputy_forget(struct deputy *d, struct dossier *x, bool drops);
/* As notes name a dossier: by who heads the job now, and its number there. */
struct origin deputy_at_head(const uint8_t head[16], uint64_t job);
char *deputy_folder(const struct deputy *d, uint64_t id);      /* the caller frees */
void deputy_remove_folder(const char *folder);                 /* waits for this node's disk */
void deputy_drop_folder(const struct deputy *d, char *folder); /* some time later; takes it over */
void deputy_put_note(const struct deputy *d, const struct dossier *x);

void deputy_arm(struct deputy *d); /* its timer, for what is due next */

/* deputy_best.c */
/* Of news: −EBADMSG with a sentence. */
int best_take(struct dossier *x, const json_t *news, struct err *err);
/* What is coming, if its head is in reach. */
void best_fetch(struct deputy *d, struct dossier *x);
bool best_waits(const struct dossier *x); /* for best_retry */
void best_stop(struct dossier *x);        /* nothing is fetched any more */
void best_done(struct dossier *x);        /* its memory */
/* For notes; NULL: there is none. */
json_t *best_encode(const struct best_files *b);
/* false: it is malformed. */
bool best_read(struct best_files *ret, const json_t *note);
struct best_files best_copy(const struct best_files *b);
void best_free(struct best_files *b);
/* The files here of job `id`, and the set as well. */
void best_drop(const struct deputy *d, uint64_t id, struct best_files *b);
/* At start, with all notes read: what no note names goes. Waits for this node's disk. */
void best_sweep(const struct deputy *d);
/* Puts them where the result of the job lies on this node; the step they are of, 0: there are none,
 * or they are not all there. Waits for this node's disk. */
uint64_t best_bring(const struct deputy *d, uint64_t id, const struct best_files *b, const char *adapter_out);

/* deputy_claim.c */
bool claim_may_begin(const struct dossier *x); /* by itself, once its time has come */
void claim_begin(struct deputy *d, struct dossier *x, bool by_hand, bool must_ask,
                 void (*done)(void *arg, uint64_t as, const char *why), void *arg);
void claim_end(struct deputy *d, struct dossier *x, const char *why); /* unsuccessful */
/* The head is back: what was promised, perhaps in an earlier life of this daemon, is void. */
void claim_void(struct deputy *d, struct dossier *x);
/* This node itself, and the others that promised the job, or may have. */
void claim_release(struct deputy *d, const struct origin *of, const struct job_nodes *nodes);
void claim_free(struct claim *claim);

/* deputy_taken.c */
/* It was promised. `done` as of deputy_adopt, or NULL. */
void taken_begin(struct deputy *d, struct dossier *x, void (*done)(void *arg, uint64_t as, const char *why),
                 void *arg);
void taken_read_notes(struct deputy *d);
void taken_changed(struct deputy *d);
struct taken_job *taken_find(const struct deputy *d, const uint8_t head[16], uint64_t job);
void taken_tell(struct deputy *d, struct taken_job *t); /* its old head */
void taken_free_all(struct deputy *d);

#endif
