/* SPDX-License-Identifier: MIT
 *
 * Owns the plans of the last rounds and what the tasks work on. */
#include "daemon/stage/stage_runner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/hold/line_feed.h"
#include "daemon/stage/plan_admit.h"
#include "daemon/stage/task/replica_task.h"
#include "daemon/stage/round_plan.h"
#include "daemon/stage/task/stage_task.h"
#include "engine/pipe/exec.h"
#include "net/clock.h"

enum { FLUSH_S = 10 };

enum { RUNNER_PLANS = 8 };

struct runner_plan {
    struct plan *plan; /* owned */
    uint32_t program;
    size_t microbatches;
    bool want_token;
    bool state;       /* moves: of whose pieces it is, */
    uint32_t adapter; /* and with what */
    size_t steps;
    uint32_t *adapter_of_step; /* [steps] owned */
};

/* Of all rounds that train: how fast this rank is, whatever it waits for. */
struct runner_made {
    uint64_t microbatches, computed_us, us;
};

struct runner {
    struct rank_state state;   /* what its tasks work on */
    struct progress *progress; /* borrowed */
    uint32_t round;
    struct exec exec;
    struct runner_plan plans[RUNNER_PLANS];
    size_t next_plan;
    struct trace trace; /* owned: the present round, task by task */
    struct runner_made made;
    struct line_feed feed; /* owned: of rank 0 */
    void (*traced)(void *owner, json_t *event);
    void (*heard)(void *owner, const char *lines, size_t n);
    void (*rounded)(void *owner);
    void (*begun)(void *owner); /* NULL once it was called */
    void *owner;                /* borrowed */
    bool has_left;              /* the job goes on later */
    /* What runs ahead while a task computes: */
    const struct task *under_way; /* borrowed; NULL: none does */
    size_t unit;                  /* of its stage all down to this one are through */
    uint64_t ahead_us;            /* that they took of its time */
    int ahead_failed;
    struct err ahead_err;
};

/* --- plans ------------------------------------------------------------------------------------ */

static bool moves_pieces(const struct go *go)
{
    return program_moves((enum program)go->program);
}

static bool is_plan_for(const struct runner_plan *p, const struct go *go)
{
    if (!p->plan || go->program == PROGRAM_RESTORE || p->program != go->program ||
        p->microbatches != go->microbatches || p->want_token != go->want_token || p->steps != go->nsteps)
        return false;
    if (moves_pieces(go) && (p->state != go->state || p->adapter != go->adapter))
        return false;
    for (size_t i = 0; i < p->steps; i++)
        if (p->adapter_of_step[i] != go->steps[i].adapter)
            return false;
    return true;
}

static void drop_plan(struct runner_plan *p)
{
    plan_free(p->plan);
    free(p->adapter_of_step);
    *p = (struct runner_plan){0};
}

/* A job runs few different plans over and over: the last ones are kept. */
static const struct plan *plan_for(struct runner *r, const struct go *go, struct err *err)
{
    for (size_t i = 0; i < RUNNER_PLANS; i++)
        if (is_plan_for(&r->plans[i], go))
            return r->plans[i].plan;
    /* A plan takes a while to make: the next rank is to make it at the same time. */
    exchange_kick(r->state.messages.exchange);
    struct plan *made = NULL;
    uint32_t *adapter_of_step = calloc(go->nsteps + 1, sizeof *adapter_of_step);
    int e = adapter_of_step ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < go->nsteps && !e; i++)
        adapter_of_step[i] = go->steps[i].adapter;
    if (!e)
        e = round_compile(&made, r->state.plan, &r->state.config, go, r->state.pieces.first, err);
    if (!e)
        e = plan_admit_compiled(r->state.plan, made, err);
    if (e) {
        plan_free(made);
        free(adapter_of_step);
        return NULL;
    }
    struct runner_plan *slot = &r->plans[r->next_plan++ % RUNNER_PLANS];
    drop_plan(slot);
    *slot = (struct runner_plan){.plan = made,
                                 .program = go->program,
                                 .microbatches = go->microbatches,
                                 .want_token = go->want_token,
                                 .state = go->state,
                                 .adapter = go->adapter,
                                 .steps = go->nsteps,
                                 .adapter_of_step = adapter_of_step};
    return made;
}

/* --- exec's three functions ------------------------------------------------------------------- */

static int op_ready(void *owner, const struct msg_key *key, uint32_t from)
{
    struct runner *r = owner;
    return exchange_ready(r->state.messages.exchange, from, key);
}

static int op_room(void *owner, const struct msg_key *key, uint32_t to)
{
    struct runner *r = owner;
    (void)key;
    return exchange_room(r->state.messages.exchange, to, r->exec.plan->rank[r->state.rank].credits_fast);
}

/* A task that runs ahead takes time of the one under way, which counts for both. */
static int run_aside(struct runner *r, const struct task *task, struct err *err)
{
    const struct instant start = clock_now();
    const int e = task_run(&r->state, task, err);
    const struct instant end = clock_now();
    exchange_kick(r->state.messages.exchange);
    trace_within(&r->trace, r->exec.at, task, start, end);
    r->ahead_us += clock_since_us(end, start);
    return e;
}

static int run_under_way(struct runner *r, const struct task *task, struct err *err)
{
    r->under_way = task;
    r->ahead_us = 0;
    r->ahead_failed = 0;
    int e = task_run(&r->state, task, err);
    r->under_way = NULL;
    if (!e && r->ahead_failed) {
        *err = r->ahead_err;
        e = r->ahead_failed;
    }
    return e;
}

static int op_run(void *owner, const struct task *task, struct err *err)
{
    struct runner *r = owner;
    if (r->under_way)
        return run_aside(r, task, err);
    if (r->begun)
        r->begun(r->owner);
    r->begun = NULL;
    if (task->kind != TASK_TOKEN && task->kind != TASK_LOSS) /* these take what has come, and are over */
        exchange_kick(r->state.messages.exchange);
    struct instant start = clock_now();
    progress_set(r->progress, PROGRESS_COMPUTING, task->kind, task->mb, 0);
    int e = r->state.hold && task->kind == TASK_NORM ? hold_take(r->state.hold, err) : 0;
    if (!e)
        e = run_under_way(r, task, err);
    struct instant end = clock_now();
    if (r->state.go->program == PROGRAM_TRAIN) /* what a step waited is told of steps alone */
        r->state.busy += (double)clock_since_us(end, start) / 1e6;
    if (r->state.go->program == PROGRAM_TRAIN && task_is_compute(task->kind))
        r->made.computed_us += clock_since_us(end, start) - r->ahead_us;
    uint64_t waited = trace_task(&r->trace, r->exec.at, task, start, end);
    atomic_fetch_add_explicit(&r->progress->busy_us, clock_since_us(end, start), memory_order_relaxed);
    atomic_fetch_add_explicit(&r->progress->wait_us, waited, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->progress->tasks, 1, memory_order_relaxed);
    return e;
}

/* Of credits_fast, as many stay free as the plan cannot do without. */
static int op_room_ahead(void *owner, const struct msg_key *key, uint32_t to)
{
    struct runner *r = owner;
    const struct plan_rank *rank = &r->exec.plan->rank[r->state.rank];
    (void)key;
    return exchange_room(r->state.messages.exchange, to, rank->credits_fast - rank->credits);
}

static bool op_is_computed(void *owner, const struct task *task)
{
    struct runner *r = owner;
    const struct param_share part = message_part(&r->state.messages, UNIT_GRADS, task->stage, task->mb);
    return stage_part_is_above(r->state.stages[task->stage], &part, r->unit);
}

static const struct exec_ops ops = {op_ready, op_room, op_run, op_room_ahead, op_is_computed};

/* A backward has gone through a unit. If it was the step's last, gradients of that unit can go. */
static void on_unit(void *owner, size_t unit)
{
    struct runner *r = owner;
    if (!r->under_way || r->ahead_failed)
        return;
    r->unit = unit;
    r->ahead_failed = exec_ahead(&r->exec, &ops, r, &r->ahead_err);
    task_select_adapter(&r->state, r->under_way);
}

/* In rounds that train as one of several replicas. */
static void watch(struct runner *r, bool on)
{
    for (size_t s = 0; s < r->state.plan->stages; s++)
        if (r->state.stages[s])
            stage_watch(r->state.stages[s], on ? on_unit : NULL, r);
}

static int run_program(struct runner *r, struct err *err)
{
    for (;;) {
        int e = exec_ahead(&r->exec, &ops, r, err);
        if (e)
            return e;
        e = exec_step(&r->exec, &ops, r, err);
        if (e == 0)
            return 0;
        if (e < 0 && e != -EAGAIN)
            return e;
        if (e == -EAGAIN) {
            trace_wait(&r->trace, &r->exec, clock_now());
            progress_set(r->progress,
                         r->exec.wait == EXEC_NO_ROOM ? PROGRESS_WAITING_TO : PROGRESS_WAITING_FOR,
                         r->exec.wait_key.kind, r->exec.wait_key.mb, r->exec.wait_rank);
            exchange_wait(r->state.messages.exchange);
        }
    }
}

/* With what the plan followed from beside the job's own, so that a reader can make the same
 * plan. */
static void report_trace(struct runner *r, const struct go *go)
{
    const struct plan_request req = round_request(r->state.plan, &r->state.config, go, r->state.pieces.first);
    json_t *adapter_of_step = json_array();
    for (size_t i = 0; i < go->nsteps; i++)
        json_array_append_new(adapter_of_step, json_integer(go->steps[i].adapter));
    r->traced(r->owner, json_pack("{s:I s:I s:o s:b s:I s:o s:o s:[I,I,I]}", "step", (json_int_t)go->step,
                                  "microbatches", (json_int_t)go->microbatches, "adapters", adapter_of_step,
                                  "tied", (int)req.tied, "lowest", (json_int_t)req.lowest_trained, "tasks",
                                  trace_encode(&r->trace), "bytes", trace_encode_bytes(&r->trace), "made",
                                  (json_int_t)r->made.microbatches, (json_int_t)r->made.computed_us,
                                  (json_int_t)r->made.us));
}

static int cut_pieces(struct runner *r, const struct go *go, struct err *err)
{
    param_pieces_done(&r->state.pieces);
    if (!moves_pieces(go))
        return 0;
    return param_pieces_make(&r->state.pieces, job_plan_tune(r->state.plan, go->adapter),
                             family_find(r->state.config.family), &r->state.config, go->state, err);
}

static void choose(struct stage *stage, size_t adapter)
{
    if (adapter == GO_NO_ADAPTER)
        stage_select_no_adapter(stage);
    else
        stage_select_adapter(stage, adapter);
}

static void choose_adapter(struct runner *r, size_t adapter)
{
    for (size_t s = 0; s < r->state.plan->stages; s++)
        if (r->state.stages[s])
            choose(r->state.stages[s], adapter);
}

/* Of several adapters all have made the last step of the round, or began behind it. */
static int keep_copies(struct runner *r, const struct go *go, struct err *err)
{
    uint64_t step = go->step;
    for (size_t i = 0; i < go->nsteps; i++)
        step = go->steps[i].step > step ? go->steps[i].step : step;
    progress_set(r->progress, PROGRESS_COMPUTING, TASK_PUT, 0, 0);
    return hold_give(r->state.hold, go->round, step, err);
}

static int run_round(struct runner *r, const struct go *go, struct err *err)
{
    r->state.go = go;
    choose_adapter(r, go->adapter);
    int e = cut_pieces(r, go, err);
    if (e)
        return e;
    const struct plan *plan = plan_for(r, go, err);
    if (!plan)
        return -EINVAL;
    atomic_store_explicit(&r->progress->step, go->step, memory_order_relaxed);
    r->state.tasks = plan;
    if (go->program == PROGRAM_TRAIN || go->program == PROGRAM_FORWARD || r->state.plan->slices)
        replica_state_begin(&r->state);
    if (go->kept && r->state.hold)
        hold_settle(r->state.hold);
    memset(r->state.bad, 0, r->state.plan->round_steps * sizeof *r->state.bad);
    exec_start(&r->exec, plan, r->state.rank, go->round);
    trace_begin(&r->trace, plan->rank[r->state.rank].n);
    const struct instant began = clock_now();
    e = messages_begin(&r->state.messages, go, &plan->rank[r->state.rank], go->round);
    watch(r, go->program == PROGRAM_TRAIN && r->state.plan->replicas > 1);
    e = e ? err_set(err, e, "posting receive buffers: %s", strerror(-e)) : run_program(r, err);
    watch(r, false);
    if (go->program == PROGRAM_TRAIN) {
        r->made.microbatches += go->microbatches;
        r->made.us += clock_since_us(clock_now(), began);
    }
    if (!e && go->trace && r->traced)
        report_trace(r, go);
    if (!e && go->hold)
        e = keep_copies(r, go, err);
    if (!e && go->keep && r->state.hold)
        hold_put_away(r->state.hold);
    if (!e && r->rounded)
        r->rounded(r->owner);
    return e;
}

/* --- rounds ----------------------------------------------------------------------------------- */

static struct msg_key go_key(uint32_t round, uint32_t to)
{
    return (struct msg_key){round, MSG_GO, (uint16_t)to, 0};
}

/* Lines are rank 1's, which hands on none. */
static int send_go(struct runner *r, const struct go *round, struct err *err)
{
    struct go copy = *round, *go = &copy;
    if (r->state.rank + 1 == r->state.plan->ranks)
        return 0;
    go->nlines = r->state.rank ? 0 : line_feed_next(&r->feed, line_feed_room(r->state.plan));
    go->lines = r->feed.text;
    struct msg_key key = go_key(go->round, r->state.messages.next);
    uint8_t *buffer =
        exchange_buffer(r->state.messages.exchange, message_size(&r->state.messages, &key, r->state.rank));
    if (!buffer)
        return err_set(err, -ENOMEM, "out of memory");
    int e = exchange_queue(r->state.messages.exchange, r->state.messages.next, &key, buffer,
                           go_encode(buffer, go));
    line_feed_sent(&r->feed, go->nlines);
    return e ? err_set(err, e, "starting a round: %s", strerror(-e)) : 0;
}

int runner_new(struct runner **ret, const struct runner_setup *setup, struct err *err)
{
    struct runner *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(err, -ENOMEM, "out of memory");
    const struct job_plan *p = setup->plan;
    *r = (struct runner){.progress = setup->progress,
                         .traced = setup->traced,
                         .heard = setup->heard,
                         .rounded = setup->rounded,
                         .begun = setup->begun,
                         .owner = setup->owner,
                         .state = {.plan = p,
                                   .config = *setup->config,
                                   .rank = setup->rank,
                                   .stages = setup->stages,
                                   .hold = setup->hold}};
    int e = 0;
    for (size_t s = 0; s < p->stages && !r->state.any; s++)
        r->state.any = setup->stages[s];
    r->state.messages = (struct messages){.plan = p,
                                          .exchange = setup->exchange,
                                          .pieces = &r->state.pieces,
                                          .trace = &r->trace,
                                          .stages = setup->stages,
                                          .rank = setup->rank,
                                          .tied_elements = stage_tied_elements(r->state.any),
                                          .tied_grad = stage_tied_grad_elements(r->state.any),
                                          .prev = plan_prev(p->ranks, setup->rank),
                                          .next = plan_next(p->ranks, setup->rank)};
    const bool last = job_plan_is_at(p, p->stages - 1, setup->rank);
    r->state.norms = calloc(p->round_steps, sizeof *r->state.norms);
    r->state.scales = calloc(p->round_steps, sizeof *r->state.scales);
    r->state.bad = calloc(p->round_steps, sizeof *r->state.bad);
    if (!e && (!r->state.norms || !r->state.scales || !r->state.bad))
        e = err_set(err, -ENOMEM, "out of memory");
    if (!e)
        e = replica_state_init(&r->state, err);
    if (!e && last && (p->kv || p->sample) &&
        !(r->state.scratch = calloc(p->vocab, sizeof *r->state.scratch)))
        e = err_set(err, -ENOMEM, "out of memory");
    if (e)
        runner_free(r);
    else
        *ret = r;
    return e;
}

void runner_free(struct runner *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < RUNNER_PLANS; i++)
        drop_plan(&r->plans[i]);
    param_pieces_done(&r->state.pieces);
    trace_done(&r->trace);
    replica_state_done(&r->state);
    line_feed_done(&r->feed);
    messages_done(&r->state.messages);
    free(r->state.norms);
    free(r->state.scales);
    free(r->state.bad);
    free(r->state.scratch);
    free(r);
}

int runner_round(struct runner *r, struct go *go, struct head_round *head, struct err *err)
{
    go->round = ++r->round;
    r->state.head = head;
    int e = send_go(r, go, err);
    return e ? e : run_round(r, go, err);
}

static struct rows_ring rows_of(const struct runner *r, uint32_t round)
{
    struct rows_ring rows = {.plan = r->state.plan,
                             .stage = r->state.any,
                             .exchange = r->state.messages.exchange,
                             .progress = r->progress,
                             .scratch = r->state.scratch,
                             .rank = r->state.rank,
                             .round = round,
                             .rounded = r->rounded,
                             .owner = r->owner};
    rows_ring_place(&rows);
    return rows;
}

int runner_serve(struct runner *r, struct rows_ring *ret, struct err *err)
{
    const struct go go = {.program = GO_SERVE, .round = ++r->round};
    if (r->begun)
        r->begun(r->owner);
    r->begun = NULL;
    *ret = rows_of(r, go.round);
    return send_go(r, &go, err);
}

void runner_add_line(struct runner *r, const json_t *line)
{
    if (line_feed_room(r->state.plan))
        line_feed_add(&r->feed, line);
}

double runner_hold_seconds(const struct runner *r)
{
    return r->state.hold ? hold_seconds(r->state.hold) : 0;
}

void runner_idle(struct runner *r)
{
    exchange_leave(r->state.messages.exchange);
    exchange_kick(r->state.messages.exchange);
    progress_set(r->progress, PROGRESS_IDLE, 0, 0, 0);
}

static int flush(struct runner *r, struct err *err)
{
    int e = exchange_flush(r->state.messages.exchange, FLUSH_S);
    return e ? err_set(err, e, "the end of the job did not reach rank %u within %d s", r->state.messages.next,
                       FLUSH_S)
             : 0;
}

/* The others know of it. */
static int end(struct runner *r, const struct go *go, struct err *err)
{
    r->has_left = go->hold;
    int e = go->hold && r->state.hold ? hold_take(r->state.hold, err) : 0;
    progress_set(r->progress, PROGRESS_ENDING, 0, 0, 0);
    return e ? e : flush(r, err);
}

int runner_stop(struct runner *r, bool goes_on, struct err *err)
{
    const struct go go = {.program = GO_STOP, .round = ++r->round, .hold = goes_on};
    exchange_on_lost(r->state.messages.exchange, NULL, NULL); /* from here on ends are expected */
    int e = send_go(r, &go, err);
    return e ? e : end(r, &go, err);
}

bool runner_has_left(const struct runner *r)
{
    return r->has_left;
}

/* Waits for the next GO, then posts the one after it, so that rank 0 never waits to start a round,
 * and together with what this one's tasks want. */
static int next_go(struct runner *r, struct go *go, struct err *err)
{
    struct msg_key key = go_key(++r->round, r->state.rank), after = go_key(r->round + 1, r->state.rank);
    size_t n, cap = message_size(&r->state.messages, &key, r->state.messages.prev);
    int e = r->round == 1 ? exchange_post(r->state.messages.exchange, r->state.messages.prev, &key, cap, true)
                          : 0;
    if (e)
        return err_set(err, e, "posting receive buffers: %s", strerror(-e));
    while (!(e = exchange_ready(r->state.messages.exchange, r->state.messages.prev, &key))) {
        progress_set(r->progress, PROGRESS_WAITING_FOR, MSG_GO, r->round, r->state.messages.prev);
        exchange_wait(r->state.messages.exchange);
    }
    if (e < 0)
        return err_set(err, e, "waiting for rank %u: %s", r->state.messages.prev, strerror(-e));
    void *buffer = exchange_take(r->state.messages.exchange, r->state.messages.prev, &key, &n);
    e = go_decode(go, buffer, n, r->state.plan->tokens);
    exchange_release(r->state.messages.exchange, buffer);
    if (!e && go->round != r->round)
        e = -EBADMSG;
    if (e)
        return err_set(
            err, e,
            "rank %u started a round that this version cannot read: install the same ringd on all nodes",
            r->state.messages.prev);
    e = plan_admit_go(r->state.plan, go, r->state.messages.prev, err);
    if (!e && go->program != GO_STOP &&
        (e = exchange_post(r->state.messages.exchange, r->state.messages.prev, &after, cap, true)))
        return err_set(err, e, "posting receive buffers: %s", strerror(-e));
    return e;
}

int runner_follow(struct runner *r, struct err *err)
{
    for (;;) {
        struct go go = {0};
        int e = next_go(r, &go, err);
        if (!e && go.program == GO_STOP)
            exchange_on_lost(r->state.messages.exchange, NULL, NULL); /* from here on ends are expected */
        if (!e)
            e = send_go(r, &go, err);
        if (!e && go.nlines && r->heard)
            r->heard(r->owner, go.lines, go.nlines);
        const bool is_over = go.program == GO_STOP;
        struct rows_ring rows = rows_of(r, go.round);
        if (!e)
            e = is_over                  ? end(r, &go, err)
                : go.program == GO_SERVE ? rows_ring_follow(&rows, err)
                                         : run_round(r, &go, err);
        go_done(&go);
        if (e || is_over)
            return e;
    }
}
