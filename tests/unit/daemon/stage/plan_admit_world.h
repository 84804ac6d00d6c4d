/* SPDX-License-Identifier: MIT
 *
 * A whole stage process, opened without its main as one rank of two, and an exchange of the test as
 * its neighbour: for test_plan_admit.c and test_round_admit.c. Included after cmocka.h. */
#ifndef TESTS_PLAN_ADMIT_WORLD_H
#define TESTS_PLAN_ADMIT_WORLD_H

int stage_main(int argc, char **argv);
#define main stage_main
#include "daemon/stage/main.c" /* how a plan is opened is not for others */
#undef main

#include <sys/mman.h>

#include "tests/lib/golden.h"

enum { TOKENS = 8, SEQS = 2, MICROBATCHES = 4, PATIENCE_S = 60 };

static const char *const model = "llama_tied_bf16";

static struct world {
    struct golden golden;
    struct process p; /* the victim: opened as one rank of two */
    struct progress progress[2];
    struct exchange *other; /* owned: its neighbour's */
    int events;             /* owned: the daemon's end of the stage's socket */
    int stage_end;
    char why[512];
} world;

/* --- plans ------------------------------------------------------------------------------------ */

/* Two ranks, gpipe: every microbatch is in flight at once. */
static inline struct job_plan plan_of(enum job_type type)
{
    const struct config *c = &world.golden.config;
    struct job_plan p = {.type = type,
                         .ranks = 2,
                         .stages = 2,
                         .place = {0, 1},
                         .first = {0, 1, c->layers},
                         .weights = (char *)"-,-,-,-,-;", /* nothing to be compared with */
                         .schedule = "gpipe",
                         .microbatches = MICROBATCHES,
                         .round_steps = 1,
                         .training = type == JOB_TRAIN,
                         .kv = type == JOB_GENERATE || type == JOB_SERVE || type == JOB_EVAL,
                         .kv_blocks = type == JOB_SERVE || type == JOB_EVAL ? 8 : 0,
                         .tokens = TOKENS,
                         .seqs = SEQS,
                         .positions = TOKENS,
                         .vocab = c->vocab,
                         .dim = c->dim,
                         .slots = {1, 1},
                         .tune = {.end_layer = c->layers}};
    snprintf(p.model, sizeof p.model, "%s", world.golden.model_dir.text);
    struct err err = {""};
    assert_int_equal(config_fingerprint(p.fingerprint, p.model, &err), 0);
    if (type != JOB_TRAIN)
        return p;
    for (size_t s = 0; s < p.stages; s++)
        p.slots[s] = p.bwd_x_only[s] = MICROBATCHES;
    p.sample = TOKENS;
    p.copies = true;
    p.tune = (struct tune){.kind = TUNE_LORA,
                           .rank = 2,
                           .alpha = 4,
                           .ntargets = 1,
                           .targets = {"q_proj"},
                           .end_layer = c->layers};
    return p;
}

static inline int start(void **state)
{
    struct world *w = &world;
    *w = (struct world){.events = -1, .stage_end = -1};
    alarm(PATIENCE_S); /* a stage that is not refused may wait for more */
    golden_open(&w->golden, model);
    *state = w;
    return 0;
}

static inline int stop(void **state)
{
    struct world *w = *state;
    exchange_free(w->other);
    w->p.progress = NULL; /* this one is not mapped */
    process_done(&w->p);
    alarm(0);
    close(w->events);
    close(w->stage_end);
    golden_close(&w->golden);
    return 0;
}

/* 0, or what do_open says; its sentence is in w->why. */
static inline int open_as(struct world *w, const struct job_plan *plan, json_int_t rank)
{
    int fd[2];
    struct err err = {""};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    w->events = fd[0];
    w->stage_end = fd[1];
    w->p.progress = &w->progress[0];
    stage_events_init(&w->p.events, w->stage_end);
    w->p.attempt = (struct attempt){.events = &w->p.events, .progress = w->p.progress};
    head_init(&w->p.head, &w->p.events);
    w->p.attempt.is_head = rank == 0;
    w->p.attempt.held[0] = memfd_create("copies", MFD_CLOEXEC);
    w->p.attempt.nheld = 1;
    assert_true(w->p.attempt.held[0] >= 0);
    json_t *msg = json_pack("{s:o s:I s:i}", "plan", job_plan_encode(plan), "rank", rank, "threads", 1);
    int r = do_open(&w->p, msg, &err);
    json_decref(msg);
    snprintf(w->why, sizeof w->why, "%s", err.text);
    return r;
}

static inline void join(struct world *w, uint32_t rank)
{
    int fd[2];
    const uint8_t keys[2][32] = {{1}, {2}};
    struct seal there, back;
    struct err err = {""};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(exchange_new(&w->other, &w->progress[1], &err), 0);
    for (int i = 0; i < 2; i++) {
        seal_init(&there, keys[i], SEAL_CHACHA20_POLY1305);
        seal_init(&back, keys[!i], SEAL_CHACHA20_POLY1305);
        assert_int_equal(exchange_add(i ? w->other : w->p.attempt.exchange, i ? rank : 1 - rank, 1, fd[i],
                                      &there, &back, &err),
                         0);
    }
}

static inline void opens_as(struct world *w, const struct job_plan *plan, json_int_t rank)
{
    if (open_as(w, plan, rank))
        fail_msg("%s", w->why);
    join(w, (uint32_t)rank);
}

static inline void assert_says(const struct world *w, const char *words)
{
    if (!strstr(w->why, words))
        fail_msg("\"%s\" is not in \"%s\"", words, w->why);
}

/* --- an enemy at rank 0 ----------------------------------------------------------------------- */

static inline void send_bytes(struct world *w, struct msg_key key, const void *bytes, size_t n)
{
    void *buffer = exchange_buffer(w->other, n);
    assert_non_null(buffer);
    memcpy(buffer, bytes, n);
    assert_int_equal(
        exchange_send(w->other, key.kind == MSG_TOKEN || key.kind == MSG_LOSS ? 0 : 1, &key, buffer, n), 0);
}

static inline void send_go_of(struct world *w, struct go *go)
{
    uint8_t bytes[4096];
    go->round = 1;
    assert_true(go_max_size(go->microbatches, SEQS, go->nsteps, go->nheld, go->choice.nadjust, go->nlines) <=
                sizeof bytes);
    send_bytes(w, (struct msg_key){1, MSG_GO, 1, 0}, bytes, go_encode(bytes, go));
}

/* A whole microbatch for the last stage. */
static inline void send_microbatch(struct world *w, uint32_t mb, const int32_t labels[TOKENS])
{
    const float x[TOKENS * 64] = {0.5f};
    assert_true(world.golden.config.dim <= 64);
    send_bytes(w, (struct msg_key){1, MSG_ACT, 1, mb}, x, TOKENS * world.golden.config.dim * sizeof *x);
    if (labels)
        send_bytes(w, (struct msg_key){1, MSG_TARGET, 1, mb}, labels, TOKENS * sizeof *labels);
}

/* What becomes of the victim. */
static inline int follow(struct world *w)
{
    json_t *none = NULL;
    struct err err = {""};
    int r = drive_job(&w->p, &none, &err);
    snprintf(w->why, sizeof w->why, "%s", err.text);
    return r;
}

static const uint32_t one_row[] = {0, TOKENS};
static struct seqs rows[MICROBATCHES + 1] = {
    {1, (uint32_t *)one_row}, {1, (uint32_t *)one_row}, {1, (uint32_t *)one_row}, {1, (uint32_t *)one_row}};
static struct go_step step = {.step = 1, .dscale = 1};

static inline struct go go_of(enum program program)
{
    const bool moves = program_moves(program);
    static uint32_t held_by[64];
    return (struct go){.program = program,
                       .nsteps = program == PROGRAM_TRAIN,
                       .steps = &step,
                       .microbatches = moves                       ? 0
                                       : program == PROGRAM_DECODE ? 1
                                                                   : MICROBATCHES,
                       .mb = rows,
                       .state = program == PROGRAM_RESTORE,
                       .nheld = program == PROGRAM_RESTORE ? world.golden.config.layers + 2 : 0,
                       .held_by = held_by};
}

/* The round is refused for that reason. */
static inline void refuses_of(struct world *w, const struct job_plan *plan, struct go go, const char *words)
{
    opens_as(w, plan, 1);
    send_go_of(w, &go);
    for (uint32_t mb = 0; mb < go.microbatches; mb++)
        send_microbatch(w, mb, (int32_t[TOKENS]){0});
    assert_int_equal(follow(w), -EBADMSG);
    assert_says(w, "rank 0");
    assert_says(w, words);
    stop((void *[]){w});
    start((void *[]){NULL});
}

static inline void refuses(struct world *w, enum job_type type, struct go go, const char *words)
{
    const struct job_plan plan = plan_of(type);
    refuses_of(w, &plan, go, words);
}

#endif
