/* SPDX-License-Identifier: MIT
 *
 * The queue of a head: whose turn it is, what each job waits for, and who gives way. Jobs go by
 * class, and by number within one. Called by coord.c; loop thread. */
#include "daemon/ringd/job/coord_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/deputy/recall.h"
#include "daemon/ringd/job/job_ring.h"
#include "daemon/ringd/job/plan/shortage.h"
#include "daemon/ringd/timer.h"

struct job_life *coord_life_of(const struct coord *c, const struct job *job)
{
    for (size_t i = 0; i < COORD_LIVES; i++)
        if (job_life_job(c->lives[i]) == job)
            return c->lives[i];
    return NULL;
}

struct job_life *coord_life_for(const struct coord *c, enum job_type type, char *why, size_t size)
{
    struct job_life *free_one = NULL;
    for (size_t i = 0; i < COORD_LIVES; i++) {
        const struct job *job = job_life_job(c->lives[i]);
        if (!job) {
            free_one = c->lives[i];
        } else if (type == JOB_TRAIN && job->type == JOB_TRAIN) {
            snprintf(why, size, "job %llu trains, and one job trains at a time", (unsigned long long)job->id);
            return NULL;
        }
    }
    if (!free_one)
        snprintf(why, size, "there are jobs before it");
    return free_one;
}

bool coord_any_lives(const struct coord *c)
{
    bool any = false;
    for (size_t i = 0; i < COORD_LIVES; i++)
        any = any || job_life_job(c->lives[i]);
    return any;
}

static bool is_in_line(const struct job *job)
{
    return job->state == JOB_QUEUED && !job->lent;
}

/* Those that wait, by class, the oldest of each first; the caller frees. */
static struct job **line_up(const struct coord *c, size_t *ret_n)
{
    size_t n = 0, in_line = 0;
    for (struct job *job = c->jobs; job; job = job->next)
        in_line += is_in_line(job);
    struct job **line = xmalloc((in_line + 1) * sizeof *line);
    for (enum job_class class = 0; class < JOB_CLASSES; class ++) {
        size_t end = n;
        for (struct job *job = c->jobs; job; job = job->next)
            end += is_in_line(job) && job_class_of(job->type) == class;
        *ret_n = end;
        for (struct job *job = c->jobs; job; job = job->next)
            if (is_in_line(job) && job_class_of(job->type) == class)
                line[--end] = job;
        n = *ret_n;
    }
    return line;
}

struct job *coord_first_queued(const struct coord *c)
{
    size_t n;
    struct job **line = line_up(c, &n), *first = n ? line[0] : NULL;
    free(line);
    return first;
}

static void say_waits(struct coord *c, struct job *job, const char *why)
{
    if (!strcmp(job->error, why))
        return;
    text_clean(job->error, sizeof job->error, why, true);
    job_log_publish(&c->log, job, "job", job_encode_short(job));
}

/* No job of this head has a ring, and the first of the queue waits for one. */
static void settle(struct coord *c, const struct job *job, bool stands)
{
    if (stands || coord_any_lives(c))
        timer_stop(c->settle);
    else if (!timer_is_pending(c->settle) && !job->is_restored && !job->interruption.count)
        timer_set_ms(c->settle, c->setup.limits.settle_ms);
}

/* It leaves the queue. False: it waits, and its row says for what. */
static bool try_job(struct coord *c, struct job *job)
{
    struct members_ring ring;
    char why[700] = "";
    struct job_life *life = coord_life_for(c, job->type, why, sizeof why);
    if (!life) {
        say_waits(c, job, why);
        return false;
    }
    const bool stands = job_ring_now(c->ring, job, &ring, why, sizeof why);
    if (!*why && shortage_is_known(job->shortage) && shortage_stays(job->shortage, &ring))
        shortage_describe(job->shortage, why, sizeof why);
    if (!*why && recall_is_done(c->recall, job, &ring, why, sizeof why)) {
        timer_stop(c->settle);
        job_life_begin(life, job, &ring);
        return true;
    }
    settle(c, job, stands);
    say_waits(c, job, why);
    return false;
}

/* One that waits holds up those of its class, and all that train: what they took would stay taken
 * for long. */
void coord_try_start(struct coord *c)
{
    bool is_held_up[JOB_CLASSES] = {false};
    size_t n;
    if (timer_is_pending(c->retry))
        return;
    struct job **line = line_up(c, &n);
    if (n)
        c->setup.begins(c->setup.owner);
    for (size_t i = 0; i < n; i++) {
        const enum job_class class = job_class_of(line[i]->type);
        if (is_held_up[class])
            say_waits(c, line[i], "there are jobs before it");
        else if (!try_job(c, line[i]))
            is_held_up[class] = is_held_up[JOB_CLASS_TRAIN] = true;
    }
    free(line);
}

/* Nodes that a model is only kept loaded on give way, here and elsewhere. */
static void ask_for_memory(struct coord *c, const struct job *job)
{
    struct members_ring ring;
    char why[700];
    if (job_ring_now(c->ring, job, &ring, why, sizeof why))
        job_send_wanted(&c->post, &ring);
}

static bool any_lacks_memory(const struct coord *c)
{
    const struct job *job = c->jobs;
    while (job && !(is_in_line(job) && shortage_is_known(job->shortage)))
        job = job->next;
    return job;
}

/* A model that is only kept loaded gives way to work that lacks its memory, of this node or
 * another. */
void coord_give_way(struct coord *c)
{
    const bool lacks = any_lacks_memory(c);
    for (size_t i = 0; i < COORD_LIVES; i++) {
        const struct job *job = job_life_job(c->lives[i]);
        if (job && job->is_idle && (job->is_wanted || lacks))
            job_life_turn(c->lives[i], NULL);
    }
}

/* Two heads reached for the same nodes at once and refused each other. Both let go and try again,
 * in the order of their ids and far enough apart that the second sees what the first has begun. */
void coord_requeue(struct coord *c, struct job *job)
{
    const struct members *all = c->setup.members;
    uint64_t wait_ms = c->setup.limits.retry_ms;
    for (size_t i = 1; i < members_count(all); i++)
        if (memcmp(members_at(all, i)->id, members_at(all, 0)->id, 16) < 0)
            wait_ms += c->setup.limits.retry_ms;
    job_reset(job);
    job->state = JOB_QUEUED;
    job_log_changed(&c->log, job);
    if (!shortage_is_known(job->shortage)) {
        timer_set_ms(c->retry, wait_ms);
        return;
    }
    ask_for_memory(c, job);
    coord_give_way(c);
    coord_try_start(c);
}

void coord_on_retry(void *owner)
{
    coord_try_start(owner);
}

void coord_on_ring(void *owner)
{
    coord_look(owner);
}

bool coord_ring_for(void *owner, struct job *job, struct members_ring *ret, char *why, size_t size)
{
    const struct coord *c = owner;
    c->setup.begins(c->setup.owner);
    const bool stands = job_ring_now(c->ring, job, ret, why, size);
    if (job->state == JOB_INTERRUPTED && !*why)
        recall_is_done(c->recall, job, ret, why, size);
    return stands;
}

void coord_look(struct coord *c)
{
    for (size_t i = 0; i < COORD_LIVES; i++)
        job_life_changed(c->lives[i]);
    coord_try_start(c);
}
