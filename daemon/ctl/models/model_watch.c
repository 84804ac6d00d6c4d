/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/models/model_watch.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "engine/err.h"

enum { BAR = 24 };

static void draw(struct model_watch *w)
{
    const struct model_amounts m = w->amounts(w->last);
    const int full = m.total > 0 ? (int)(BAR * m.done / m.total) : 0;
    const struct err_amounts a = err_amounts((size_t)m.total, (size_t)m.done);
    char bar[BAR + 1];
    if (!w->is_terminal || m.total <= 0)
        return;
    for (int i = 0; i < BAR; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR] = '\0';
    fprintf(stderr, "\r[%s] %3.0f %%  %s of %s", bar, 100 * m.done / m.total, a.have, a.need);
    if (m.rate > 0) {
        const int left = (int)((m.total - m.done) / m.rate);
        fprintf(stderr, "  %.1f MB/s  %d:%02d left", m.rate / 1e6, left / 60, left % 60);
    }
    fputs("\033[K", stderr);
    w->is_drawn = true;
}

/* Takes over the reference. */
static bool take_row(struct model_watch *w, json_t *row)
{
    json_decref(w->last);
    w->last = row;
    draw(w);
    return !w->has_ended(row);
}

static bool on_event(void *owner, const char *type, const json_t *data)
{
    struct model_watch *w = owner;
    if (strcmp(type, w->event) != 0 || json_integer_value(json_object_get(data, "number")) != w->number)
        return true;
    return take_row(w, json_deep_copy(data));
}

static bool on_signal(void *owner, int index)
{
    struct model_watch *w = owner;
    struct signalfd_siginfo info;
    (void)index;
    if (read(w->signal_fd, &info, sizeof info) == sizeof info)
        w->is_stopped = true;
    return !w->is_stopped;
}

int model_watch_run(struct model_watch *w, json_t *row)
{
    struct ctl quiet = *w->ctl;
    sigset_t set;
    w->is_terminal = !quiet.json && isatty(STDERR_FILENO);
    w->number = json_integer_value(json_object_get(row, "number"));
    if (!take_row(w, row))
        return CTL_OK;
    quiet.json = false;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    w->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct ctl_stream stream = {
        .event = on_event, .readable = on_signal, .owner = w, .fds = &w->signal_fd, .n_fds = 1};
    const int rc = ctl_follow(&quiet, "/v1/events", &stream, false);
    close(w->signal_fd);
    if (w->is_drawn)
        fputc('\n', stderr);
    return rc ? rc : w->is_stopped ? CTL_INTERRUPTED : CTL_OK;
}
