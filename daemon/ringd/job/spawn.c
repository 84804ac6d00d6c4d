/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/spawn.h"

#include <endian.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/common/optable.h"
#include "daemon/common/spawn_env.h"
#include "daemon/common/xalloc.h"

struct spawn {
    pid_t pid;
    int pidfd, sock;
    struct event *on_exit, *on_read; /* owned */
    struct event *on_room;           /* owned: the socket takes bytes again */
    struct ipc_frame **waiting;      /* owned: messages it has not taken yet, the first perhaps in part */
    size_t n_waiting, bytes_waiting;
    struct evbuffer *in;       /* owned: bytes of unfinished events */
    struct progress *progress; /* owned mapping */
    const struct spawn_ops *ops;
    void *owner;
    bool reaped;
    uint64_t peak_bytes;             /* most it had resident, once it has ended */
    unsigned long long kills_before; /* by the kernel, when it began */
};

/* --- the child's side: between fork and exec only what is safe in a process with threads ------ */

static void child_exec(const char *binary, char **env, int sock, int progress, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    int adj = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adj >= 0 && write(adj, "500", 3) != 3) /* the stage goes before anything else on this machine */
        close(adj);
    /* The loop's handlers write into a socket shared with the daemon: gone before a signal is let
     * in. */
    for (int signal_number = 1; signal_number < NSIG; signal_number++)
        signal(signal_number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int high_sock = fcntl(sock, F_DUPFD, 16), high_progress = fcntl(progress, F_DUPFD, 16);
    if (dup2(high_sock, IPC_FD) < 0 || dup2(high_progress, IPC_PROGRESS_FD) < 0 ||
        close_range(IPC_PROGRESS_FD + 1, ~0U, 0))
        _exit(127);
    char *argv[] = {(char *)(uintptr_t)binary, NULL};
    execve(binary, argv, env);
    _exit(127);
}

/* --- events ----------------------------------------------------------------------------------- */

static void take_events(struct spawn *s)
{
    for (;;) {
        uint32_t length;
        if (evbuffer_copyout(s->in, &length, 4) < 4)
            return;
        size_t n = le32toh(length);
        if (n > IPC_MAX || evbuffer_get_length(s->in) < n + 4)
            return;
        evbuffer_drain(s->in, 4);
        json_t *event = json_loadb((const char *)evbuffer_pullup(s->in, (ssize_t)n), n, 0, NULL);
        evbuffer_drain(s->in, n);
        const char *kind = json_string_value(json_object_get(event, "ev"));
        if (kind)
            s->ops->event(s->owner, kind, event);
        json_decref(event);
    }
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
    struct spawn *s = arg;
    (void)what;
    int n = evbuffer_read(s->in, fd, 1 << 16);
    if (n <= 0 && !(n < 0 && errno == EAGAIN))
        event_del(s->on_read);
    take_events(s);
}

/* How many processes the kernel has ended since it started because memory ran out; 0: it does not
 * tell. */
static unsigned long long out_of_memory_kills(void)
{
    char line[128];
    unsigned long long n, kills = 0;
    FILE *f = fopen("/proc/vmstat", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "oom_kill %llu", &n) == 1)
            kills = n;
    if (f)
        fclose(f);
    return kills;
}

static void describe_end(char *buf, size_t size, const siginfo_t *info, bool kernel_killed)
{
    if (info->si_code == CLD_EXITED && info->si_status == 127)
        snprintf(buf, size, "could not be started: is ringd-stage where --stage-binary says?");
    else if (info->si_code == CLD_EXITED)
        snprintf(buf, size, "%s", info->si_status ? "ended with an error it could not report" : "");
    else if (info->si_status == SIGKILL)
        snprintf(buf, size, "was killed by SIGKILL: %s",
                 kernel_killed ? "by the kernel, for this machine's memory ran out"
                               : "by hand, or by the kernel because memory ran out (see journalctl -k)");
    else
        snprintf(buf, size, "was killed by SIG%s", sigabbrev_np(info->si_status));
}

/* What it said before it ended is still in the socket: read that first, so that its own words come
 * before "ended". */
static void on_exit_event(evutil_socket_t fd, short what, void *arg)
{
    struct spawn *s = arg;
    (void)fd;
    (void)what;
    siginfo_t info = {0};
    struct rusage used = {0};
    if (syscall(SYS_waitid, P_PID, s->pid, &info, WEXITED | WNOHANG, &used) || !info.si_pid)
        return;
    s->reaped = true;
    s->peak_bytes = (uint64_t)used.ru_maxrss * 1024;
    event_del(s->on_exit);
    while (evbuffer_read(s->in, s->sock, 1 << 16) > 0)
        ;
    event_del(s->on_read);
    char text[sizeof s->progress->last_words];
    progress_last_words(s->progress, text);
    if (!*text)
        describe_end(text, sizeof text, &info, out_of_memory_kills() > s->kills_before);
    const struct spawn_ops *ops = s->ops;
    void *owner = s->owner;
    take_events(s);
    ops->ended(owner, text);
}

/* --- messages --------------------------------------------------------------------------------- */

static void push(struct spawn *s)
{
    size_t sent = 0;
    int r = 0;
    while (sent < s->n_waiting && !(r = ipc_frame_push(s->waiting[sent], s->sock)))
        ipc_frame_free(s->waiting[sent++]);
    s->n_waiting -= sent;
    memmove(s->waiting, s->waiting + sent, s->n_waiting * sizeof(struct ipc_frame *));
    s->bytes_waiting = 0;
    for (size_t i = 0; i < s->n_waiting; i++)
        s->bytes_waiting += ipc_frame_left(s->waiting[i]);
    if (r == -EAGAIN)
        event_add(s->on_room, NULL); /* else the stage is gone, which is told elsewhere */
}

static void on_room(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    push(arg);
}

static int send_frame(struct spawn *s, struct ipc_frame *frame)
{
    if (s->bytes_waiting > IPC_MAX) {
        ipc_frame_free(frame);
        return -EAGAIN;
    }
    s->waiting = xreallocarray(s->waiting, s->n_waiting + 1, sizeof(struct ipc_frame *));
    s->waiting[s->n_waiting++] = frame;
    push(s);
    return 0;
}

int spawn_send(struct spawn *s, json_t *message)
{
    struct ipc_frame *frame;
    int r = ipc_frame_new(&frame, message, -1);
    return r ? r : send_frame(s, frame);
}

int spawn_send_lane(struct spawn *s, const struct ipc_lane *lane, int fd)
{
    struct ipc_frame *frame;
    int r = ipc_frame_new_lane(&frame, lane, fd);
    return r ? r : send_frame(s, frame);
}

/* --- start and end ---------------------------------------------------------------------------- */

static int watch(struct spawn *s, struct event_base *base)
{
    s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
    s->in = evbuffer_new();
    s->on_exit = s->pidfd < 0 ? NULL : event_new(base, s->pidfd, EV_READ | EV_PERSIST, on_exit_event, s);
    s->on_read = event_new(base, s->sock, EV_READ | EV_PERSIST, on_read, s);
    s->on_room = event_new(base, s->sock, EV_WRITE, on_room, s);
    if (!s->in || !s->on_exit || !s->on_read || !s->on_room)
        return -ENOMEM;
    event_add(s->on_exit, NULL);
    event_add(s->on_read, NULL);
    return 0;
}

int spawn_start(struct spawn **ret, struct event_base *base, const struct opts *opts, int threads,
                const struct spawn_ops *ops, void *owner, struct err *err)
{
    int pair[2] = {-1, -1}, progress = -1;
    struct spawn *s = xcalloc(1, sizeof *s);
    *s = (struct spawn){.pidfd = -1, .sock = -1, .ops = ops, .owner = owner, .reaped = true};
    int r = progress_create(&s->progress, &progress);
    if (!r && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        r = -errno;
    if (!r) {
        size_t inherited;
        char **env = spawn_environment(threads, &inherited);
        pid_t parent = getpid();
        sigset_t all, before; /* a signal for a child that is not a stage yet waits until it is */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        s->pid = fork();
        if (s->pid == 0)
            child_exec(opts_str(opts, "stage-binary"), env, pair[1], progress, parent);
        r = s->pid < 0 ? -errno : 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        spawn_environment_free(env, inherited);
    }
    if (!r) {
        s->reaped = false;
        s->kills_before = out_of_memory_kills();
        s->sock = pair[0];
        fcntl(s->sock, F_SETFL, O_NONBLOCK);
        r = watch(s, base);
        if (!r)
            r = spawn_send(s, json_pack("{s:s s:s}", "do", "cell", "state", opts_str(opts, "state-dir")));
    } else if (pair[0] >= 0) {
        close(pair[0]);
    }
    if (pair[1] >= 0)
        close(pair[1]);
    if (progress >= 0)
        close(progress);
    if (r) {
        spawn_free(s);
        return err_set(err, r, "a stage process cannot be started: %s", strerror(-r));
    }
    *ret = s;
    return 0;
}

void spawn_kill(struct spawn *s, int signal)
{
    if (!s->reaped)
        syscall(SYS_pidfd_send_signal, s->pidfd, signal, NULL, 0);
}

pid_t spawn_pid(const struct spawn *s)
{
    return s->pid;
}

uint64_t spawn_memory(const struct spawn *s)
{
    char path[64];
    unsigned long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)s->pid);
    FILE *f = s->reaped ? NULL : fopen(path, "re");
    if (f && fscanf(f, "%*u %llu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t spawn_peak(const struct spawn *s)
{
    return s->peak_bytes;
}

const struct progress *spawn_progress(const struct spawn *s)
{
    return s->progress;
}

void spawn_free(struct spawn *s)
{
    if (!s)
        return;
    if (!s->reaped) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    }
    if (s->on_exit)
        event_free(s->on_exit);
    if (s->on_read)
        event_free(s->on_read);
    if (s->on_room)
        event_free(s->on_room);
    for (size_t i = 0; i < s->n_waiting; i++)
        ipc_frame_free(s->waiting[i]);
    free(s->waiting);
    if (s->in)
        evbuffer_free(s->in);
    if (s->pidfd >= 0)
        close(s->pidfd);
    if (s->sock >= 0)
        close(s->sock);
    progress_detach(s->progress);
    free(s);
}
