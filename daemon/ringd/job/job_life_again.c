/* SPDX-License-Identifier: MIT
 *
 * Interruptions: why a job stops without being over, what it waits for, and how it goes on. */
#include "daemon/ringd/job/job_life_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/common/text_clean.h"
#include "daemon/ringd/job/survive/departure.h"
#include "daemon/ringd/job/survive/token_log.h"
#include "daemon/ringd/timer.h"

/* A conversation that has been answered, and was told that nothing more will be said. */
bool life_is_over(const struct job *job)
{
    return job->turn.is_here && !job->turn.words;
}

static void end_conversation(struct job_life *l)
{
    life_stop(l, JOB_DONE, "");
    job_send_stop(l->setup.post, l->job);
}

/* In what job_type_unit counts. */
static uint64_t job_progressed(const struct job *job)
{
    return job->type == JOB_GENERATE || job->type == JOB_SERVE ? job->tokens : job->step;
}

/* Nothing is wrong with the job itself. stage_of: the node whose stage process ended, "" if a node
 * was lost. */
void life_interrupt(struct job_life *l, const char *stage_of, const char *cause)
{
    struct job *job = l->job;
    char why[200];
    if (job->state == JOB_STOPPING)
        return;
    if (job->asked.on_loss == ON_LOSS_STOP)
        life_stop(l, JOB_FAILED, cause);
    else if (life_is_over(job))
        end_conversation(l);
    else if (job->token_log && token_log_is_given_up(job->token_log))
        life_fail(l, "%s; its tokens took too much memory to be kept, so it cannot go on", cause);
    else if (interruption_begin(&job->interruption, job_nodes(job), stage_of, job_type_unit(job->type),
                                job_progressed(job), cause, why, sizeof why))
        life_stop(l, JOB_INTERRUPTED, cause);
    else
        life_fail(l, "%s; %s", cause, why);
}

void life_starve(struct job_life *l, const char *stage_of, const char *cause)
{
    struct job *job = l->job;
    char text[700];
    if (job->is_spared || job->type != JOB_TRAIN || job->asked.recompute != RECOMPUTE_AUTO) {
        life_fail(l, "%s%s", cause,
                  job->is_spared ? ", though every layer was recomputed to save memory" : "");
        return;
    }
    job->is_spared = true;
    snprintf(text, sizeof text, "%s; the job goes on and recomputes every layer, to save memory", cause);
    life_interrupt(l, stage_of, text);
}

/* The user wants it so. */
static void plan_again(const struct job *job, struct interruption *i, const char *cause)
{
    interruption_plan(i, job_nodes(job), job_type_unit(job->type), job_progressed(job), cause);
}

void life_tell_change(struct job_life *l, const char *why)
{
    struct job *job = l->job;
    json_t *names = json_array(), *folder;
    const char *name;
    json_object_foreach ((json_t *)(uintptr_t)(why ? job->asked.adapters : job->change->asked.adapters), name,
                         folder)
        if (!job_adapter_is_former(name))
            json_array_append_new(names, json_string(name));
    json_t *event = json_pack("{s:I s:o s:s?}", "change", (json_int_t)job->change->number, "adapters", names,
                              "error", why);
    if (why) {
        job_log_note(l->setup.log, job, "is not served %s: %s", job->change->why, why);
        l->setup.drops_change(l->setup.owner, job);
        job_drop_change(job);
        job->changes++; /* what the job goes on with is another thing again */
    } else {
        job_log_note(l->setup.log, job, "is served %s", job->change->why);
        l->setup.takes_change(l->setup.owner, job);
        job_log_changed(l->setup.log, job);
    }
    job_log_publish(l->setup.log, job, "adapters", event);
}

bool life_gave_up_change(struct job_life *l, const char *cause)
{
    struct job *job = l->job;
    if (!job->change || !job->change->is_planned ||
        (job->state != JOB_PLANNING && job->state != JOB_OPENING && job->state != JOB_CONNECTING))
        return false;
    plan_again(job, &job->interruption, cause);
    life_tell_change(l, cause);
    life_stop(l, JOB_INTERRUPTED, job->interruption.cause);
    return true;
}

static void go_on(struct job_life *l, const struct members_ring *ring)
{
    struct job *job = l->job;
    timer_stop(l->deadline);
    job_log_note(l->setup.log, job, "is planned again on %zu node%s", ring->n, ring->n == 1 ? "" : "s");
    job_life_begin(l, job, ring);
}

/* Of a job that is interrupted: can it go on, and if not, what does it wait for? */
void life_look_on(struct job_life *l)
{
    struct job *job = l->job;
    const struct interruption *i = &job->interruption;
    struct members_ring ring;
    char obstacle[700], names[300], text[sizeof job->error];
    if (job->lent) {
        snprintf(text, sizeof text, "%s; ringd looks whether it can open the files of this job by itself",
                 i->cause);
        text_clean(job->error, sizeof job->error, text, true);
        return;
    }
    const size_t missing = interruption_missing(i, l->setup.members, names, sizeof names);
    l->setup.ring(l->setup.owner, job, &ring, obstacle, sizeof obstacle);
    if (!*obstacle && ring.n != i->refused && (!missing || i->is_waited)) {
        go_on(l, &ring);
        return;
    }
    interruption_describe(i, names, obstacle, text, sizeof text);
    if (!strcmp(job->error, text))
        return;
    text_clean(job->error, sizeof job->error, text, true);
    job_log_changed(l->setup.log, job);
}

static void enter_interrupted(struct job_life *l)
{
    struct job *job = l->job;
    struct interruption *i = &job->interruption;
    const bool waits = job->asked.on_loss == ON_LOSS_SHRINK && !i->is_waited;
    char names[300];
    job_reset(job);
    *job->error = 0;
    life_enter(l, JOB_INTERRUPTED);
    if (!i->until)
        job_log_note(l->setup.log, job, "interrupted %s: %s", interruption_where(i).text, i->cause);
    if (job->is_idle)
        l->setup.idle(l->setup.owner); /* others may want its nodes */
    if (l->job != job || !waits || !interruption_missing(i, l->setup.members, names, sizeof names))
        return;
    if (!i->until)
        i->until = i->since + (int64_t)job->asked.wait_for;
    const int64_t left = i->until - time(NULL), most = (int64_t)job->asked.wait_for;
    life_limit(l, (unsigned)(left < 0 ? 0 : left < most ? left : most) * 1000);
}

void life_wait(struct job_life *l)
{
    const struct job *job = l->job;
    enter_interrupted(l);
    if (l->job == job)
        life_look_on(l);
}

/* Asks it to stop after its next step. */
static void ask_to_leave(struct job_life *l, enum job_state next, const char *cause)
{
    struct job *job = l->job;
    const bool is_asked = job->leaves_for != JOB_QUEUED;
    if (is_asked && next != JOB_PAUSED)
        return;
    job->leaves_for = next;
    if (!is_asked)
        job_log_note(l->setup.log, job, "stops after its next %s: %s", job_type_unit(job->type), cause);
    text_clean(job->error, sizeof job->error, cause, true);
    job_send_leave(l->setup.post, job);
}

void life_look_whether_to_leave(struct job_life *l)
{
    struct job *job = l->job;
    struct members_ring ring;
    char why[300], obstacle[700];
    if (job->change && job->leaves_for == JOB_QUEUED) {
        snprintf(why, sizeof why, "it is planned again %s", job->change->why);
        ask_to_leave(l, JOB_INTERRUPTED, why);
    }
    if ((job->type != JOB_TRAIN && job->type != JOB_SERVE) || job->leaves_for != JOB_QUEUED)
        return;
    if (departure_is_drained(job, l->setup.members, why, sizeof why)) {
        ask_to_leave(l, JOB_INTERRUPTED, why);
        return;
    }
    if (job->asked.is_fixed || !l->setup.ring(l->setup.owner, job, &ring, obstacle, sizeof obstacle))
        return;
    uint64_t wait_us;
    if (departure_is_worth(job, &ring, clock_now(), why, sizeof why, &wait_us))
        ask_to_leave(l, JOB_INTERRUPTED, why);
    else if (wait_us)
        timer_set_us(l->settled, wait_us);
}

void life_rest(void *life)
{
    ask_to_leave(life, JOB_PAUSED, "nobody asks");
}

void life_look_at_pace(struct job_life *l)
{
    struct job *job = l->job;
    struct resplit found;
    char why[300];
    if (job->type != JOB_TRAIN || job->leaves_for != JOB_QUEUED || job->asked.is_fixed ||
        !departure_is_uneven(job, clock_now(), &found, why, sizeof why))
        return;
    slow_nodes_learn(&job->slow, job_nodes(job), found.slowness);
    ask_to_leave(l, JOB_INTERRUPTED, why);
}

void life_left(struct job_life *l, size_t rank, const json_t *body)
{
    struct job *job = l->job;
    (void)body;
    if (rank != 0 || job->leaves_for == JOB_QUEUED)
        return;
    job->has_left = true;
    plan_again(job, &job->interruption, job->error);
    life_stop(l, job->leaves_for, job->interruption.cause);
}

/* Fewer nodes than have held the job cannot hold it: it waits for others. */
bool life_was_too_few(struct job_life *l, const char *cause)
{
    struct job *job = l->job;
    struct interruption *i = &job->interruption;
    if (job->state != JOB_PLANNING || !i->count || job->offered.n >= i->fitted)
        return false;
    i->refused = job->offered.n;
    snprintf(i->cause, sizeof i->cause, "on %zu node%s: %s", i->refused, i->refused == 1 ? "" : "s", cause);
    life_stop(l, JOB_INTERRUPTED, cause);
    return true;
}

bool life_barred_newcomers(struct job_life *l, const char *cause)
{
    struct job *job = l->job;
    char names[300], text[700];
    if ((job->state != JOB_PLANNING && job->state != JOB_OPENING && job->state != JOB_CONNECTING) ||
        !barred_add(&job->barred, job_nodes(job), &job->ran, l->setup.members, names, sizeof names))
        return false;
    snprintf(text, sizeof text, "%s takes no part: %s", names, cause);
    plan_again(job, &job->interruption, text);
    job_log_note(l->setup.log, job, "%s; the job goes on without it until its ringd is started again", text);
    life_stop(l, JOB_INTERRUPTED, job->interruption.cause);
    return true;
}

/* stage_of: NULL: of the node whose stage process has ended. */
void life_lose_stage(struct job_life *l, const char *stage_of)
{
    const struct job *job = l->job;
    const struct job_nodes *nodes = job_nodes(job);
    size_t r = 0;
    while (r + 1 < nodes->n && !job->stopped[r])
        r++;
    char cause[160];
    snprintf(cause, sizeof cause, "node %s: its stage process ended before the job did", nodes->name[r]);
    life_interrupt(l, stage_of ? stage_of : nodes->name[r], cause);
}

/* --- how it goes on --------------------------------------------------------------------------- */

/* A job that waited for a node waits on for that one; any other was interrupted by the end of the
 * daemon. */
bool job_life_restore(struct job_life *l, struct job *job, const char *cause, char *why, size_t size)
{
    const bool waited = job->state == JOB_INTERRUPTED;
    char fault[200];
    if (!waited && !interruption_begin(&job->interruption, &job->offered, "", job_type_unit(job->type),
                                       job_progressed(job), cause, fault, sizeof fault)) {
        snprintf(why, size, "%s; %s", cause, fault);
        return false;
    }
    if (job->taken.from.job && !job->is_asked_for) /* its old head is not waited for */
        job->interruption.is_waited = true;
    l->job = job;
    enter_interrupted(l);
    if (waited)
        job_log_note(l->setup.log, job, "%s", cause);
    return true;
}

void job_life_move(struct job_life *l, const char *cause)
{
    life_stop(l, JOB_MOVED, cause);
}

void job_life_put_back(struct job_life *l)
{
    timer_stop(l->deadline);
    l->job = NULL;
}

int job_life_pause(struct job_life *l)
{
    const struct job *job = l->job;
    if (job->type != JOB_TRAIN)
        return -EINVAL;
    if (job->state == JOB_STOPPING || job_state_ended(job->state))
        return -EBUSY;
    if (job->state == JOB_RUNNING) {
        ask_to_leave(l, JOB_PAUSED, "it was paused");
        return 0;
    }
    plan_again(job, &l->job->interruption, "it was paused");
    life_stop(l, JOB_PAUSED, "it was paused");
    return 0;
}
