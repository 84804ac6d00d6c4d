/* SPDX-License-Identifier: MIT
 *
 * What happens in a world of the simulation, drawn from its seed: the network, the jobs that users
 * submit and cancel, and what breaks. All that breaks heals. */
#include "tests/sim/cluster/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/job_spec.h"
#include "daemon/common/optable.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/deputy/deputy.h"
#include "daemon/ringd/job/job.h"
#include "tests/sim/cluster/stage.h"

enum { JOBS_WITHIN_US = 40 * SIM_S, START_US = 2 * SIM_S, CONTINUE_US = 20 * SIM_S, ADOPT_US = 10 * SIM_S };

/* How thick faults come: some here and there, or many short ones while jobs begin and end. */
static const struct weather {
    unsigned most;
    uint64_t within_us, longest_us;
} weathers[] = {{8, 90 * SIM_S, 60 * SIM_S}, {20, 45 * SIM_S, 12 * SIM_S}, {4, 30 * SIM_S, 120 * SIM_S}};
enum { WEATHERS = sizeof weathers / sizeof *weathers };

enum fault {
    FAULT_KILL_DAEMON,
    FAULT_POWER,
    FAULT_KILL_STAGE,
    FAULT_STAND_STILL,
    FAULT_CUT,
    FAULT_PULL,
    FAULT_RESET,
    FAULT_PART,
    FAULT_SLOW_DISK,
    FAULT_CALENDAR,
    FAULT_BREAK_LANE,
    FAULT_DRAIN,
    FAULT_STARVE,
    FAULTS
};
static const char *const fault_names[FAULTS] = {
    "kill daemon", "power",     "kill stage", "stand still", "cut cable", "pull cable",  "reset",
    "partition",   "slow disk", "wall clock", "break lane",  "drain",     "starve stage"};

/* Something that is done, and perhaps undone. */
struct act {
    struct sim_event event;
    struct act *next;
    void (*undo)(struct act *a);
    size_t what; /* a fault, a job */
    size_t which;
    uint64_t lasts_us;
    unsigned sides; /* of a partition: by bits; of a cut: its directions */
};
struct acts {
    struct act *first; /* owned */
};

static struct act *act_new(struct acts *all, uint64_t in_us, void (*run)(struct sim_event *e))
{
    struct act *a = xcalloc(1, sizeof *a);
    a->event.run = run;
    a->next = all->first;
    all->first = a;
    sim_at(&a->event, in_us);
    return a;
}

/* --- faults ----------------------------------------------------------------------------------- */

static void undo_start(struct act *a)
{
    sim_daemon_start(&sim->at[a->which]);
}

static void undo_still(struct act *a)
{
    (void)a;
    sim_net_changed();
}

static void undo_cut(struct act *a)
{
    struct sim_cable *c = &sim->cable[a->which];
    c->is_cut[0] = c->is_cut[1] = c->is_out = false;
    sim_net_changed();
}

static void undo_part(struct act *a)
{
    (void)a;
    for (size_t i = 0; i < sim->cables; i++)
        sim->cable[i].is_cut[0] = sim->cable[i].is_cut[1] = false;
    sim_net_changed();
}

static void undo_disk(struct act *a)
{
    sim->at[a->which].slow_disk_us = 0;
}

static void cut(struct act *a)
{
    struct sim_cable *c = &sim->cable[a->which];
    c->is_cut[0] = c->is_cut[0] || a->sides != 1;
    c->is_cut[1] = c->is_cut[1] || a->sides != 2;
    sim_net_changed();
    a->undo = undo_cut;
}

static void pull(struct act *a)
{
    sim->cable[a->which].is_out = true;
    sim_session_lose(&sim->cable[a->which], "the cable is out");
    sim_net_changed();
    a->undo = undo_cut;
}

static void part(struct act *a)
{
    for (size_t i = 0; i < sim->cables; i++) {
        struct sim_cable *c = &sim->cable[i];
        if ((a->sides >> c->at[0] & 1) != (a->sides >> c->at[1] & 1))
            c->is_cut[0] = c->is_cut[1] = true;
    }
    sim_net_changed();
    a->undo = undo_part;
}

static void kill_daemon(struct act *a)
{
    sim_daemon_kill(&sim->at[a->which], a->what == FAULT_KILL_DAEMON);
    sim_net_changed();
    a->undo = undo_start;
}

static void kill_stage(const struct act *a, bool is_starved)
{
    for (struct spawn *s = sim->stages; s; s = s->next)
        if (s->node->number == a->which && s->doing != STAGE_GONE) {
            sim->here = s->node;
            sim_stage_kill(s, is_starved);
            return;
        }
}

static void stand_still(struct act *a)
{
    struct sim_node *n = &sim->at[a->which];
    const uint64_t until = sim->now_us + a->lasts_us;
    n->still_until_us = n->still_until_us > until ? n->still_until_us : until;
    sim_net_changed();
    a->undo = undo_still;
}

static void break_lane(const struct act *a)
{
    for (size_t i = 0; i < sim->nconns; i++)
        if (!sim->conns[i]->is_broken && i % 3 == a->which % 3) {
            sim_conn_break(sim->conns[i], NULL, "a fault");
            return;
        }
}

/* As node_drain.c does; "" ends it. A daemon that is started meanwhile takes part again. */
static void say_drained(const struct act *a, const char *reason)
{
    struct sim_node *n = &sim->at[a->which];
    if (!n->is_on)
        return;
    sim->here = n;
    struct member *self = members_self(n->node.members);
    snprintf(self->drained, sizeof self->drained, "%s", reason);
    sim_flood_self(n);
    node_changed(&n->node);
}

static void undo_drain(struct act *a)
{
    say_drained(a, "");
}

static void on_undo(struct sim_event *e)
{
    struct act *a = (struct act *)e;
    sim_trace("-- %s of %zu is over", fault_names[a->what], a->which);
    a->undo(a);
}

static void on_fault(struct sim_event *e)
{
    struct act *a = (struct act *)e;
    sim_trace("-- %s: %zu, for %g s", fault_names[a->what], a->which, (double)a->lasts_us / SIM_S);
    sim->faults[a->what]++;
    switch ((enum fault)a->what) {
    case FAULT_KILL_DAEMON:
    case FAULT_POWER: kill_daemon(a); break;
    case FAULT_KILL_STAGE:
    case FAULT_STARVE: kill_stage(a, a->what == FAULT_STARVE); break;
    case FAULT_STAND_STILL: stand_still(a); break;
    case FAULT_CUT: cut(a); break;
    case FAULT_PULL: pull(a); break;
    case FAULT_RESET: sim_session_lose(&sim->cable[a->which], "the connection was reset"); break;
    case FAULT_PART: part(a); break;
    case FAULT_SLOW_DISK:
        sim->at[a->which].slow_disk_us = sim_span(100 * SIM_MS, 5 * SIM_S);
        a->undo = undo_disk;
        break;
    case FAULT_CALENDAR:
        sim->at[a->which].wall_us += (int64_t)sim_between(0, 7200) * SIM_S - (int64_t)3600 * SIM_S;
        break;
    case FAULT_BREAK_LANE: break_lane(a); break;
    case FAULT_DRAIN:
        say_drained(a, "a new disk");
        a->undo = undo_drain;
        break;
    case FAULTS: break;
    }
    if (a->undo) {
        a->event.run = on_undo;
        sim_at(&a->event, a->lasts_us);
    }
}

static void note_heals(const struct act *a)
{
    const uint64_t heals = a->event.at_us + a->lasts_us;
    sim->heals_us = heals > sim->heals_us ? heals : sim->heals_us;
}

static void draw_fault(struct acts *all, const struct weather *w)
{
    struct act *a = act_new(all, sim_between(0, w->within_us), on_fault);
    a->what = sim_random(FAULTS);
    if (sim->lives_long && (a->what == FAULT_KILL_DAEMON || a->what == FAULT_POWER))
        a->what = FAULT_KILL_STAGE;
    const bool is_of_cable = a->what == FAULT_CUT || a->what == FAULT_PULL || a->what == FAULT_RESET;
    a->which = sim_random(is_of_cable ? sim->cables : sim->nodes);
    a->lasts_us = sim_span(100 * SIM_MS, w->longest_us);
    a->sides =
        a->what == FAULT_CUT ? (unsigned)sim_random(3) : (unsigned)sim_between(1, (1U << sim->nodes) - 2);
    note_heals(a);
}

/* --- users ------------------------------------------------------------------------------------ */

static json_t *spec_of(const struct sim_job *job, const char *loss)
{
    char model[16], out[16];
    snprintf(model, sizeof model, "/m/%zu", (size_t)(job - sim->job));
    snprintf(out, sizeof out, "/o/%zu", (size_t)(job - sim->job));
    if (job->generates)
        return json_pack("{s:s s:s s:I s:s s:I}", "model", model, "prompt", "a", "max_tokens",
                         (json_int_t)job->steps, "on_loss", loss, "wait_for", (json_int_t)job->wait_for);
    return json_pack("{s:s s:s s:s s:I s:I s:s s:I}", "model", model, "data", "/d", "adapter_out", out,
                     "iters", (json_int_t)job->steps, "save_every", (json_int_t)job->save_every, "on_loss",
                     loss, "wait_for", (json_int_t)job->wait_for);
}

static void on_submit(struct sim_event *e)
{
    static const char *const losses[] = {"shrink", "wait", "stop"};
    const struct act *a = (struct act *)e;
    struct sim_job *job = &sim->job[a->what];
    struct err err = {""};
    if (!job->head->is_on || sim_is_still(job->head)) {
        sim_at(e, SIM_S);
        return;
    }
    sim->here = job->head;
    const enum job_type type = job->generates ? JOB_GENERATE : JOB_TRAIN;
    if (coord_submit(job->head->node.coord, type, spec_of(job, losses[job->on_loss]), NULL, &job->id, &err))
        sim_wrong("job %zu was refused: %s", a->what, err.text);
    job->is_submitted = true;
    sim_trace("-- job %llu is submitted: %s, --on-loss %s, %llu steps", (unsigned long long)job->id,
              job_type_name(type), losses[job->on_loss], (unsigned long long)job->steps);
}

static void on_cancel(struct sim_event *e)
{
    struct act *a = (struct act *)e;
    struct sim_job *job = &sim->job[a->what];
    if (!job->id || !job->head->is_on || sim_is_still(job->head))
        return;
    sim->here = job->head;
    const int r = coord_cancel(job->head->node.coord, job->id);
    sim_trace("-- job %llu is cancelled: %d", (unsigned long long)job->id, r);
    job->is_cancelled = job->is_cancelled || !r;
}

static bool is_at_hand(const struct sim_job *job)
{
    return job->id && job->head->is_on && !sim_is_still(job->head);
}

static void on_pause(struct sim_event *e)
{
    const struct sim_job *job = &sim->job[((struct act *)e)->what];
    if (!is_at_hand(job))
        return;
    sim->here = job->head;
    const int r = coord_pause(job->head->node.coord, job->id);
    sim_trace("-- job %llu is paused: %d", (unsigned long long)job->id, r);
}

/* Sooner or later, each time it is found paused. */
static void on_continue(struct sim_event *e)
{
    const struct sim_job *job = &sim->job[((struct act *)e)->what];
    sim_at(e, CONTINUE_US);
    if (!is_at_hand(job))
        return;
    sim->here = job->head;
    const struct job *at_head = coord_find(job->head->node.coord, job->id);
    if (at_head && at_head->state == JOB_PAUSED && !coord_continue(job->head->node.coord, job->id))
        sim_trace("-- job %llu is continued", (unsigned long long)job->id);
}

static void on_adopted(void *arg, uint64_t as, const char *why)
{
    (void)arg;
    sim_trace("-- a user hears that the job is %s: job %llu here", why ? why : "taken over",
              (unsigned long long)as);
}

/* A user who sees that the head is off asks the others, one after the other. */
static void on_adopt(struct sim_event *e)
{
    const struct sim_job *job = &sim->job[((struct act *)e)->what];
    const struct sim_head head = sim_head_of(job);
    for (size_t i = 0; head.id && !head.node->is_on && i < sim->nodes; i++) {
        struct sim_node *n = &sim->at[i];
        if (n == head.node || !n->is_on || sim_is_still(n))
            continue;
        sim->here = n;
        if (!deputy_adopt(n->node.deputy, sim->roster.at[head.node->number].id, head.id, true, on_adopted,
                          NULL))
            break;
    }
    if (sim->now_us < sim->heals_us)
        sim_at(e, ADOPT_US);
}

/* For so long that another node takes the job over, perhaps by hand. */
static void lose_head(struct acts *all, size_t i, uint64_t from)
{
    const uint64_t at = sim_between(from, from + 30 * SIM_S);
    struct act *a = act_new(all, at, on_fault);
    a->what = sim_chance(50) ? FAULT_POWER : FAULT_KILL_DAEMON;
    a->which = sim->job[i].head->number;
    a->lasts_us = sim_between(20 * SIM_S, 200 * SIM_S);
    note_heals(a);
    if (sim_chance(50))
        act_new(all, sim_between(at, at + a->lasts_us), on_adopt)->what = i;
}

static void draw_job(struct acts *all, size_t i)
{
    struct sim_job *job = &sim->job[i];
    struct act *a = act_new(all, sim_between(0, JOBS_WITHIN_US), on_submit);
    a->what = i;
    *job = (struct sim_job){.head = &sim->at[sim_random(sim->nodes)],
                            .generates = sim_chance(45),
                            .steps = sim_between(1, 12),
                            .copies = sim_chance(75),
                            .save_every = sim_random(4),
                            .wait_for = sim_random(3) ? 60 : sim_random(20),
                            .least_nodes = sim_chance(20) ? sim_between(1, sim->nodes) : 1,
                            .bytes = sim_chance(40) ? sim_between(SIM_MEMORY / 2, SIM_MEMORY)
                                                    : sim_span(SIM_MEMORY / 1024, SIM_MEMORY),
                            .plan_us = sim_span(10 * SIM_MS, 10 * SIM_S),
                            .open_us = sim_span(10 * SIM_MS, 10 * SIM_S),
                            .step_us = sim_span(10 * SIM_MS, 5 * SIM_S),
                            .on_loss = (int)sim_random(8)};
    job->model = sim_random(STAGE_MODELS + 1);
    if (job->model && job->bytes > SIM_MEMORY - STAGE_MAPPED)
        job->bytes = SIM_MEMORY - STAGE_MAPPED;
    job->on_loss = job->on_loss > ON_LOSS_STOP ? ON_LOSS_SHRINK : job->on_loss;
    const uint64_t from = a->event.at_us;
    if (sim_chance(15))
        act_new(all, sim_between(from, from + 40 * SIM_S), on_cancel)->what = i;
    if (sim_chance(20) && !sim->lives_long)
        lose_head(all, i, from);
    if (sim_chance(25)) {
        const uint64_t at = sim_between(from, from + 40 * SIM_S);
        act_new(all, at, on_pause)->what = i;
        act_new(all, at + sim_span(SIM_S, 60 * SIM_S), on_continue)->what = i;
    }
}

/* --- the network ------------------------------------------------------------------------------ */

static void on_start(struct sim_event *e)
{
    sim_daemon_start(&sim->at[((struct act *)e)->which]);
}

static void add_cable(size_t a, size_t b)
{
    struct sim_cable *c = &sim->cable[sim->cables++];
    c->at[0] = a;
    c->at[1] = b;
}

static void draw_network(struct acts *all)
{
    sim->nodes = sim_between(2, SIM_NODES);
    for (size_t i = 0; i < sim->nodes; i++) {
        struct sim_node *n = &sim->at[i];
        struct roster_entry *e = &sim->roster.at[sim->roster.n++];
        e->status = ROSTER_ACTIVE;
        for (size_t k = 0; k < sizeof e->id; k++)
            e->id[k] = (uint8_t)sim_random(256);
        snprintf(e->name, sizeof e->name, "%c", (char)('a' + i));
        n->number = i;
        n->clock_us = sim_random(UINT32_MAX) * 100;
        n->wall_us = (int64_t)sim_random(20 * SIM_S) - 10 * SIM_S;
        n->is_powered = true;
        n->disk = sim_disk_new(n);
        act_new(all, sim_chance(90) ? sim_random(START_US) : sim_random(20 * SIM_S), on_start)->which = i;
    }
    for (size_t i = 0; i + 1 < sim->nodes; i++)
        add_cable(i, i + 1);
    if (sim->nodes > 2 && sim_chance(85)) /* else a chain */
        add_cable(sim->nodes - 1, 0);
    while (sim->cables < SIM_CABLES && sim_chance(25)) {
        const size_t a = sim_random(sim->nodes);
        add_cable(a, (a + sim_between(1, sim->nodes - 1)) % sim->nodes);
    }
}

/* --- a world ---------------------------------------------------------------------------------- */

static void draw_options(void)
{
    static const char *const dead_after[] = {"10", "10", "3", "1", "30"};
    struct err err = {""};
    sim->by_text = sim_chance(10);
    if (opts_set(sim->opts, "dead-after", dead_after[sim_random(5)], &err))
        sim_wrong("%s", err.text);
}

static void draw_chapter(struct acts *all)
{
    sim->jobs = sim_chance(80) ? sim_between(1, 3) : sim_between(4, SIM_JOBS);
    for (size_t i = 0; i < sim->jobs; i++)
        draw_job(all, i);
    const struct weather *w = &weathers[sim_random(WEATHERS)];
    for (size_t faults = sim_random(w->most + 1); faults; faults--)
        draw_fault(all, w);
}

struct acts *sim_story_begin(void)
{
    struct acts *all = xcalloc(1, sizeof *all);
    draw_options();
    draw_network(all);
    draw_chapter(all);
    return all;
}

static void acts_forget(struct acts *all)
{
    for (struct act *a = all->first, *next; a; a = next) {
        next = a->next;
        sim_cancel(&a->event);
        free(a);
    }
    all->first = NULL;
}

void sim_story_go_on(struct acts *all)
{
    acts_forget(all);
    memset(sim->job, 0, sizeof sim->job);
    draw_chapter(all);
}

void sim_story_free(struct acts *all)
{
    acts_forget(all);
    free(all);
}
