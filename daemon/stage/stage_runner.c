/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_runner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/stage_task.h"
#include "net/clock.h"

enum { FLUSH_S = 10 };

/* --- sizes: both ends know them from GO and the plan
 *  ------------------------------------------------------------------------- */

static size_t tokens_of(const struct runner *r, uint32_t mb)
{
    const struct seqs *s = &r->go->mb[mb];
    return s->start[s->n];
}

size_t runner_message_size(const struct runner *r, const struct msg_key *key)
{
    switch ((enum msg_kind)key->kind) {
    case MSG_ACT:
    case MSG_GRAD: return tokens_of(r, key->mb) * r->plan->dim * sizeof(float);
    case MSG_TARGET: return tokens_of(r, key->mb) * sizeof(int32_t);
    case MSG_LOSS:
        return sizeof(double) + (r->go->logprobs ? tokens_of(r, key->mb) * sizeof(float) : 0) +
               tokens_of(r, key->mb) * r->go->top * sizeof(struct likely);
    case MSG_TOKEN: return sizeof(uint32_t);
    case MSG_NORM: return sizeof(struct norm_message);
    case MSG_SCALE: return sizeof(struct scale_message);
    case MSG_TIED_GRAD:
    case MSG_TIED_WEIGHT: return stage_tied_elements(r->any) * sizeof(float);
    case MSG_PARAM: return r->pieces.piece[key->mb].n * sizeof(float);
    case MSG_GO:
        return go_max_size(r->plan->round_steps * r->plan->microbatches, r->plan->seqs, r->plan->round_steps);
    case MSG_COUNT: break;
    }
    return 0;
}

/* --- plans ------------------------------------------------------------------------------------ */

static struct plan_request request_for(const struct runner *r, const struct go *go, const struct sched *sched)
{
    const struct job_plan *p = r->plan;
    size_t lowest = tune_lowest_layer(&p->tune, &r->config), stage = 0;
    while (stage + 1 < p->stages && p->first[stage + 1] <= lowest)
        stage++;
    return (struct plan_request){
        .program = (enum program)go->program,
        .sched = sched,
        .ranks = p->ranks,
        .stages = go->program == PROGRAM_TRAIN ? 0 : p->stages,
        .rank_of_stage = p->place,
        .microbatches = go->microbatches,
        .steps = go->nsteps,
        .tied = p->tune.kind == TUNE_FULL && r->config.tied && p->stages > 1,
        .lowest_trained = p->tune.kind == TUNE_FULL ? 0 : (uint32_t)stage,
        .want_token = go->want_token,
        .first = p->first,
        .pieces = r->pieces.first,
    };
}

static bool is_plan_for(const struct runner_plan *p, const struct go *go)
{
    if (!p->plan || p->program != go->program || p->microbatches != go->microbatches ||
        p->want_token != go->want_token || p->steps != go->nsteps)
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
    exchange_kick(r->exchange);
    struct sched *sched = NULL;
    struct plan *made = NULL;
    bool recompute[JOB_MAX_STAGES];
    uint32_t *adapter_of_step = calloc(go->nsteps + 1, sizeof *adapter_of_step);
    if (!adapter_of_step) {
        err_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < go->nsteps; i++)
        adapter_of_step[i] = go->steps[i].adapter;
    struct sched_request want = job_plan_schedule(r->plan, go->microbatches);
    int e = go->program == PROGRAM_TRAIN ? sched_make(&sched, &want, err) : 0;
    if (!e) {
        struct plan_request req = request_for(r, go, sched);
        job_plan_recompute(r->plan, recompute);
        req.recompute = recompute;
        req.adapter_of_step = adapter_of_step;
        e = plan_compile(&made, &req, err);
    }
    sched_free(sched);
    if (e) {
        free(adapter_of_step);
        return NULL;
    }
    struct runner_plan *slot = &r->plans[r->next_plan++ % RUNNER_PLANS];
    drop_plan(slot);
    *slot = (struct runner_plan){made,           go->program, go->microbatches,
                                 go->want_token, go->nsteps,  adapter_of_step};
    return made;
}

/* --- posting: the next `credits` messages of each link, in the order my tasks will want them -- */

static int post_more(struct runner *r, uint32_t from)
{
    struct cursor *c = &r->cursor[from == r->prev ? 0 : 1];
    const struct plan_rank *mine = &r->exec.plan->rank[r->rank];
    while (c->posted < mine->credits_fast && c->task < mine->n) {
        const struct task *t = &mine->tasks[c->task];
        if (c->need >= t->nneeds) {
            c->task++;
            c->need = 0;
            continue;
        }
        const struct task_need *need = &t->needs[c->need++];
        if (need->from != from)
            continue;
        struct msg_key key = need->key;
        key.round = r->exec.round;
        int e = exchange_post(r->exchange, from, &key, runner_message_size(r, &key), false);
        if (e)
            return e;
        c->posted++;
    }
    return 0;
}

static int post_first(struct runner *r)
{
    memset(r->cursor, 0, sizeof r->cursor);
    int e = r->plan->ranks > 1 ? post_more(r, r->prev) : 0;
    if (!e && r->plan->ranks > 2)
        e = post_more(r, r->next);
    return e;
}

void *runner_take(struct runner *r, const struct task_need *need)
{
    size_t size;
    void *buffer = exchange_take(r->exchange, need->from, &need->key, &size);
    struct cursor *c = &r->cursor[need->from == r->prev ? 0 : 1];
    const size_t left = --c->posted;
    int e = post_more(r, need->from);
    if (c->posted > left)
        exchange_kick(r->exchange);
    if (!e)
        return buffer;
    exchange_release(r->exchange, buffer);
    return NULL;
}

/* --- exec's three functions ------------------------------------------------------------------- */

static int op_ready(void *owner, const struct msg_key *key, uint32_t from)
{
    struct runner *r = owner;
    return exchange_ready(r->exchange, from, key);
}

static int op_room(void *owner, const struct msg_key *key, uint32_t to)
{
    struct runner *r = owner;
    (void)key;
    return exchange_room(r->exchange, to, r->exec.plan->rank[r->rank].credits_fast);
}

static int op_run(void *owner, const struct task *task, struct err *err)
{
    struct runner *r = owner;
    if (r->begun)
        r->begun(r->owner);
    r->begun = NULL;
    if (task->kind != TASK_TOKEN && task->kind != TASK_LOSS) /* these take what has come, and are over */
        exchange_kick(r->exchange);
    struct instant start = clock_now();
    progress_set(r->progress, PROGRESS_COMPUTING, task->kind, task->mb, 0);
    int e = runner_task(r, task, err);
    struct instant end = clock_now();
    if (r->go->program == PROGRAM_TRAIN) /* what a step waited is told of steps alone */
        r->busy += (double)clock_since_us(end, start) / 1e6;
    uint64_t waited = trace_task(&r->trace, task, start, end);
    atomic_fetch_add_explicit(&r->progress->busy_us, clock_since_us(end, start), memory_order_relaxed);
    atomic_fetch_add_explicit(&r->progress->wait_us, waited, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->progress->tasks, 1, memory_order_relaxed);
    return e;
}

static int run_program(struct runner *r, struct err *err)
{
    static const struct exec_ops ops = {op_ready, op_room, op_run};
    for (;;) {
        int e = exec_step(&r->exec, &ops, r, err);
        if (e == 0)
            return 0;
        if (e < 0 && e != -EAGAIN)
            return e;
        if (e == -EAGAIN) {
            trace_wait(&r->trace, &r->exec, clock_now());
            progress_set(r->progress,
                         r->exec.wait == EXEC_NO_ROOM ? PROGRESS_WAITING_TO : PROGRESS_WAITING_FOR,
                         r->exec.wait_key.kind, r->exec.wait_key.mb, r->exec.wait_rank);
            exchange_wait(r->exchange);
        }
    }
}

/* With what the plan followed from beside the job's own, so that a reader can make the same
 * plan. */
static void report_trace(struct runner *r, const struct go *go)
{
    struct plan_request req = request_for(r, go, NULL);
    json_t *adapter_of_step = json_array();
    for (size_t i = 0; i < go->nsteps; i++)
        json_array_append_new(adapter_of_step, json_integer(go->steps[i].adapter));
    r->traced(r->owner, json_pack("{s:I s:I s:o s:b s:I s:o s:o}", "step", (json_int_t)go->step,
                                  "microbatches", (json_int_t)go->microbatches, "adapters", adapter_of_step,
                                  "tied", (int)req.tied, "lowest", (json_int_t)req.lowest_trained, "tasks",
                                  trace_encode(&r->trace), "bytes", trace_encode_bytes(&r->trace)));
}

static int cut_pieces(struct runner *r, const struct go *go, struct err *err)
{
    param_pieces_done(&r->pieces);
    if (go->program != PROGRAM_SAVE && go->program != PROGRAM_LOAD)
        return 0;
    return param_pieces_make(&r->pieces, job_plan_tune(r->plan, go->adapter), family_find(r->config.family),
                             &r->config, go->state, err);
}

static void choose_adapter(struct runner *r, size_t adapter)
{
    for (size_t s = 0; s < r->plan->stages; s++)
        if (r->stages[s])
            stage_select_adapter(r->stages[s], adapter);
}

static int run_round(struct runner *r, const struct go *go, struct err *err)
{
    r->go = go;
    choose_adapter(r, go->adapter);
    int e = cut_pieces(r, go, err);
    if (e)
        return e;
    const struct plan *plan = plan_for(r, go, err);
    if (!plan)
        return -EINVAL;
    atomic_store_explicit(&r->progress->step, go->step, memory_order_relaxed);
    exec_start(&r->exec, plan, r->rank, go->round);
    trace_begin(&r->trace, plan->rank[r->rank].n);
    e = post_first(r);
    e = e ? err_set(err, e, "posting receive buffers: %s", strerror(-e)) : run_program(r, err);
    if (!e && go->trace && r->traced)
        report_trace(r, go);
    if (!e && r->rounded)
        r->rounded(r->owner);
    return e;
}

/* --- rounds ----------------------------------------------------------------------------------- */

static struct msg_key go_key(uint32_t round, uint32_t to)
{
    return (struct msg_key){round, MSG_GO, (uint16_t)to, 0};
}

static int send_go(struct runner *r, const struct go *go, struct err *err)
{
    if (r->rank + 1 == r->plan->ranks)
        return 0;
    struct msg_key key = go_key(go->round, r->next);
    uint8_t *buffer = exchange_buffer(r->exchange, runner_message_size(r, &key));
    if (!buffer)
        return err_set(err, -ENOMEM, "out of memory");
    int e = exchange_queue(r->exchange, r->next, &key, buffer, go_encode(buffer, go));
    return e ? err_set(err, e, "starting a round: %s", strerror(-e)) : 0;
}

int runner_new(struct runner **ret, const struct runner_setup *setup, struct err *err)
{
    struct runner *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(err, -ENOMEM, "out of memory");
    const struct job_plan *p = setup->plan;
    *r = (struct runner){.plan = p,
                         .rank = setup->rank,
                         .stages = setup->stages,
                         .exchange = setup->exchange,
                         .progress = setup->progress,
                         .traced = setup->traced,
                         .rounded = setup->rounded,
                         .begun = setup->begun,
                         .owner = setup->owner,
                         .prev = plan_prev(p->ranks, setup->rank),
                         .next = plan_next(p->ranks, setup->rank)};
    int e = config_read(&r->config, p->model, err);
    for (size_t s = 0; s < p->stages && !r->any; s++)
        r->any = setup->stages[s];
    bool last = setup->rank == p->place[p->stages - 1];
    r->norms = calloc(p->round_steps, sizeof *r->norms);
    r->scales = calloc(p->round_steps, sizeof *r->scales);
    if (!e && (!r->norms || !r->scales))
        e = err_set(err, -ENOMEM, "out of memory");
    if (!e && last && (p->kv || p->sample) && !(r->scratch = calloc(p->vocab, sizeof *r->scratch)))
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
    param_pieces_done(&r->pieces);
    trace_done(&r->trace);
    for (size_t i = 0; i < r->nhanded; i++)
        exchange_release(r->exchange, r->handed[i].buffer);
    free(r->handed);
    free(r->norms);
    free(r->scales);
    free(r->scratch);
    free(r);
}

int runner_round(struct runner *r, struct go *go, struct head_round *head, struct err *err)
{
    go->round = ++r->round;
    r->head = head;
    int e = send_go(r, go, err);
    return e ? e : run_round(r, go, err);
}

void runner_idle(struct runner *r)
{
    exchange_kick(r->exchange);
    progress_set(r->progress, PROGRESS_IDLE, 0, 0, 0);
}

static int flush(struct runner *r, struct err *err)
{
    int e = exchange_flush(r->exchange, FLUSH_S);
    return e ? err_set(err, e, "the end of the job did not reach rank %u within %d s", r->next, FLUSH_S) : 0;
}

int runner_stop(struct runner *r, struct err *err)
{
    struct go go = {.program = GO_STOP, .round = ++r->round};
    exchange_on_lost(r->exchange, NULL, NULL); /* from here on ends are expected */
    progress_set(r->progress, PROGRESS_ENDING, 0, 0, 0);
    int e = send_go(r, &go, err);
    return e ? e : flush(r, err);
}

static bool fits_plan(const struct runner *r, const struct go *go)
{
    const struct job_plan *p = r->plan;
    const size_t steps = go->nsteps ? go->nsteps : 1;
    bool known = go->adapter <= p->nmore;
    for (size_t i = 0; i < go->nsteps; i++)
        known = known && go->steps[i].adapter <= p->nmore;
    return known && go->round == r->round && steps <= p->round_steps &&
           go->microbatches <= steps * p->microbatches;
}

/* Waits for the next GO, then posts the one after it, so that rank 0 never waits to start a round,
 * and together with what this one's tasks want. */
static int next_go(struct runner *r, struct go *go, struct err *err)
{
    struct msg_key key = go_key(++r->round, r->rank), after = go_key(r->round + 1, r->rank);
    size_t n, cap = runner_message_size(r, &key);
    int e = r->round == 1 ? exchange_post(r->exchange, r->prev, &key, cap, true) : 0;
    if (e)
        return err_set(err, e, "posting receive buffers: %s", strerror(-e));
    while (!(e = exchange_ready(r->exchange, r->prev, &key))) {
        progress_set(r->progress, PROGRESS_WAITING_FOR, MSG_GO, r->round, r->prev);
        exchange_wait(r->exchange);
    }
    if (e < 0)
        return err_set(err, e, "waiting for rank %u: %s", r->prev, strerror(-e));
    void *buffer = exchange_take(r->exchange, r->prev, &key, &n);
    e = go_decode(go, buffer, n, r->plan->tokens);
    exchange_release(r->exchange, buffer);
    if (!e && !fits_plan(r, go))
        e = -EBADMSG;
    if (!e && go->program != GO_STOP && (e = exchange_post(r->exchange, r->prev, &after, cap, true)))
        return err_set(err, e, "posting receive buffers: %s", strerror(-e));
    return e ? err_set(err, e, "rank %u started a round in a way this version cannot read", r->prev) : 0;
}

int runner_follow(struct runner *r, struct err *err)
{
    for (;;) {
        struct go go = {0};
        int e = next_go(r, &go, err);
        if (!e && go.program == GO_STOP)
            exchange_on_lost(r->exchange, NULL, NULL); /* from here on ends are expected */
        if (!e)
            e = send_go(r, &go, err);
        if (!e && go.program == GO_STOP) {
            go_done(&go);
            progress_set(r->progress, PROGRESS_ENDING, 0, 0, 0);
            return flush(r, err);
        }
        if (!e)
            e = run_round(r, &go, err);
        go_done(&go);
        if (e)
            return e;
    }
}
