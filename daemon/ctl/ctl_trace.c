/* SPDX-License-Identifier: MIT
 *
 * Owns the file, and the thread that hears of steps. One step is in memory at a time. The file is
 * an array whose end a viewer does not need: what is there can be looked at even if nobody lived to
 * close it. */
#include "daemon/ctl/ctl_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/step_trace.h"
#include "daemon/common/xalloc.h"

enum { LAST_STEPS_S = 30 /* what still waits in the daemon when the job has ended */ };

struct ctl_trace {
    const char *path; /* borrowed */
    FILE *file;       /* owned */
    pthread_t thread;
    bool is_begun; /* there is a thread */
    int enough;    /* eventfd, owned: ends the thread */
    /* the thread's, until it is joined */
    const struct ctl *ctl; /* borrowed */
    char job[CTL_JOB_NAME];
    struct step_trace_place place;
    bool has_events; /* a comma is due */
    uint64_t written, missing;
    bool has_ended; /* the daemon has sent the last step */
    int failed;     /* errno of the file */
    int rc;         /* exit status of the stream */
};

int ctl_trace_open(struct ctl_trace **ret, const char *path)
{
    struct ctl_trace *t = xcalloc(1, sizeof *t);
    t->path = path;
    t->enough = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->file = fopen(path, "we");
    if (t->enough < 0 || !t->file || fputs("[", t->file) == EOF || fflush(t->file)) {
        const int cause = errno;
        if (t->file)
            fclose(t->file);
        if (t->enough >= 0)
            close(t->enough);
        free(t);
        return ctl_fail(CTL_FAILED, "%s cannot be written: %s", path, strerror(cause));
    }
    *ret = t;
    return CTL_OK;
}

/* --- the thread ------------------------------------------------------------------------------- */

static bool write_events(struct ctl_trace *t, const json_t *events)
{
    size_t i;
    json_t *event;
    json_array_foreach (events, i, event) {
        if (fputs(t->has_events ? ",\n" : "\n", t->file) == EOF ||
            json_dumpf(event, t->file, JSON_COMPACT | JSON_REAL_PRECISION(15)))
            return false;
        t->has_events = true;
    }
    return !fflush(t->file);
}

static bool add_step(struct ctl_trace *t, const json_t *timeline)
{
    struct step_view *view = NULL;
    struct err err;
    if (step_view_read(&view, timeline, &err)) {
        t->rc = ctl_fail(CTL_FAILED, "%s", err.text);
        return false;
    }
    json_t *events = step_trace_next(&t->place, view);
    errno = ENOMEM;
    if (events && write_events(t, events))
        t->written++;
    else
        t->failed = errno;
    json_decref(events);
    step_view_free(view);
    return !t->failed;
}

static bool on_event(void *owner, const char *type, const json_t *data)
{
    struct ctl_trace *t = owner;
    if (!strcmp(type, "timeline"))
        return add_step(t, data);
    if (strcmp(type, "end") != 0)
        return true;
    t->missing = (uint64_t)field_number(data, "missing");
    t->has_ended = true;
    return false;
}

static bool on_enough(void *owner, int index)
{
    (void)owner;
    (void)index;
    return false;
}

static void *run(void *arg)
{
    struct ctl_trace *t = arg;
    char path[CTL_JOB_PATH];
    struct ctl_stream stream = {
        .event = on_event, .readable = on_enough, .owner = t, .fds = &t->enough, .n_fds = 1};
    snprintf(path, sizeof path, "/v1/jobs/%s/timelines", t->job);
    int rc = ctl_follow(t->ctl, path, &stream, true);
    t->rc = t->rc ? t->rc : rc;
    return NULL;
}

int ctl_trace_begin(struct ctl_trace *t, const struct ctl *ctl, const char *job)
{
    sigset_t all, before;
    t->ctl = ctl;
    snprintf(t->job, sizeof t->job, "%s", job);
    sigfillset(&all); /* ^C is for the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&t->thread, NULL, run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    t->is_begun = !e;
    return e ? ctl_fail(CTL_FAILED, "no thread to write %s: %s", t->path, strerror(e)) : CTL_OK;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void join(struct ctl_trace *t, bool is_over)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LAST_STEPS_S;
    if (is_over && !pthread_timedjoin_np(t->thread, NULL, &until))
        return;
    eventfd_write(t->enough, 1);
    pthread_join(t->thread, NULL);
}

static void close_file(struct ctl_trace *t)
{
    errno = 0;
    if (!t->failed && (fputs("\n]\n", t->file) == EOF || fflush(t->file)))
        t->failed = errno;
    if (fclose(t->file) && !t->failed)
        t->failed = errno;
}

static int say(const struct ctl_trace *t, const struct ctl *ctl, bool is_over)
{
    if (t->failed)
        return ctl_fail(CTL_FAILED, "%s cannot be written: %s; %" PRIu64 " steps are in it", t->path,
                        strerror(t->failed), t->written);
    if (t->rc && t->rc != CTL_NO_DAEMON)
        return t->rc;
    if (is_over && !t->has_ended)
        return ctl_fail(CTL_FAILED, "%s ends early: the daemon broke off after %" PRIu64 " steps", t->path,
                        t->written);
    fprintf(ctl->json ? stderr : stdout,
            is_over ? "%" PRIu64 " steps are in %s, %" PRIu64 " steps missing: ui.perfetto.dev or "
                      "chrome://tracing shows them\n"
                    : "%" PRIu64 " steps are in %s: later ones are not traced\n",
            t->written, t->path, t->missing);
    return CTL_OK;
}

int ctl_trace_end(struct ctl_trace *t, const struct ctl *ctl, bool is_over)
{
    if (!t)
        return CTL_OK;
    if (t->is_begun)
        join(t, is_over);
    close_file(t);
    int rc = t->is_begun ? say(t, ctl, is_over) : CTL_OK;
    close(t->enough);
    free(t);
    return rc;
}
