/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/service.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/conf.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/common/installed.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/systemd.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/common/optable.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "net/clock.h"

enum {
    TICK_MS = 5000,
    MINUTE = 12,        /* ticks */
    SAMPLE_TICKS = 2,   /* between two samples */
    WRITE_SAMPLES = 6,  /* written together, so that an idle disk is left asleep for a minute */
    LATE_S = 5,         /* a loop that was later than this is not well */
    STALLED_S = 120,    /* a job without a step for so long, … */
    STALLED_STEPS = 10, /* … and for so many times the longest step it had, is not getting on */
};

struct service {
    struct service_setup setup;
    struct timer *tick; /* owned */
    unsigned period_ms;
    struct instant due; /* of the next tick */
    uint64_t late_us[MINUTE];
    size_t ticks;
    struct instant sampled;
    json_t *samples; /* owned: not yet written */
    size_t n_samples;
    char said[1700]; /* last STATUS= */
    bool ready, watched;
};

/* --- the tick --------------------------------------------------------------------------------- */

static void arm(struct service *s)
{
    const struct instant now = clock_now();
    const uint64_t us =
        clock_until_beat_us(now, (uint64_t)s->period_ms * 1000, s->setup.beat(s->setup.owner));
    s->due.us = now.us + us;
    timer_set_us(s->tick, us);
}

static void write_samples(struct service *s)
{
    char *text = s->n_samples ? json_dumps(s->samples, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text)
        store_put_points(s->setup.store, text);
    free(text);
    json_array_clear(s->samples);
    s->n_samples = 0;
}

static void sample(struct service *s, struct instant now)
{
    double seconds = s->sampled.us ? (double)clock_since_us(now, s->sampled) / 1e6 : 0;
    s->sampled = now;
    s->setup.sample(s->setup.owner, seconds, time(NULL), s->samples);
    if (++s->n_samples >= WRITE_SAMPLES)
        write_samples(s);
}

static void on_tick(void *owner)
{
    struct service *s = owner;
    struct instant now = clock_now();
    s->late_us[s->ticks++ % MINUTE] = clock_since_us(now, s->due);
    if (s->watched)
        systemd_notify("WATCHDOG=1");
    if (s->ticks % SAMPLE_TICKS == 0)
        sample(s, now);
    service_status(s);
    arm(s);
}

struct service *service_new(const struct service_setup *setup)
{
    struct service *s = xcalloc(1, sizeof *s);
    const uint64_t watchdog_us = systemd_watchdog_us();
    s->setup = *setup;
    s->samples = json_array();
    s->watched = watchdog_us > 0;
    s->period_ms = s->watched && watchdog_us / 3000 < TICK_MS ? (unsigned)(watchdog_us / 3000) + 1 : TICK_MS;
    s->tick = timer_new(setup->base, on_tick, s);
    arm(s);
    return s;
}

void service_free(struct service *s)
{
    if (!s)
        return;
    write_samples(s);
    timer_free(s->tick);
    json_decref(s->samples);
    free(s);
}

/* --- what systemd is told --------------------------------------------------------------------- */

/* Of several jobs the first: systemd shows one line. */
static size_t add_job(const struct service *s, char *buf, size_t size)
{
    const struct job *active = NULL;
    size_t queued = 0, more = 0;
    int n = 0;
    for (const struct job *job = coord_first(s->setup.coord); job; job = job->next)
        if (job->state == JOB_QUEUED)
            queued++;
        else if (!job_state_ended(job->state)) {
            more += active != NULL;
            active = job;
        }
    const struct member *self = members_self(s->setup.members);
    if (active && active->steps)
        n = snprintf(buf, size, "; job %llu: step %llu of %llu", (unsigned long long)active->id,
                     (unsigned long long)active->step, (unsigned long long)active->steps);
    else if (active)
        n = snprintf(buf, size, "; job %llu %s", (unsigned long long)active->id,
                     job_state_name(active->state));
    else if (self->nstages)
        n = snprintf(buf, size, "; rank %d of job %llu", self->stages[0].rank,
                     (unsigned long long)self->stages[0].job);
    if (more && n >= 0 && (size_t)n < size)
        n += snprintf(buf + n, size - (size_t)n, "; %zu more job%s", more, more == 1 ? "" : "s");
    if (queued && n >= 0 && (size_t)n < size)
        n += snprintf(buf + n, size - (size_t)n, "; %zu queued", queued);
    return n > 0 ? (size_t)n : 0;
}

void service_status(struct service *s)
{
    char text[sizeof s->said], line[sizeof s->said + 8];
    members_describe(s->setup.members, text, 1500);
    size_t len = strlen(text);
    add_job(s, text + len, sizeof text - len);
    if (!s->ready || !strcmp(text, s->said))
        return;
    memcpy(s->said, text, sizeof s->said);
    snprintf(line, sizeof line, "STATUS=%s", text);
    systemd_notify(line);
}

/* Said when it is wrong, not at the first job, so that the one who starts the daemon sees it. */
static void check_stage(const struct opts *opts)
{
    struct err err;
    if (installed_check_stage(opts_str(opts, "stage-binary"), &err))
        log_error("%s", err.text);
}

void service_ready(struct service *s)
{
    check_stage(s->setup.opts);
    s->ready = true;
    systemd_notify("READY=1");
    service_status(s);
}

void service_stopping(struct service *s)
{
    s->ready = false;
    systemd_notify("STOPPING=1\nSTATUS=stopping");
}

/* --- health ----------------------------------------------------------------------------------- */

double service_lateness(const struct service *s)
{
    uint64_t most = clock_since_us(clock_now(), s->due);
    for (size_t i = 0; i < MINUTE; i++)
        most = s->late_us[i] > most ? s->late_us[i] : most;
    return (double)most / 1e6;
}

/* It may have to wait for the others: what trains gets the processor time that they leave. */
static bool gives_way(const struct members *members, const struct job *job)
{
    const struct job_nodes *nodes = job_nodes(job);
    for (size_t r = 0; job->type == JOB_TRAIN && r < nodes->n; r++) {
        const struct member *m = members_find(members, nodes->id[r]);
        if (m && m->nstages > 1)
            return true;
    }
    return false;
}

bool service_healthy(const struct service *s, char *why, size_t size)
{
    struct instant now = clock_now();
    double late = service_lateness(s);
    size_t len = 0;
    *why = '\0';
    if (late > LATE_S)
        len += (size_t)snprintf(
            why, size,
            "the daemon was held up for %.0f s within the last minute: is the machine overloaded?\n", late);
    for (const struct job *job = coord_first(s->setup.coord); job && len < size; job = job->next) {
        double still = job->progressed.us ? (double)clock_since_us(now, job->progressed) / 1e6 : 0;
        if (job->state == JOB_RUNNING && !job->is_idle && still > STALLED_S &&
            still > STALLED_STEPS * job->longest_step && !gives_way(s->setup.members, job))
            len += (size_t)snprintf(
                why + len, size - len,
                "job %llu has made no step for %.0f s: `ringctl nodes` shows what each node waits for\n",
                (unsigned long long)job->id, still);
    }
    return !len;
}

/* --- reading the configuration again ---------------------------------------------------------- */

/* Options that count from now on, or from the next job or connection on; the others at the next
 * start. */
static const char *const live[] = {"log-level", "threads",      "memory-limit",  "dead-after",
                                   "ring",      "stage-binary", "history-limit", "http-token-file"};

static bool is_live(const char *name)
{
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        if (!strcmp(live[i], name))
            return true;
    return false;
}

/* Nothing of it can fail any more. */
static void apply(const struct service *s, struct opts *fresh, json_t *applied)
{
    size_t i;
    json_t *name;
    json_array_foreach (applied, i, name) {
        opts_take(s->setup.opts, fresh, json_string_value(name));
    }
    log_set_level(opts_str(s->setup.opts, "log-level"));
    check_stage(s->setup.opts);
    s->setup.applied(s->setup.owner);
}

int service_reload(struct service *s, json_t **ret, struct err *err)
{
    struct opts *fresh;
    bool help;
    systemd_notify("RELOADING=1");
    int r = conf_load(&fresh, s->setup.argc, s->setup.argv, &help, err);
    json_t *applied = json_array(), *restart = json_array();
    for (const struct opt_def *def = conf_table; !r && def->name; def++)
        if (!opts_same(s->setup.opts, fresh, def->name))
            json_array_append_new(is_live(def->name) ? applied : restart, json_string(def->name));
    if (!r) {
        r = s->setup.reload_token(s->setup.owner, fresh, err);
        if (!r)
            apply(s, fresh, applied);
        opts_free(fresh);
    }
    systemd_notify("READY=1");
    if (r) {
        log_error("the new configuration was not applied: %s; the current one stays", err->text);
        json_decref(applied);
        json_decref(restart);
        return r;
    }
    log_info("the configuration was read again: %zu options changed, %zu of them take effect after a restart",
             json_array_size(applied) + json_array_size(restart), json_array_size(restart));
    *ret = json_pack("{s:o s:o}", "applied", applied, "restart", restart);
    return 0;
}
