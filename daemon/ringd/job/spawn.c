/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/spawn.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/optable.h"
#include "daemon/common/spawn_env.h"
#include "daemon/common/user_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/machine/cgroup.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/spawn_socket.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"
#include "net/clock.h"

enum {
    KILL_AFTER_US = 2000000,
    GIVE_UP_US = 5000000,
    CLOSE_US = 2000000, /* of our own end, all processes together */
    LOOK_US = 200000,   /* until we look again at what the kernel does not report */
    LOOK_MOST_US = 60000000,
    STUCK_MAX = 8 /* processes that do not end, until no other is started */
};

enum spawn_state {
    SPAWN_RUNS,
    SPAWN_ASKED,  /* to end, or it closed its socket */
    SPAWN_KILLED, /* the kernel has to end it */
    SPAWN_STUCK,  /* it did not */
    SPAWN_REAPED
};

struct spawn {
    LIST_ENTRY(spawn) next;
    struct spawner *m; /* borrowed: owner */
    enum spawn_state state;
    pid_t pid;
    int pidfd;
    struct event *on_exit;       /* owned */
    struct timer *due;           /* owned: the end of the patience with this state */
    struct timer *look;          /* owned: for an end that the kernel does not report */
    struct spawn_socket *socket; /* owned */
    struct progress *progress;   /* owned mapping */
    struct cgroup *group;        /* owned; NULL: none */
    const struct spawn_ops *ops; /* NULL: the owner has let go, or knows the end */
    void *owner;
    bool is_dropped; /* by its owner: freed when the kernel has let go too */
    bool is_closed;  /* its socket, by itself */
    enum spawn_fate fate;
    char cause[200]; /* why it was killed; "": at the owner's wish */
    uint64_t within_us;
    uint64_t peak_bytes;             /* most it had resident, once it has ended */
    unsigned long long kills_before; /* by the kernel, when it began */
};

struct spawner {
    struct spawner_setup setup;
    char *groups; /* owned */
    char user[64];
    LIST_HEAD(, spawn) all;
    struct timer *sweep; /* owned: frees what nobody needs any more, outside of all callbacks */
    uint64_t sweep_us;   /* until it is tried again */
};

/* --- the child's side: between fork and exec only what is safe in a process with threads ------ */

/* models: where a stage finds the models that a plan names as ORG/NAME@COMMIT, on every node below
 * its own folder. Jobs name all else by absolute paths. */
static void child_exec(const char *binary, const char *models, char **env, int sock, int page, pid_t parent)
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
    int high_sock = fcntl(sock, F_DUPFD, 16), high_page = fcntl(page, F_DUPFD, 16);
    if (dup2(high_sock, IPC_FD) < 0 || dup2(high_page, IPC_PROGRESS_FD) < 0 ||
        close_range(IPC_PROGRESS_FD + 1, ~0U, 0) || (chdir(models) && chdir("/")))
        _exit(127);
    char *argv[] = {(char *)(uintptr_t)binary, NULL};
    execve(binary, argv, env);
    _exit(127);
}

/* --- its end ---------------------------------------------------------------------------------- */

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

static void sweep_in(struct spawner *m, uint64_t us)
{
    m->sweep_us = us;
    timer_set_us(m->sweep, us);
}

static void tell_ended(struct spawn *s, const char *text)
{
    const struct spawn_ops *ops = s->ops;
    s->ops = NULL;
    if (ops)
        ops->ended(s->owner, text);
}

/* Its number is its own until it is reaped. */
static void send_signal(const struct spawn *s, int signal_number)
{
    kill(s->pid, signal_number);
}

static void patience(struct spawn *s, enum spawn_state state, uint64_t us)
{
    s->state = state;
    timer_set_us(s->due, us);
}

static void kill_now(struct spawn *s)
{
    send_signal(s, SIGKILL);
    if (s->group)
        cgroup_kill(s->group);
    patience(s, SPAWN_KILLED, s->m->setup.give_up_us);
}

void spawn_kill(struct spawn *s, const char *cause)
{
    if (s->state >= SPAWN_KILLED)
        return;
    snprintf(s->cause, sizeof s->cause, "%s", cause);
    spawn_socket_stop(s->socket);
    kill_now(s);
}

void spawn_end(struct spawn *s)
{
    if (s->state != SPAWN_RUNS)
        return;
    send_signal(s, SIGTERM);
    send_signal(s, SIGCONT); /* a stopped process cannot die of SIGTERM */
    patience(s, SPAWN_ASKED, s->m->setup.kill_after_us);
}

void spawn_free(struct spawn *s)
{
    if (!s)
        return;
    s->ops = NULL;
    s->is_dropped = true;
    spawn_socket_stop(s->socket);
    if (s->state < SPAWN_KILLED)
        kill_now(s);
    else if (s->state == SPAWN_REAPED)
        sweep_in(s->m, 0);
}

/* It sleeps in the kernel where no signal wakes it. */
static void give_up(struct spawn *s)
{
    const struct err_amounts memory = err_amounts(spawn_memory(s), 0);
    char text[sizeof s->cause + 100];
    s->state = SPAWN_STUCK;
    log_warning("stage process %d was killed and does not end: it may wait for a disk or a device; its %s of "
                "memory stay taken until it ends",
                (int)s->pid, memory.need);
    snprintf(text, sizeof text, "%s%swas killed and does not end (process %d)", s->cause,
             *s->cause ? ", " : "", (int)s->pid);
    spawn_socket_stop(s->socket);
    tell_ended(s, text);
}

static void on_due(void *owner)
{
    struct spawn *s = owner;
    char text[100];
    if (s->state == SPAWN_RUNS) {
        snprintf(text, sizeof text, "was not done within %g s", (double)s->within_us / 1e6);
        spawn_kill(s, text);
    } else if (s->state == SPAWN_ASKED) {
        spawn_kill(s, s->is_closed ? "closed its connection with ringd and went on" : "");
    } else if (s->state == SPAWN_KILLED) {
        give_up(s);
    }
}

static bool reap(struct spawn *s, siginfo_t *ret)
{
    struct rusage used = {0};
    *ret = (siginfo_t){0};
    if (syscall(SYS_waitid, P_PID, s->pid, ret, WEXITED | WNOHANG, &used) || !ret->si_pid)
        return false;
    if (s->state == SPAWN_STUCK)
        log_info("stage process %d has ended at last", (int)s->pid);
    s->state = SPAWN_REAPED;
    s->peak_bytes = (uint64_t)used.ru_maxrss * 1024;
    return true;
}

/* The group knows of itself alone, the count of the machine is of all processes. */
static enum spawn_fate fate_of(const struct spawn *s, const siginfo_t *info, bool has_words, bool ran_out)
{
    if (info->si_code == CLD_EXITED || *s->cause || has_words)
        return SPAWN_HAS_FAILED;
    return ran_out || (s->group && cgroup_ran_out(s->group)) ? SPAWN_WAS_STARVED : SPAWN_WAS_KILLED;
}

/* What it said before it ended is still in the socket: read that first, so that its own words come
 * before "ended". */
static void look(struct spawn *s)
{
    siginfo_t info;
    char text[sizeof s->progress->last_words];
    if (s->on_exit)
        event_del(s->on_exit);
    if (!reap(s, &info)) { /* a debugger that traces it hears of its end first */
        timer_set_us(s->look, LOOK_US);
        return;
    }
    timer_stop(s->due);
    if (!*s->cause)
        spawn_socket_drain(s->socket);
    progress_last_words(s->progress, text);
    const bool ran_out = info.si_status == SIGKILL && cgroup_machine_kills() > s->kills_before;
    s->fate = fate_of(s, &info, *text, ran_out);
    if (*s->cause)
        snprintf(text, sizeof text, "%s", s->cause);
    else if (!*text)
        describe_end(text, sizeof text, &info, ran_out);
    tell_ended(s, text);
    if (s->is_dropped)
        sweep_in(s->m, 0);
}

static void on_exit_event(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    look(arg);
}

static void on_look(void *owner)
{
    look(owner);
}

/* --- its socket ------------------------------------------------------------------------------- */

static void on_event(void *owner, const char *kind, json_t *event)
{
    struct spawn *s = owner;
    if (s->ops)
        s->ops->event(s->owner, kind, event);
}

static void on_broken(void *owner, const char *why)
{
    spawn_kill(owner, why);
}

/* As it does when it ends. If it does not end, nobody can talk to it any more. */
static void on_closed(void *owner)
{
    struct spawn *s = owner;
    if (s->state != SPAWN_RUNS)
        return;
    s->is_closed = true;
    patience(s, SPAWN_ASKED, s->m->setup.kill_after_us);
}

int spawn_send_file(struct spawn *s, json_t *message, int fd)
{
    struct ipc_frame *frame;
    int r = ipc_frame_new(&frame, message, fd);
    return r ? r : spawn_socket_send(s->socket, frame);
}

int spawn_send_lane(struct spawn *s, const struct ipc_lane *lane, int fd)
{
    struct ipc_frame *frame;
    int r = ipc_frame_new_lane(&frame, lane, fd);
    return r ? r : spawn_socket_send(s->socket, frame);
}

static void give_back(void *loan)
{
    loan_drop(loan);
}

int spawn_lend(struct spawn *s, struct loan *loan)
{
    struct ipc_frame *frame;
    size_t n;
    int r = loan ? spawn_send(s, loan_message(loan)) : 0;
    if (r || !loan)
        return r;
    const int *fds = loan_fds(loan, &n);
    r = ipc_frame_new_fds(&frame, fds, n, give_back, loan);
    if (r)
        return r;
    loan_hold(loan);
    return spawn_socket_send(s->socket, frame);
}

/* --- its memory ------------------------------------------------------------------------------- */

int spawn_confine(struct spawn *s, uint64_t job)
{
    int r = s->m->groups && !s->group ? cgroup_new(&s->group, s->m->groups, job, s->pid) : 0;
    return !r && s->group ? cgroup_add(s->group, s->pid) : r;
}

enum spawn_fate spawn_fate(const struct spawn *s)
{
    return s->fate;
}

pid_t spawn_pid(const struct spawn *s)
{
    return s->pid;
}

struct cgroup *spawn_group(const struct spawn *s)
{
    return s->group;
}

uint64_t spawn_memory(const struct spawn *s)
{
    char path[64];
    unsigned long long pages = 0;
    /* In a service, /proc hides a process that lets nobody look into its memory. */
    const uint64_t grouped = cgroup_memory(s->group);
    if (grouped)
        return grouped;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)s->pid);
    FILE *f = s->state == SPAWN_REAPED ? NULL : fopen(path, "re");
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

/* --- start ------------------------------------------------------------------------------------ */

static int fork_stage(struct spawn *s, int sock, int progress)
{
    size_t inherited;
    const char *given = opts_str(s->m->setup.opts, "stage-binary"),
               *models = opts_str(s->m->setup.opts, "models-dir");
    char *real = realpath(given, NULL);
    char **env = spawn_environment(*s->m->setup.threads, &inherited);
    pid_t parent = getpid();
    sigset_t all, before; /* a signal for a child that is not a stage yet waits until it is */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->pid = fork();
    if (s->pid == 0)
        child_exec(real ? real : given, models ? models : "/", env, sock, progress, parent);
    int r = s->pid < 0 ? -errno : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    spawn_environment_free(env, inherited);
    free(real);
    return r;
}

static void watch_end(struct spawn *s)
{
    s->kills_before = cgroup_machine_kills();
    s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
    if (s->pidfd < 0) { /* too many files are open: its end has to be looked for */
        timer_set_us(s->look, LOOK_US);
        return;
    }
    s->on_exit = event_new(s->m->setup.base, s->pidfd, EV_READ | EV_PERSIST, on_exit_event, s);
    event_add(s->on_exit, NULL);
}

static size_t count_stuck(const struct spawner *m)
{
    const struct spawn *s;
    size_t n = 0;
    LIST_FOREACH (s, &m->all, next)
        n += s->state == SPAWN_STUCK;
    return n;
}

static void begin(struct spawn *s, struct spawner *m, int sock)
{
    static const struct spawn_socket_ops socket_ops = {on_event, on_broken, on_closed};
    struct event_base *base = m->setup.base;
    LIST_INSERT_HEAD(&m->all, s, next);
    s->due = timer_new(base, on_due, s);
    s->look = timer_new(base, on_look, s);
    s->socket = spawn_socket_new(base, sock, &socket_ops, s);
    if (s->within_us)
        timer_set_us(s->due, s->within_us);
    watch_end(s);
}

int spawn_start(struct spawn **ret, struct spawner *m, uint64_t within_us, const struct spawn_ops *ops,
                void *owner, struct err *err)
{
    int pair[2] = {-1, -1}, progress = -1;
    if (count_stuck(m) >= STUCK_MAX)
        return err_set(err, -EBUSY,
                       "a stage process cannot be started: %d that were killed have not ended, they may wait "
                       "for a disk or a device; if that does not come back, restart this machine",
                       STUCK_MAX);
    struct spawn *s = xcalloc(1, sizeof *s);
    *s = (struct spawn){.m = m, .pidfd = -1, .ops = ops, .owner = owner, .within_us = within_us};
    int r = progress_create(&s->progress, &progress);
    if (!r && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        r = -errno;
    if (!r)
        r = fork_stage(s, pair[1], progress);
    if (pair[1] >= 0)
        close(pair[1]);
    if (progress >= 0)
        close(progress);
    if (r) {
        if (pair[0] >= 0)
            close(pair[0]);
        progress_detach(s->progress);
        free(s);
        return err_set(err, r, "a stage process cannot be started: %s", strerror(-r));
    }
    begin(s, m, pair[0]);
    r = spawn_send(s, json_pack("{s:s s:s s:s}", "do", "cell", "state", opts_str(m->setup.opts, "state-dir"),
                                "user", m->user));
    if (r) {
        spawn_free(s);
        return err_set(err, r, "a stage process cannot be started: it takes no messages: %s", strerror(-r));
    }
    *ret = s;
    return 0;
}

/* --- the spawner ------------------------------------------------------------------------------ */

/* All but its control group. */
static void release(struct spawn *s)
{
    if (s->on_exit)
        event_free(s->on_exit);
    timer_free(s->due);
    timer_free(s->look);
    spawn_socket_free(s->socket);
    progress_detach(s->progress);
    if (s->pidfd >= 0)
        close(s->pidfd);
    s->on_exit = NULL;
    s->due = s->look = NULL;
    s->socket = NULL;
    s->progress = NULL;
    s->pidfd = -1;
}

/* Also what the process itself has started, and left. */
static bool remove_group(struct spawn *s)
{
    if (!s->group)
        return true;
    cgroup_kill(s->group);
    if (cgroup_remove(s->group) == -EBUSY)
        return false;
    cgroup_free(s->group);
    s->group = NULL;
    return true;
}

static void on_sweep(void *owner)
{
    struct spawner *m = owner;
    bool is_busy = false;
    struct spawn *next;
    for (struct spawn *s = LIST_FIRST(&m->all); s; s = next) {
        next = LIST_NEXT(s, next);
        if (!s->is_dropped || s->state != SPAWN_REAPED)
            continue;
        release(s);
        if (remove_group(s)) {
            LIST_REMOVE(s, next);
            free(s);
        } else {
            is_busy = true;
        }
    }
    if (is_busy)
        sweep_in(m, m->sweep_us < LOOK_US            ? LOOK_US
                    : m->sweep_us < LOOK_MOST_US / 2 ? m->sweep_us * 2
                                                     : LOOK_MOST_US);
}

uint64_t spawner_lingering(const struct spawner *m)
{
    const struct spawn *s;
    uint64_t bytes = 0;
    LIST_FOREACH (s, &m->all, next)
        if (s->is_dropped)
            bytes += spawn_memory(s);
    return bytes;
}

struct spawner *spawner_new(const struct spawner_setup *setup)
{
    struct spawner *m = xcalloc(1, sizeof *m);
    m->setup = *setup;
    /* Asked for once, before there is a loop: a directory of users may be slow. */
    user_name(m->user, sizeof m->user);
    m->groups = setup->groups ? xstrdup(setup->groups) : NULL;
    m->setup.kill_after_us = setup->kill_after_us ? setup->kill_after_us : KILL_AFTER_US;
    m->setup.give_up_us = setup->give_up_us ? setup->give_up_us : GIVE_UP_US;
    LIST_INIT(&m->all);
    m->sweep = timer_new(setup->base, on_sweep, m);
    const char *refused = spawn_environment_refused();
    if (refused)
        log_warning(
            "%s has no effect: this service may not bind threads to CPUs; `systemctl edit ringd`, and "
            "SystemCallFilter=sched_setaffinity below [Service], allow it",
            refused);
    return m;
}

static void wait_for(struct spawn *s, struct instant until)
{
    siginfo_t info;
    const struct instant now = clock_now();
    struct pollfd end = {.fd = s->pidfd, .events = POLLIN};
    if (s->state == SPAWN_REAPED || reap(s, &info))
        return;
    if (now.us < until.us)
        poll(&end, 1, (int)((until.us - now.us) / 1000) + 1);
    reap(s, &info);
}

void spawner_free(struct spawner *m)
{
    struct spawn *s;
    if (!m)
        return;
    LIST_FOREACH (s, &m->all, next)
        if (s->state != SPAWN_REAPED)
            spawn_free(s);
    const struct instant until = {clock_now().us + CLOSE_US};
    while ((s = LIST_FIRST(&m->all))) {
        wait_for(s, until);
        release(s);
        if (!remove_group(s))
            cgroup_free(s->group);
        LIST_REMOVE(s, next);
        free(s);
    }
    timer_free(m->sweep);
    free(m->groups);
    free(m);
}
