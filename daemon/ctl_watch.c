/* SPDX-License-Identifier: MIT
 *
 * Owns the signals while a job is followed: they come as readable bytes, beside the stream. Called by train,
 * generate, score. */
#include "daemon/ctl_watch.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/ctl_client.h"
#include "daemon/ctl_print.h"
#include "daemon/xalloc.h"

/* Streams that end at once, one after the other, before it is given up. */
enum { EMPTY_STREAMS_MAX = 3 };

struct watching {
    const struct ctl *ctl;
    const struct watch *watch;
    uint64_t job;
    json_t *end; /* owned */
    int signal_fd;
    int signals;
    bool heard; /* something came in this stream */
};

static bool on_event(void *owner, const char *type, const json_t *data)
{
    struct watching *w = owner;
    w->heard = true;
    if (!strcmp(type, "end")) {
        w->end = json_deep_copy(data);
        return false;
    }
    w->watch->event(w->watch->owner, type, data);
    return true;
}

static void cancel(struct watching *w)
{
    char path[64];
    json_t *reply = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%" PRIu64, w->job);
    fprintf(stderr,
            "\nringctl: cancelling job %" PRIu64 " and waiting for its end; ^C again leaves at once\n",
            w->job);
    if (ctl_request(w->ctl, "DELETE", path, NULL, &reply) == CTL_OK)
        json_decref(reply);
}

static bool on_signal(void *owner, int index)
{
    (void)index;
    struct watching *w = owner;
    struct signalfd_siginfo info;
    if (read(w->signal_fd, &info, sizeof info) != sizeof info)
        return true;
    if (++w->signals == 1)
        cancel(w);
    return w->signals < 2;
}

static bool has_ended(const json_t *job)
{
    const char *state = field_text(job, "state", "");
    return !strcmp(state, "done") || !strcmp(state, "failed") || !strcmp(state, "cancelled");
}

/* The stream is over without the job's end: has the end been missed, or is there more to come? */
static int look_again(struct watching *w)
{
    char path[64];
    json_t *job = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%" PRIu64, w->job);
    int rc = ctl_request(w->ctl, "GET", path, NULL, &job);
    if (rc)
        return rc;
    if (has_ended(job))
        w->end = json_incref(job);
    json_decref(job);
    return CTL_OK;
}

static int follow_to_the_end(struct watching *w)
{
    char path[80];
    struct ctl_stream s = {
        .event = on_event, .readable = on_signal, .owner = w, .fds = &w->signal_fd, .n_fds = 1};
    int rc = CTL_OK, empty = 0;
    snprintf(path, sizeof path, "/v1/jobs/%" PRIu64 "/events", w->job);
    while (!rc && !w->end && w->signals < 2) {
        w->heard = false;
        rc = ctl_follow(w->ctl, path, &s, true);
        empty = w->heard ? 0 : empty + 1;
        if ((rc == CTL_OK || rc == CTL_NO_DAEMON) && !w->end && w->signals < 2)
            rc = look_again(w);
        if (!rc && !w->end && empty == EMPTY_STREAMS_MAX)
            rc = ctl_fail(CTL_FAILED,
                          "job %" PRIu64 " runs, but its events do not come: see `ringctl job %" PRIu64 "`",
                          w->job, w->job);
    }
    return rc;
}

int ctl_watch(const struct ctl *ctl, uint64_t job, const struct watch *watch, json_t **ret_end)
{
    struct watching w = {.ctl = ctl, .watch = watch, .job = job};
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &before);
    w.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int rc = w.signal_fd < 0 ? ctl_fail(CTL_FAILED, "signals cannot be awaited: %m") : follow_to_the_end(&w);
    if (w.signal_fd >= 0)
        close(w.signal_fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (w.signals >= 2 || (w.signals && rc == CTL_OK && strcmp(field_text(w.end, "state", ""), "done") != 0))
        rc = CTL_INTERRUPTED;
    if (rc == CTL_NO_DAEMON)
        ctl_fail(rc,
                 "job %" PRIu64 " was lost sight of: once ringd is back, `ringctl job %" PRIu64
                 "` tells what became of it",
                 job, job);
    if (rc)
        json_decref(w.end);
    else
        *ret_end = w.end;
    return rc;
}

int ctl_watch_verdict(const json_t *end)
{
    const char *state = field_text(end, "state", "?");
    if (!strcmp(state, "done"))
        return CTL_OK;
    const char *why = field_text(end, "error", NULL);
    return ctl_fail(CTL_FAILED, "job %.0f %s%s%s", field_number(end, "id"),
                    !strcmp(state, "cancelled") ? "was cancelled" : state, why ? ": " : "", why ? why : "");
}
