/* SPDX-License-Identifier: MIT
 *
 * Owns the signals while a job is followed: they come as readable bytes, beside the stream, and so
 * does the answer to what ^C asks. Called by train, generate, score, attach, chat. */
#include "daemon/ctl/ctl_watch.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/ctl/terminal/ctl_ask.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_loan.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/common/xalloc.h"

/* Streams that end at once, one after the other, before it is given up. */
enum { EMPTY_STREAMS_MAX = 3 };
enum {
    BACK_S = 60,     /* a daemon that went away is waited for */
    AGAIN_MS = 5000, /* a socket that systemd holds does not change in the file system */
};

/* In the order of the fds that the stream waits for. */
enum source { SOURCE_SIGNAL, SOURCE_KEY, N_SOURCES };

enum leaving { LEAVING_NOT, LEAVING_CANCELLED, LEAVING_DETACHED };

struct watching {
    const struct ctl *ctl;
    struct watch *watch;
    const char *job; /* borrowed: its name */
    json_t *end;     /* owned */
    int fds[N_SOURCES];
    struct ctl_stream stream;
    struct ask ask;
    enum leaving leaving;
    bool heard;              /* something came in this stream */
    enum ctl_loan_end files; /* of handing in the job's files to this daemon */
};

static void say(const struct watching *w, const char *text)
{
    json_t *log = json_pack("{s:s}", "text", text);
    w->watch->event(w->watch->owner, "log", log);
    json_decref(log);
}

/* Its daemon was started again, and cannot open what this command, or one like it, had opened.
 * Once for each daemon: what did not help will not help the second time. */
static void hand_in_files(struct watching *w)
{
    char text[1200];
    if (w->files || strchr(w->job, '@')) /* only a head of this node takes them */
        return;
    w->files = ctl_loan_again(w->ctl, w->job, text, sizeof text);
    if (w->files)
        say(w, text);
}

static bool on_event(void *owner, const char *type, const json_t *data)
{
    struct watching *w = owner;
    w->heard = true;
    if (!strcmp(type, "job") && json_is_true(json_object_get(data, "wants_files"))) {
        hand_in_files(w);
        if (w->files == CTL_LOAN_DONE) /* it was so */
            return true;
    }
    if (!strcmp(type, "end") || (w->watch->is_answer && !strcmp(type, "answer"))) {
        w->end = json_deep_copy(data);
        json_object_set_new(w->end, "name", json_string(w->job));
        return false;
    }
    if (!w->ask.is_open || !w->watch->is_chatty)
        w->watch->event(w->watch->owner, type, data);
    return true;
}

/* --- ^C --------------------------------------------------------------------------------------- */

static void cancel(struct watching *w)
{
    char path[CTL_JOB_PATH];
    json_t *reply = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%s", w->job);
    w->leaving = LEAVING_CANCELLED;
    if (!w->watch->is_answer)
        fprintf(stderr, "\nringctl: cancelling job %s and waiting for its end; ^C again leaves at once\n",
                w->job);
    if (ctl_request(w->ctl, "DELETE", path, NULL, &reply) == CTL_OK)
        json_decref(reply);
}

static bool detach(struct watching *w)
{
    w->leaving = LEAVING_DETACHED;
    fprintf(stderr,
            "\nringctl: job %s goes on without you: `ringctl attach %s`"
            " follows it again, `ringctl cancel %s` ends it\n",
            w->job, w->job, w->job);
    return false;
}

/* A job of ringctl local ends with its ring. */
static bool ends_with_its_ring(void)
{
    return getenv("RINGCTL_LOCAL");
}

/* A short job is its answer: it does not go on alone either. */
static bool can_detach(const struct watching *w)
{
    return w->watch->can_detach && !ends_with_its_ring();
}

static bool ask_what_to_do(struct watching *w)
{
    char question[240];
    snprintf(question, sizeof question,
             "\nringctl: detach from job %s, cancel it, or keep watching? [d/c/k; ^C again detaches] ",
             w->job);
    if (!ask_open(&w->ask, question))
        return detach(w);
    w->stream.n_fds = N_SOURCES;
    return true;
}

static void close_question(struct watching *w)
{
    ask_close(&w->ask);
    w->stream.n_fds = SOURCE_KEY;
}

static bool on_key(struct watching *w)
{
    int key = ask_key(&w->ask);
    switch (key) {
    case 'd':
    case 'D':
    case 0: /* the terminal is gone */ close_question(w); return detach(w);
    case 'c':
    case 'C':
        close_question(w);
        cancel(w);
        return true;
    case 'k':
    case 'K':
    case '\n':
        close_question(w);
        fputc('\n', stderr);
        return true;
    default: return true;
    }
}

static bool on_signal(struct watching *w)
{
    struct signalfd_siginfo info;
    if (read(w->fds[SOURCE_SIGNAL], &info, sizeof info) != sizeof info)
        return true;
    if (w->leaving == LEAVING_CANCELLED)
        return can_detach(w) ? detach(w) : (w->leaving = LEAVING_DETACHED, false);
    if (w->ask.is_open) {
        close_question(w);
        return detach(w);
    }
    if (!can_detach(w)) {
        cancel(w);
        if (w->watch->is_answer && info.ssi_signo != SIGINT)
            w->leaving = LEAVING_DETACHED;
        return w->leaving == LEAVING_CANCELLED;
    }
    return info.ssi_signo == SIGINT && ask_can() ? ask_what_to_do(w) : detach(w);
}

static bool on_readable(void *owner, int index)
{
    return index == SOURCE_KEY ? on_key(owner) : on_signal(owner);
}

/* --- to the end ------------------------------------------------------------------------------- */

static bool has_ended(const json_t *job)
{
    const char *state = field_text(job, "state", "");
    return !strcmp(state, "done") || !strcmp(state, "failed") || !strcmp(state, "cancelled");
}

/* The daemon does not answer any more, and will perhaps. */
static bool is_away(const struct watching *w, int rc)
{
    return rc == CTL_NO_DAEMON && w->watch->outlives && !ends_with_its_ring() && !strchr(w->job, '@') &&
           w->leaving == LEAVING_NOT;
}

/* The stream is over without the job's end: has the end been missed, or is there more to come? */
static int look_again(struct watching *w)
{
    char path[CTL_JOB_PATH];
    json_t *job = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%s", w->job);
    struct ctl quiet = *w->ctl;
    char why[512];
    quiet.complaint = why;
    quiet.complaint_size = sizeof why;
    int rc = ctl_request(&quiet, "GET", path, NULL, &job);
    if (rc)
        return is_away(w, rc) ? rc : ctl_complain(w->ctl, rc, "%s", why);
    if (has_ended(job) || (w->watch->is_answer && json_is_true(json_object_get(job, "idle"))))
        w->end = json_incref(job);
    json_object_set_new(w->end, "name", json_string(w->job));
    json_decref(job);
    return CTL_OK;
}

/* --- a daemon that is started again ----------------------------------------------------------- */

/* The folder of the socket is watched: a socket is made there, and opened once it listens. −1: that
 * cannot be. */
static int watch_folder(const char *socket)
{
    const char *slash = strrchr(socket, '/');
    char *folder = slash ? xstrndup(socket, (size_t)(slash - socket) + 1) : xstrdup(".");
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0 && inotify_add_watch(fd, folder, IN_CREATE | IN_ATTRIB | IN_MOVED_TO) < 0) {
        close(fd);
        fd = -1;
    }
    free(folder);
    return fd;
}

static bool answers(const struct ctl *ctl)
{
    char text[512];
    struct ctl quiet = *ctl;
    json_t *reply = NULL;
    quiet.complaint = text;
    quiet.complaint_size = sizeof text;
    const bool is_there = ctl_request(&quiet, "GET", "/v1/status", NULL, &reply) == CTL_OK;
    json_decref(reply);
    return is_there;
}

/* CTL_OK: ringd answers; CTL_INTERRUPTED: signal_fd can be read; CTL_NO_DAEMON: neither within
 * `seconds`. */
static int wait_for_daemon(const struct ctl *ctl, int signal_fd, unsigned seconds)
{
    const int64_t until = ctl_now_ms() + (int64_t)seconds * 1000;
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN},
                           {.fd = watch_folder(ctl->socket), .events = POLLIN}};
    int rc = CTL_NO_DAEMON;
    for (int64_t left = until - ctl_now_ms(); left > 0; left = until - ctl_now_ms()) {
        char events[4096];
        if (answers(ctl)) {
            rc = CTL_OK;
            break;
        }
        poll(fds, 2, (int)(left < AGAIN_MS ? left : AGAIN_MS));
        if (fds[0].revents) {
            rc = CTL_INTERRUPTED;
            break;
        }
        while (fds[1].fd >= 0 && read(fds[1].fd, events, sizeof events) > 0)
            ;
    }
    if (fds[1].fd >= 0)
        close(fds[1].fd);
    return rc;
}

/* Its daemon went away, and the job goes on with the next one. The new one counts events from the
 * beginning. */
static int await_daemon(struct watching *w)
{
    char text[160];
    snprintf(text, sizeof text, "ringd has ended: job %s goes on when ringd is started again", w->job);
    say(w, text);
    w->stream.last_id = 0;
    w->files = CTL_LOAN_NONE;
    const int rc = wait_for_daemon(w->ctl, w->fds[SOURCE_SIGNAL], BACK_S);
    if (rc != CTL_INTERRUPTED)
        return rc;
    detach(w);
    return CTL_OK;
}

/* --- all of it -------------------------------------------------------------------------------- */

static int follow_to_the_end(struct watching *w)
{
    char path[CTL_JOB_PATH];
    int rc = CTL_OK, empty = 0;
    snprintf(path, sizeof path, "/v1/jobs/%s/events", w->job);
    if (w->watch->outlives) /* its event may be long ago */
        hand_in_files(w);
    while (!rc && !w->end && w->leaving != LEAVING_DETACHED) {
        w->heard = false;
        rc = ctl_follow(w->ctl, path, &w->stream, true);
        empty = w->heard ? 0 : empty + 1;
        if ((rc == CTL_OK || rc == CTL_NO_DAEMON) && !w->end && w->leaving != LEAVING_DETACHED)
            rc = look_again(w);
        if (is_away(w, rc) && !(rc = await_daemon(w)) && w->leaving == LEAVING_NOT)
            rc = look_again(w);
        if (!rc && !w->end && empty == EMPTY_STREAMS_MAX)
            rc = ctl_fail(CTL_FAILED, "job %s runs, but its events do not come: see `ringctl job %s`", w->job,
                          w->job);
    }
    return rc;
}

/* What follow_to_the_end came to, as an exit status. */
static int settle(struct watching *w, int rc)
{
    if (w->leaving == LEAVING_DETACHED || (w->leaving && !w->watch->is_answer && rc == CTL_OK &&
                                           strcmp(field_text(w->end, "state", ""), "done") != 0))
        return CTL_INTERRUPTED;
    if (rc == CTL_NO_DAEMON)
        ctl_fail(
            rc,
            "the connection to job %s was lost: once ringd is back, `ringctl attach %s` shows how it ended",
            w->job, w->job);
    return rc;
}

int ctl_watch(const struct ctl *ctl, const char *job, struct watch *watch, json_t **ret_end)
{
    struct watching w = {.ctl = ctl, .watch = watch, .job = job};
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &before);
    w.fds[SOURCE_SIGNAL] = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    w.fds[SOURCE_KEY] = STDIN_FILENO;
    w.stream = (struct ctl_stream){.event = on_event,
                                   .readable = on_readable,
                                   .owner = &w,
                                   .fds = w.fds,
                                   .n_fds = SOURCE_KEY,
                                   .last_id = watch->last_id};
    int rc = w.fds[SOURCE_SIGNAL] < 0 ? ctl_fail(CTL_FAILED, "signals cannot be awaited: %m")
                                      : follow_to_the_end(&w);
    watch->last_id = w.stream.last_id;
    if (w.ask.is_open) {
        close_question(&w);
        fputc('\n', stderr);
    }
    if (w.fds[SOURCE_SIGNAL] >= 0)
        close(w.fds[SOURCE_SIGNAL]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    rc = settle(&w, rc);
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
    return ctl_fail(CTL_FAILED, "job %s %s%s%s", field_text(end, "name", "?"),
                    !strcmp(state, "cancelled") ? "was cancelled" : state, why ? ": " : "", why ? why : "");
}
