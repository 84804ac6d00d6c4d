/* SPDX-License-Identifier: MIT
 *
 * Stage processes, as spawn.h shows them to a worker. Each answers as ringd-stage does: it plans,
 * opens, takes lanes, and runs. What passes along the ring of a job is one token for each step; a
 * stage keeps it until a lane to the next one passes. Rank 0 says the steps, and saves. */
#include "tests/sim/cluster/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/worker_impl.h"
#include "tests/lib/small_plan.h"
#include "tests/sim/cluster/stage.h"

enum { KILL_AFTER_US = 2 * SIM_S, GIVE_UP_US = 5 * SIM_S };

static struct sim_job *job_of(const struct spawn *s)
{
    return &sim->job[s->job];
}

void stage_say(struct spawn *s, const char *kind, json_t *event)
{
    json_object_set_new(event, "ev", json_string(kind));
    s->ops->event(s->owner, kind, event);
    json_decref(event);
}

/* --- its end ---------------------------------------------------------------------------------- */

static void leave(struct spawn *s)
{
    s->doing = STAGE_GONE;
    sim_cancel(&s->event);
    sim_cancel(&s->pass);
    copies_leave(s);
    for (size_t i = 0; i < sim->nconns; i++)
        for (int e = 0; e < 2; e++)
            if (sim->conns[i]->end[e].untold == s) {
                sim->conns[i]->end[e].untold = NULL;
            } else if (sim->conns[i]->end[e].stage == s) {
                sim->conns[i]->end[e].stage = NULL;
                sim_conn_break(sim->conns[i], &sim->conns[i]->end[e], "a stage has ended");
            }
}

static void end(struct spawn *s, const char *how)
{
    if (s->doing == STAGE_GONE)
        return;
    leave(s);
    s->ops->ended(s->owner, how);
}

static void exit_soon(struct spawn *s)
{
    s->doing = STAGE_ENDING;
    sim_cancel(&s->pass);
    sim_at(&s->event, sim_span(200, 100 * SIM_MS));
}

size_t stage_first_layer(size_t rank, size_t ranks)
{
    return rank * STAGE_LAYERS / ranks;
}

struct spawn *stage_of_rank(const struct spawn *s, size_t rank)
{
    for (struct spawn *o = sim->stages; o; o = o->next)
        if (o->job == s->job && o->attempt == s->attempt && o->rank == rank && o->doing > STAGE_PLANNED &&
            o->doing < STAGE_GONE)
            return o;
    return NULL;
}

/* --- planning, opening ------------------------------------------------------------------------ */

static uint64_t said_of(const json_t *spec)
{
    const json_t *said = json_object_get(json_object_get(spec, "said"), "step");
    return (uint64_t)json_integer_value(json_object_get(said, ""));
}

static size_t job_named(const json_t *in)
{
    const char *model = json_string_value(json_object_get(in, "model"));
    return strtoul(model + strlen("/m/"), NULL, 10);
}

/* What it has generated before; a job that was asked for nothing yet begins with its prompt. */
static void take_so_far(struct spawn *s, const json_t *so_far)
{
    const json_t *turn = json_array_get(json_object_get(so_far, "turns"), 0),
                 *answer = json_object_get(turn, "answer");
    s->has_prompt = turn;
    s->step = json_array_size(answer);
    for (size_t i = 0; i < s->step; i++)
        if ((size_t)json_integer_value(json_array_get(answer, i)) != i + 1)
            sim_wrong("token %zu of job %zu is another one than was said", i + 1, s->job);
}

static void take_plan(struct spawn *s, const json_t *message)
{
    const json_t *spec = json_object_get(message, "spec");
    s->job = job_named(spec);
    const struct sim_job *job = job_of(s);
    s->ranks = json_array_size(json_object_get(message, "nodes"));
    s->steps = job->steps;
    s->said = said_of(spec);
    s->submitted = (uint64_t)json_integer_value(json_object_get(spec, "submitted"));
    s->generates = job->generates;
    s->step = json_is_true(json_object_get(spec, "goes_on")) ? s->node->saved[s->job] : 0;
    if (s->generates)
        take_so_far(s, json_object_get(spec, "so_far"));
    if (s->node == sim_head_of(job).node && s->step < job->saved)
        sim_wrong("job %zu begins behind step %llu, and %llu had been said to be saved", s->job,
                  (unsigned long long)s->step, (unsigned long long)job->saved);
    json_decref(s->nodes);
    s->nodes = json_incref(json_object_get(message, "nodes"));
    s->doing = STAGE_PLANNING;
    sim_at(&s->event, sim_between(job->plan_us / 2, job->plan_us));
}

static void on_planned(struct spawn *s)
{
    size_t mapped[STAGE_UNITS];
    const struct job_plan plan = stage_plan(s, mapped);
    json_t *lack = stage_lack(s, &plan);
    if (lack) {
        stage_say(s, "failed", lack);
        exit_soon(s);
        return;
    }
    s->doing = STAGE_PLANNED;
    stage_say(s, "planned", small_plan_told(&plan, s->steps));
}

static void take_open(struct spawn *s, const json_t *message)
{
    const json_t *plan = json_object_get(message, "plan");
    s->job = stage_planned_job(plan);
    s->ranks = json_array_size(json_object_get(plan, "bytes"));
    s->rank = (size_t)json_integer_value(json_object_get(message, "rank"));
    sim_check_memory(s->node);
    s->doing = STAGE_OPENING;
    sim_at(&s->event, sim_between(job_of(s)->open_us / 2, job_of(s)->open_us));
}

static void on_open(struct spawn *s)
{
    s->doing = STAGE_READY;
    if (!job_of(s)->copies)
        copies_leave(s);
    stage_say(s, "ready",
              json_pack("{s:[[I,I]] s:o*}", "layers", (json_int_t)stage_first_layer(s->rank, s->ranks),
                        (json_int_t)stage_first_layer(s->rank + 1, s->ranks), "held",
                        s->nfiles ? copies_report(s) : NULL));
}

/* --- lanes ------------------------------------------------------------------------------------ */

static struct spawn *next_stage(const struct spawn *s)
{
    for (size_t i = 0; i < sim->nconns; i++) {
        struct sim_conn *c = sim->conns[i];
        for (int e = 0; e < 2 && !c->is_broken; e++)
            if (c->end[e].stage == s && c->end[!e].stage && c->end[e].rank == (s->rank + 1) % s->ranks &&
                sim_conn_passes(c))
                return c->end[!e].stage;
    }
    return NULL;
}

static void pump(struct spawn *s)
{
    if (s->out && !s->pass.place && (s->doing == STAGE_IDLE || s->doing == STAGE_COMPUTING) && next_stage(s))
        sim_at(&s->pass, sim_span(50, 10 * SIM_MS));
}

void sim_stages_pump(void)
{
    for (struct spawn *s = sim->stages; s; s = s->next)
        pump(s);
}

void sim_stage_lane_lost(struct sim_conn_end *e)
{
    struct spawn *s = e->stage;
    e->stage = NULL;
    if (s->doing < STAGE_IDLE)
        e->untold = s;
    if (s->doing >= STAGE_IDLE && s->doing < STAGE_ENDING)
        stage_say(s, "lane-lost",
                  json_pack("{s:I s:I s:s}", "rank", (json_int_t)e->rank, "path", (json_int_t)e->path, "why",
                            "the connection was reset"));
}

static void keep_paths(struct spawn *s, const json_t *alive)
{
    for (size_t i = 0; i < sim->nconns; i++)
        for (int e = 0; e < 2; e++) {
            struct sim_conn_end *end = &sim->conns[i]->end[e];
            bool is_alive = false;
            for (size_t k = 0; k < json_array_size(alive); k++)
                is_alive = is_alive || (uint64_t)json_integer_value(json_array_get(alive, k)) == end->path;
            if (end->stage != s || is_alive)
                continue;
            sim_conn_break(sim->conns[i], end, "its path is gone");
            end->is_deaf = false;
            if (!end->event.place)
                sim_at(&end->event, 1);
        }
}

int spawn_send_lane(struct spawn *s, const struct ipc_lane *lane, int fd)
{
    struct sim_conn_end *e = sim_conn_of_fd(fd);
    if (s->doing == STAGE_GONE || s->doing == STAGE_ENDING) {
        sim_conn_break(e->conn, e, "the stage ends");
        return -EPIPE;
    }
    const struct sim_conn_end *far = &e->conn->end[e == &e->conn->end[0]];
    if (far->stage && (far->stage->job != s->job || far->stage->attempt != s->attempt))
        sim_wrong("a lane joins attempt %lld of job %zu with attempt %lld of job %zu", (long long)s->attempt,
                  s->job, (long long)far->stage->attempt, far->stage->job);
    e->stage = s;
    e->rank = lane->rank;
    e->path = lane->path;
    sim_trace("data connection %zu is a lane to rank %u over path %llu", e->conn->number, lane->rank,
              (unsigned long long)lane->path);
    if (e->conn->is_broken && !e->event.place)
        sim_at(&e->event, 1);
    sim_stages_pump();
    return 0;
}

/* --- running ---------------------------------------------------------------------------------- */

static bool is_last(uint64_t token)
{
    return token >= STAGE_LEAVE;
}

/* That was made before that token began. */
static uint64_t last_step(const struct spawn *s, uint64_t token)
{
    return is_last(token) ? s->step : token - 1;
}

static void compute(struct spawn *s)
{
    if (s->doing == STAGE_IDLE && s->in) {
        s->doing = STAGE_COMPUTING;
        sim_at(&s->event,
               is_last(s->in) ? 10 : sim_between(job_of(s)->step_us / 2, job_of(s)->step_us) / s->ranks);
    }
}

/* It lets go of its lanes and of all that this attempt was about. */
static void rest(struct spawn *s)
{
    leave(s);
    s->doing = STAGE_LETTING_GO;
    s->in = s->out = s->step = s->given = 0;
    s->leaves_saving = false;
    s->leaves = s->generates = s->has_prompt = s->passes = false;
    sim_at(&s->event, sim_chance(10) ? 3 * SIM_S : sim_span(100, 50 * SIM_MS)); /* it may compute */
}

static void on_rested(struct spawn *s)
{
    s->doing = STAGE_NEW;
    stage_say(s, "resting", json_object());
}

static void is_through(struct spawn *s, uint64_t token)
{
    if (token == STAGE_LEAVE) {
        s->doing = STAGE_LEFT; /* it waits for the word to rest */
        stage_say(s, "left", json_object());
        return;
    }
    stage_say(s, "done",
              s->rank ? json_pack("{s:n}", "result") : json_pack("{s:{s:I}}", "result", "steps", s->steps));
    exit_soon(s);
}

static void begin_step(struct spawn *s)
{
    s->in = s->step == s->steps ? STAGE_END : s->leaves ? STAGE_LEAVE : s->step + 1;
    s->doing = STAGE_IDLE;
    copies_give(s, s->step);
    compute(s);
}

json_t *stage_step(const struct spawn *s, uint64_t step)
{
    return json_pack("{s:I s:I s:f s:i}", "step", (json_int_t)step, "steps", (json_int_t)s->steps, "loss",
                     (double)s->job + 1 / (double)step, "tokens", 8);
}

static void made_step(struct spawn *s, uint64_t step)
{
    const struct sim_job *job = job_of(s);
    s->step = step;
    sim_check_step(s);
    sim_copies_made(s);
    if (s->generates)
        stage_say(s, "token", json_pack("{s:I s:s}", "id", (json_int_t)step, "text", "a"));
    else if (step > s->said)
        stage_say(s, "step", stage_step(s, step));
    if (s->doing == STAGE_GONE || s->doing == STAGE_ENDING)
        return;
    const bool is_due = job->save_every && step % job->save_every == 0;
    if (!s->generates && (step == s->steps || is_due || (s->leaves && (s->leaves_saving || !job->copies)))) {
        s->doing = STAGE_COMMITTING;
        stage_say(s, "commit", json_pack("{s:I}", "number", (json_int_t)step));
    } else {
        begin_step(s);
    }
}

static void take_leave(struct spawn *s, const json_t *message)
{
    s->leaves = true;
    s->leaves_saving = json_is_true(json_object_get(message, "save"));
}

static void take_turn(struct spawn *s, const json_t *message)
{
    const json_t *committed = json_object_get(json_object_get(message, "turn"), "committed");
    if (s->doing != STAGE_COMMITTING || (uint64_t)json_integer_value(committed) != s->step)
        return;
    s->doing = STAGE_SAVING;
    sim_at(&s->event, s->node->slow_disk_us + sim_span(500, 200 * SIM_MS));
}

static void on_saved(struct spawn *s)
{
    s->node->saved[s->job] = s->step;
    stage_say(s, "saved", json_pack("{s:I}", "step", (json_int_t)s->step));
    if (s->doing == STAGE_SAVING)
        begin_step(s);
}

static void on_computed(struct spawn *s)
{
    const uint64_t token = s->in;
    s->in = 0;
    s->doing = STAGE_IDLE;
    if (s->ranks == 1 && !is_last(token))
        made_step(s, token);
    else if (s->ranks == 1 || (token == STAGE_END && s->rank == s->ranks - 1))
        is_through(s, token);
    else if (s->rank && !copies_take(s, last_step(s, token)))
        ; /* the rank before has ended, and so will this one */
    else
        s->out = token;
    pump(s);
}

static void receive(struct spawn *s, uint64_t token)
{
    if (!s->rank) {
        if (copies_take(s, s->step) && token == STAGE_LEAVE)
            is_through(s, token);
        else if (token != STAGE_LEAVE)
            made_step(s, token);
        return;
    }
    copies_give(s, last_step(s, token));
    s->step = is_last(token) ? s->step : token;
    s->in = token;
    compute(s);
}

static void on_pass(struct sim_event *event)
{
    struct spawn *s = (struct spawn *)((char *)event - offsetof(struct spawn, pass)), *next = next_stage(s);
    if (!next)
        return;
    const uint64_t token = s->out;
    s->out = 0;
    if (!s->rank && !s->generates && job_of(s)->copies && next->doing < STAGE_ENDING)
        copies_pass_lines(s, next, last_step(s, token));
    if (next->doing < STAGE_ENDING)
        receive(next, token);
    if (is_last(token) && (token == STAGE_END || s->rank))
        is_through(s, token);
}

static void run(struct spawn *s, const json_t *message)
{
    s->doing = STAGE_IDLE;
    if (json_object_get(message, "said"))
        s->said = said_of(message);
    if (!s->rank)
        copies_begin(s, json_object_get(message, "restore"));
    job_of(s)->fitted = true;
    for (size_t i = 0; i < sim->nconns; i++)
        for (int e = 0; e < 2; e++)
            if (sim->conns[i]->end[e].untold == s) {
                sim->conns[i]->end[e].stage = s;
                sim->conns[i]->end[e].untold = NULL;
                sim_stage_lane_lost(&sim->conns[i]->end[e]);
            }
    if (!s->rank) {
        stage_say(s, "begun", json_object());
        if (s->generates && !s->has_prompt)
            stage_say(s, "prompt", json_pack("{s:i s:i s:[i,i]}", "kept", 0, "seed", 1, "ids", 7, 8));
        begin_step(s);
    } else {
        compute(s);
    }
}

/* --- its life --------------------------------------------------------------------------------- */

static void on_event(struct sim_event *event)
{
    struct spawn *s = (struct spawn *)event;
    switch (s->doing) {
    case STAGE_PLANNING: on_planned(s); break;
    case STAGE_OPENING: on_open(s); break;
    case STAGE_COMPUTING: on_computed(s); break;
    case STAGE_SAVING: on_saved(s); break;
    case STAGE_LETTING_GO: on_rested(s); break;
    case STAGE_ENDING: end(s, ""); break;
    default: break;
    }
}

int spawn_start(struct spawn **ret, struct spawner *m, uint64_t within_us, const struct spawn_ops *ops,
                void *owner, struct err *err)
{
    const struct worker *w = owner;
    struct spawn *s = xcalloc(1, sizeof *s);
    (void)within_us, (void)err;
    s->node = (struct sim_node *)m;
    s->event = (struct sim_event){.node = s->node, .run = on_event};
    s->pass = (struct sim_event){.node = s->node, .run = on_pass};
    s->ops = ops;
    s->owner = owner;
    s->job_id = w->job;
    s->attempt = w->attempt;
    memcpy(s->head, w->head, 16);
    s->next = sim->stages;
    sim->stages = s;
    *ret = s;
    return 0;
}

int spawn_send_file(struct spawn *s, json_t *message, int fd)
{
    const char *what = json_string_value(json_object_get(message, "do"));
    if (s->doing == STAGE_NEW)
        s->attempt = ((const struct worker *)s->owner)->attempt;
    if (s->doing >= STAGE_ENDING)
        ;
    else if (!strcmp(what, "rest"))
        rest(s);
    else if (!strcmp(what, "plan"))
        take_plan(s, message);
    else if (!strcmp(what, "open"))
        take_open(s, message);
    else if (!strcmp(what, "run"))
        run(s, message);
    else if (!strcmp(what, "turn"))
        take_turn(s, message);
    else if (!strcmp(what, "leave"))
        take_leave(s, message);
    else if (!strcmp(what, "hold"))
        copies_take_file(s, fd);
    else if (!strcmp(what, "paths"))
        keep_paths(s, json_object_get(message, "alive"));
    json_decref(message);
    return 0;
}

void spawn_end(struct spawn *s)
{
    if (s->doing >= STAGE_ENDING)
        return;
    exit_soon(s);
    if (sim_chance(3)) /* it does not obey, and is killed */
        sim_at(&s->event, KILL_AFTER_US + (sim_chance(30) ? GIVE_UP_US : 0));
}

void spawn_kill(struct spawn *s, const char *cause)
{
    end(s, *cause ? cause : "was killed by SIGKILL");
}

void sim_stage_kill(struct spawn *s, bool is_starved)
{
    s->is_killed = true;
    s->is_starved = is_starved;
    job_of(s)->starved += is_starved && s->doing > STAGE_NEW && s->doing < STAGE_ENDING;
    end(s, "was killed by SIGKILL");
}

void spawn_free(struct spawn *s)
{
    if (!s)
        return;
    if (s->doing != STAGE_GONE)
        leave(s);
    for (struct spawn **at = &sim->stages; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    json_decref(s->nodes);
    free(s);
}

/* --- what else a worker asks ------------------------------------------------------------------ */

struct spawner *spawner_new(const struct spawner_setup *setup)
{
    return (struct spawner *)setup->base;
}

void spawner_free(struct spawner *m)
{
    (void)m;
}

uint64_t spawner_lingering(const struct spawner *m)
{
    (void)m;
    return 0;
}

int spawn_lend(struct spawn *s, struct loan *loan)
{
    (void)s, (void)loan;
    return 0;
}

pid_t spawn_pid(const struct spawn *s)
{
    (void)s;
    return -1;
}

int spawn_confine(struct spawn *s, uint64_t job)
{
    (void)s, (void)job;
    return 0;
}

struct cgroup *spawn_group(const struct spawn *s)
{
    (void)s;
    return NULL;
}

uint64_t spawn_memory(const struct spawn *s)
{
    (void)s;
    return 0;
}

uint64_t spawn_peak(const struct spawn *s)
{
    (void)s;
    return 0;
}

enum spawn_fate spawn_fate(const struct spawn *s)
{
    return s->is_starved ? SPAWN_WAS_STARVED : s->is_killed ? SPAWN_WAS_KILLED : SPAWN_HAS_FAILED;
}

const struct progress *spawn_progress(const struct spawn *s)
{
    return &s->progress;
}
