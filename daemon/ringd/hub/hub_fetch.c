/* SPDX-License-Identifier: MIT
 *
 * Owns the processes until the kernel has let go of them. */
#include "daemon/ringd/hub/hub_fetch.h"

#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/common/model/model_name.h"
#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/spawn_socket.h"

enum { END_MS = 500 /* of a killed process, while the daemon ends */ };

struct hub_fetch {
    LIST_ENTRY(hub_fetch) next;
    struct spawn_socket *socket; /* owned */
    pid_t pid;
    int pidfd;                       /* owned */
    struct event *on_exit;           /* owned */
    const struct hub_fetch_ops *ops; /* NULL: the owner has let go, or knows the end */
    void *owner;
};

struct fetchers {
    struct fetchers_setup setup;
    LIST_HEAD(, hub_fetch) all;
};

extern char **environ;

/* --- its end ---------------------------------------------------------------------------------- */

static void tell_over(struct hub_fetch *f, const char *why, enum fetch_end end)
{
    const struct hub_fetch_ops *ops = f->ops;
    f->ops = NULL;
    if (ops)
        ops->over(f->owner, why, end);
}

static void release(struct hub_fetch *f)
{
    LIST_REMOVE(f, next);
    event_free(f->on_exit);
    spawn_socket_free(f->socket);
    close(f->pidfd);
    free(f);
}

/* What it said before it ended is still in the socket. */
static void on_exit_event(evutil_socket_t fd, short what, void *arg)
{
    struct hub_fetch *f = arg;
    siginfo_t info = {.si_pid = 0};
    char why[120];
    (void)fd;
    (void)what;
    if (waitid(P_PIDFD, (id_t)f->pidfd, &info, WEXITED | WNOHANG) || !info.si_pid)
        return;
    event_del(f->on_exit);
    spawn_socket_drain(f->socket);
    if (info.si_code == CLD_EXITED)
        snprintf(why, sizeof why, "ringd-fetch ended before it was done");
    else
        snprintf(why, sizeof why, "ringd-fetch was killed by SIG%s", sigabbrev_np(info.si_status));
    if (f->ops && f->ops->died) {
        const struct hub_fetch_ops *ops = f->ops;
        f->ops = NULL;
        ops->died(f->owner, why);
    } else {
        tell_over(f, why, FETCH_PASSES);
    }
    release(f);
}

void hub_fetch_stop(struct hub_fetch *f)
{
    if (!f)
        return;
    f->ops = NULL;
    spawn_socket_stop(f->socket);
    kill(f->pid, SIGKILL);
}

/* --- what it says ----------------------------------------------------------------------------- */

static void on_progress(const struct hub_fetch *f, const json_t *event)
{
    const json_int_t done = json_integer_value(json_object_get(event, "done")),
                     total = json_integer_value(json_object_get(event, "total"));
    const char *file = json_string_value(json_object_get(event, "file"));
    char clean[256];
    text_clean(clean, sizeof clean, file ? file : "", false);
    if (done >= 0 && total >= done && f->ops->progress)
        f->ops->progress(f->owner, (uint64_t)done, (uint64_t)total, clean);
}

static void on_failed(struct hub_fetch *f, const json_t *event)
{
    const char *why = json_string_value(json_object_get(event, "error"));
    char clean[600];
    text_clean(clean, sizeof clean, why && *why ? why : "ringd-fetch gives no reason", false);
    tell_over(f, clean,
              json_is_true(json_object_get(event, "passing")) ? FETCH_PASSES
              : json_is_true(json_object_get(event, "full"))  ? FETCH_IS_FULL
                                                              : FETCH_LASTS);
}

static void on_lost(const struct hub_fetch *f, const json_t *event)
{
    const json_int_t path = json_integer_value(json_object_get(event, "path"));
    const char *why = json_string_value(json_object_get(event, "error"));
    char clean[400];
    text_clean(clean, sizeof clean, why ? why : "", false);
    if (f->ops->lost)
        f->ops->lost(f->owner, (uint64_t)path, json_is_true(json_object_get(event, "wrong")), clean);
}

static void on_waits(const struct hub_fetch *f, const json_t *event)
{
    const char *why = json_string_value(json_object_get(event, "error"));
    char clean[400];
    text_clean(clean, sizeof clean, why ? why : "", false);
    if (f->ops->waits)
        f->ops->waits(f->owner, clean);
}

/* It reads what strangers send, so what it says is checked as well. */
static void on_event(void *owner, const char *kind, json_t *event)
{
    struct hub_fetch *f = owner;
    const char *model = json_string_value(json_object_get(event, "model"));
    const char *content = json_string_value(json_object_get(event, "content"));
    const json_int_t bytes = json_integer_value(json_object_get(event, "bytes"));
    if (!f->ops)
        return;
    if (!strcmp(kind, "resolved") && model && model_name_is_exact(model))
        f->ops->resolved(f->owner, model);
    else if (!strcmp(kind, "listed") && model_content_is(content) && f->ops->listed)
        f->ops->listed(f->owner, content);
    else if (!strcmp(kind, "room") && bytes > 0 && f->ops->room)
        f->ops->room(f->owner, (uint64_t)bytes);
    else if (!strcmp(kind, "progress"))
        on_progress(f, event);
    else if (!strcmp(kind, "lost"))
        on_lost(f, event);
    else if (!strcmp(kind, "waits"))
        on_waits(f, event);
    else if (!strcmp(kind, "ready") && f->ops->ready)
        f->ops->ready(f->owner, (uint64_t)json_integer_value(json_object_get(event, "want")));
    else if (!strcmp(kind, "ready") || !strcmp(kind, "idle"))
        tell_over(f, NULL, FETCH_LASTS);
    else if (!strcmp(kind, "failed"))
        on_failed(f, event);
}

static void on_broken(void *owner, const char *why)
{
    struct hub_fetch *f = owner;
    char text[200];
    snprintf(text, sizeof text, "ringd-fetch %s", why);
    kill(f->pid, SIGKILL);
    tell_over(f, text, FETCH_LASTS);
}

/* Its end follows. */
static void on_closed(void *owner)
{
    (void)owner;
}

void hub_fetch_say_room(struct hub_fetch *f, const char *why)
{
    struct ipc_frame *frame;
    if (!ipc_frame_new(&frame, json_pack("{s:s s:s*}", "do", "room", "why", why), -1))
        spawn_socket_send(f->socket, frame);
}

/* --- start ------------------------------------------------------------------------------------ */

static int spawn_it(const char *program, int end, pid_t *ret)
{
    char *const argv[] = {(char *)(uintptr_t) "ringd-fetch", NULL};
    posix_spawn_file_actions_t files;
    int r = posix_spawn_file_actions_init(&files);
    if (r)
        return -r;
    r = posix_spawn_file_actions_adddup2(&files, end, IPC_FD);
    if (!r)
        r = posix_spawn_file_actions_addclosefrom_np(&files, IPC_FD + 1);
    if (!r)
        r = posix_spawn(ret, program, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return -r;
}

/* Takes over the socket and the process. */
static struct hub_fetch *watch(struct fetchers *m, int sock, pid_t pid, int pidfd)
{
    static const struct spawn_socket_ops ops = {on_event, on_broken, on_closed};
    struct hub_fetch *f = xcalloc(1, sizeof *f);
    *f = (struct hub_fetch){.pid = pid, .pidfd = pidfd};
    f->socket = spawn_socket_new(m->setup.base, sock, &ops, f);
    f->on_exit = event_new(m->setup.base, pidfd, EV_READ | EV_PERSIST, on_exit_event, f);
    event_add(f->on_exit, NULL);
    LIST_INSERT_HEAD(&m->all, f, next);
    return f;
}

int hub_fetch_send_lane(struct hub_fetch *f, const struct ipc_lane *lane, int fd)
{
    struct ipc_frame *frame;
    const int r = ipc_frame_new_lane(&frame, lane, fd);
    return r ? r : spawn_socket_send(f->socket, frame);
}

int hub_fetch_want(struct hub_fetch *f, const json_t *want)
{
    struct ipc_frame *frame;
    const int r = ipc_frame_new(&frame, json_deep_copy(want), -1);
    return r ? r : spawn_socket_send(f->socket, frame);
}

int hub_fetch_start(struct hub_fetch **ret, struct fetchers *m, const struct hub_order *order,
                    const struct hub_fetch_ops *ops, void *owner, struct err *err)
{
    int ends[2], pidfd = -1;
    pid_t pid = 0;
    struct ipc_frame *frame;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return err_set(err, -errno, "no socket for ringd-fetch: %s", strerror(errno));
    int r = spawn_it(m->setup.program, ends[1], &pid);
    close(ends[1]);
    if (!r && (pidfd = (int)syscall(SYS_pidfd_open, pid, 0)) < 0) {
        r = -errno;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (r) {
        close(ends[0]);
        return err_set(err, r, "ringd-fetch, which brings models, cannot be started from %s: %s",
                       m->setup.program, strerror(-r));
    }
    struct hub_fetch *f = watch(m, ends[0], pid, pidfd);
    r = ipc_frame_new(&frame,
                      json_pack("{s:s s:s s:s s:s* s:s* s:b s:O* s:s* s:s*}", "do", order->what, "model",
                                order->model, "dir", m->setup.dir, "content", order->content, "list",
                                order->list, "hub", (int)order->is_of_hub, "want", order->want, "folder",
                                order->folder, "kept", order->kept),
                      -1);
    r = r ? r : spawn_socket_send(f->socket, frame);
    if (r) {
        hub_fetch_stop(f);
        return err_set(err, r, "ringd-fetch takes no messages: %s", strerror(-r));
    }
    f->ops = ops;
    f->owner = owner;
    *ret = f;
    return 0;
}

struct fetchers *fetchers_new(const struct fetchers_setup *setup)
{
    struct fetchers *m = xcalloc(1, sizeof *m);
    m->setup = *setup;
    LIST_INIT(&m->all);
    return m;
}

void fetchers_free(struct fetchers *m)
{
    struct hub_fetch *f;
    if (!m)
        return;
    LIST_FOREACH (f, &m->all, next)
        hub_fetch_stop(f);
    while ((f = LIST_FIRST(&m->all))) {
        struct pollfd end = {.fd = f->pidfd, .events = POLLIN};
        siginfo_t info;
        if (poll(&end, 1, END_MS) > 0)
            waitid(P_PIDFD, (id_t)f->pidfd, &info, WEXITED | WNOHANG);
        release(f);
    }
    free(m);
}
