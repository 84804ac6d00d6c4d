/* SPDX-License-Identifier: MIT
 *
 * What must hold in the simulation, whatever breaks: of the lines that a job says, of its stages,
 * and of how all ends. */
#include "tests/sim/cluster/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/job_spec.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/workers_impl.h"
#include "daemon/ringd/timer.h"
#include "tests/sim/cluster/stage.h"

void sim_wrong(const char *fmt, ...)
{
    va_list ap;
    if (*sim->wrong)
        return;
    va_start(ap, fmt);
    vsnprintf(sim->wrong, sizeof sim->wrong, fmt, ap);
    va_end(ap);
    sim_trace("WRONG: %s", sim->wrong);
    sim_describe();
}

/* --- while it runs ---------------------------------------------------------------------------- */

/* No step is said twice, none is left out, and a step is always the same. */
void sim_check_said(struct sim_node *n, uint64_t id, const char *kind, const char *json)
{
    size_t turn;
    struct sim_job *job = sim_job_at(n, id, &turn);
    const char *key = strcmp(kind, "token") ? "\"step\":" : "\"id\":", *at = strstr(json, key),
               *loss = strstr(json, "\"loss\":");
    const uint64_t step = at ? strtoull(at + strlen(key), NULL, 10) : 0;
    if (!job) {
        sim_wrong("%s says a step of job %llu, which nobody submitted", sim->roster.at[n->number].name,
                  (unsigned long long)id);
        return;
    }
    if (turn != job->turn) /* what it had not said yet when another node took the job over */
        return;
    sim_trace("job %llu: %s %llu", (unsigned long long)id, kind, (unsigned long long)step);
    if (!strcmp(kind, "saved")) {
        if (step < job->saved)
            sim_wrong("job %llu of %s saved step %llu after step %llu", (unsigned long long)id,
                      sim->roster.at[n->number].name, (unsigned long long)step,
                      (unsigned long long)job->saved);
        job->saved = step;
        return;
    }
    if (step != job->told + 1)
        sim_wrong("job %llu of %s says step %llu after step %llu", (unsigned long long)id,
                  sim->roster.at[n->number].name, (unsigned long long)step, (unsigned long long)job->told);
    if (!job->generates &&
        (!loss || (int64_t)strtod(loss + 7, NULL) != (int64_t)(job - sim->job) + (step == 1)))
        sim_wrong("job %llu says another job's step", (unsigned long long)id);
    job->told = step;
    job->said = step > job->said ? step : job->said;
}

/* One of the workers before it maps that unit of the same model. */
static bool is_mapped_before(const struct workers *ws, size_t i, size_t unit)
{
    const struct mapped *m = &ws->at[i]->mapped;
    for (size_t k = 0; k < i; k++) {
        const struct worker *w = ws->at[k];
        if (w->state != WORKER_IDLE && w->planned_bytes && w->mapped.key == m->key && w->mapped.bytes[unit])
            return true;
    }
    return false;
}

/* What its stages were promised is there for all of them; and one of its jobs trains. */
void sim_check_memory(const struct sim_node *n)
{
    uint64_t promised = 0;
    unsigned train = 0;
    const struct workers *ws = n->node.workers;
    for (size_t i = 0; i < ws->n; i++) {
        const struct worker *w = ws->at[i];
        if (w->state == WORKER_IDLE)
            continue;
        promised += w->planned_bytes;
        for (size_t u = 0; w->planned_bytes && u < w->mapped.n; u++)
            promised -= is_mapped_before(ws, i, u) ? w->mapped.bytes[u] : 0;
        train += w->trains;
    }
    if (promised > SIM_MEMORY)
        sim_wrong("%s promised its stages %llu bytes, and has %d", sim->roster.at[n->number].name,
                  (unsigned long long)promised, SIM_MEMORY);
    if (train > 1)
        sim_wrong("%s trains %u jobs at once", sim->roster.at[n->number].name, train);
}

/* Who has handed a job on makes no step of it any more. */
static void check_head(struct sim_job *job, const struct spawn *s)
{
    size_t turn;
    if (sim_job_at(s->node, s->job_id, &turn) != job)
        return;
    if (turn < job->stepped)
        sim_wrong("two heads run job %zu: %s makes a step after the %zu. to take it over has made one",
                  s->job, sim->roster.at[s->node->number].name, job->stepped);
    job->stepped = turn;
}

/* Only one attempt of a job makes steps, and only one process makes them. */
void sim_check_step(const struct spawn *s)
{
    struct sim_job *job = &sim->job[s->job];
    const struct sim_head head = sim_head_of(job);
    const struct job *at_head =
        head.node->is_on && head.id ? coord_find(head.node->node.coord, head.id) : NULL;
    check_head(job, s);
    if (at_head && at_head->state == JOB_PAUSED && s->attempt >= (int64_t)at_head->attempt)
        sim_wrong("job %zu makes a step while it is paused", s->job);
    for (const struct spawn *o = sim->stages; o; o = o->next)
        if (o != s && o->job == s->job && o->doing >= STAGE_IDLE && o->doing < STAGE_ENDING &&
            o->attempt == s->attempt && o->rank == s->rank)
            sim_wrong("two processes are rank %zu of attempt %lld of job %zu", s->rank, (long long)s->attempt,
                      s->job);
        else if (o->job == s->job && !o->rank && o->attempt > s->attempt && o->doing >= STAGE_IDLE &&
                 o->doing < STAGE_ENDING)
            sim_wrong("attempt %lld of job %zu makes a step beside attempt %lld", (long long)s->attempt,
                      s->job, (long long)o->attempt);
}

/* --- the end ---------------------------------------------------------------------------------- */

static bool has_ended(const char *state)
{
    return !strcmp(state, "done") || !strcmp(state, "failed") || !strcmp(state, "cancelled");
}

/* Who has taken a job over, and lost that in a crash, has no record of it. */
static bool goes_on(const struct sim_head *h)
{
    const char *state = sim_disk_state(h->node->disk, h->id);
    return h->id && *state && !has_ended(state);
}

bool sim_check_is_over(void)
{
    if (sim->now_us < sim->heals_us)
        return false;
    for (size_t i = 0; i < sim->jobs; i++) {
        const struct sim_job *job = &sim->job[i];
        if (!job->is_submitted || !job->head->is_on ||
            (job->id && !has_ended(sim_disk_state(job->head->disk, job->id))))
            return false;
        for (size_t k = 0; k < sim->nodes; k++)
            if (sim_disk_left(sim->at[k].disk))
                return false;
        for (size_t k = 0; k < job->turn; k++)
            if (!job->taken[k].node->is_on || goes_on(&job->taken[k]))
                return false;
    }
    return true;
}

/* Faults that a user has to hear of, and that no waiting mends. */
static bool may_fail(const struct sim_job *job, const char *error)
{
    static const char *const reasons[] = {"it is the job itself", "the job was interrupted", "no ring after"};
    if (job->on_loss == ON_LOSS_STOP)
        return true;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (error && strstr(error, reasons[i]))
            return true;
    if (error && job->starved > (job->generates ? 0 : 1) && strstr(error, "SIGKILL"))
        return true;
    return error && !job->fitted && strstr(error, "does not fit");
}

static void check_job(const struct sim_job *job)
{
    const struct store *disk = job->head->disk;
    const char *state = sim_disk_state(disk, job->id);
    /* It had ended here before another node took it over; that node heard so, and dropped it. */
    const bool is_whole = job->said == job->steps || sim_disk_said(disk, job->id) == job->steps;
    if (!strcmp(state, "done") && is_whole)
        return;
    json_t *record = json_loads(sim_disk_record(disk, job->id), 0, NULL);
    const char *error = json_string_value(json_object_get(record, "error")),
               *waits = json_string_value(json_object_get(record, "waits_for"));
    const char *name = sim->roster.at[job->head->number].name;
    if (!has_ended(state))
        sim_wrong("job %llu of %s never ends: it is %s; error: %s; it waits for: %s",
                  (unsigned long long)job->id, name, state, error ? error : "-", waits ? waits : "-");
    else if (!strcmp(state, "done") && !is_whole)
        sim_wrong("job %llu of %s is done with %llu of %llu steps said", (unsigned long long)job->id, name,
                  (unsigned long long)job->said, (unsigned long long)job->steps);
    else if (!strcmp(state, "cancelled") && !job->is_cancelled)
        sim_wrong("job %llu of %s was cancelled by nobody", (unsigned long long)job->id, name);
    else if (!strcmp(state, "failed") && !may_fail(job, error))
        sim_wrong("job %llu of %s failed: %s", (unsigned long long)job->id, name, error ? error : "-");
    json_decref(record);
}

/* Its job may go on here. It ends by itself when its time is over. */
static bool rests(const struct spawn *s)
{
    const struct worker *w = s->owner;
    return w->stage == s && w->rest == REST_KEPT && timer_is_pending(w->rest_over);
}

void sim_check_end(void)
{
    for (size_t i = 0; i < sim->jobs && !*sim->wrong; i++)
        if (sim->job[i].id)
            check_job(&sim->job[i]);
    for (size_t i = 0; i < sim->jobs; i++)
        for (size_t k = 0; k < sim->job[i].turn; k++)
            if (goes_on(&sim->job[i].taken[k]))
                sim_wrong("job %zu never ends on %s, which has taken it over", i,
                          sim->roster.at[sim->job[i].taken[k].node->number].name);
    for (size_t i = 0; i < sim->nodes; i++)
        if (sim_disk_left(sim->at[i].disk))
            sim_wrong("%s keeps %s still, after all jobs have ended", sim->roster.at[i].name,
                      sim_disk_left(sim->at[i].disk));
    for (size_t i = 0; i < sim->nodes; i++)
        if (sim->at[i].is_on && !workers_are_idle(sim->at[i].node.workers))
            sim_wrong("%s has its lease still, after all jobs have ended", sim->roster.at[i].name);
    for (const struct spawn *s = sim->stages; s; s = s->next)
        if (!rests(s))
            sim_wrong("a stage process of job %zu is left on %s", s->job,
                      sim->roster.at[s->node->number].name);
}

/* For the reader of a trace that ended badly. */
void sim_describe(void)
{
    static const char *const doing[] = {"new",    "planning",   "planned", "opening",   "ready",
                                        "left",   "letting go", "idle",    "computing", "committing",
                                        "saving", "ending",     "gone"};
    for (const struct spawn *s = sim->stages; s; s = s->next)
        sim_trace("stage of job %zu on %s: rank %zu of %zu, attempt %lld, %s; it has step %llu, and passes "
                  "on step %llu",
                  s->job, sim->roster.at[s->node->number].name, s->rank, s->ranks, (long long)s->attempt,
                  doing[s->doing], (unsigned long long)s->in, (unsigned long long)s->out);
    for (size_t i = 0; i < sim->nconns; i++) {
        const struct sim_conn *c = sim->conns[i];
        const struct spawn *a = c->end[0].stage, *b = c->end[1].stage;
        if (a || b)
            sim_trace("data connection %zu from %s to %s over %zu cables%s: %s, %s", c->number,
                      sim->roster.at[c->end[0].node->number].name,
                      sim->roster.at[c->end[1].node->number].name, c->hops, c->is_broken ? ", broken" : "",
                      a ? "a stage has it" : "no stage has it", b ? "a stage has it" : "no stage has it");
    }
}
