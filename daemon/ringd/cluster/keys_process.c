/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/keys_process.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "net/clock.h"

enum { END_MS = 500 /* it has nothing to do but to end */ };

struct keys_process {
    int fd;    /* owned: of packets */
    pid_t pid; /* ours to reap; 0: it is systemd's */
    bool is_gone;
    char why[300];       /* with is_gone */
    struct event *watch; /* owned; NULL before there is a loop */
    void (*lost)(void *owner, const char *why);
    void *owner;
};

/* --- its end ---------------------------------------------------------------------------------- */

/* How the process ended. Its socket closes a moment before that can be known. */
static void describe_end(struct keys_process *p, char *ret, size_t size)
{
    const int process = p->pid ? (int)syscall(SYS_pidfd_open, p->pid, 0) : -1;
    struct pollfd ended = {.fd = process, .events = POLLIN};
    siginfo_t info = {.si_pid = 0};
    snprintf(ret, size, "ended");
    if (process >= 0 && poll(&ended, 1, END_MS) > 0 &&
        !waitid(P_PIDFD, (id_t)process, &info, WEXITED | WNOHANG)) {
        if (info.si_pid && info.si_code != CLD_EXITED)
            snprintf(ret, size, "was killed by SIG%s", sigabbrev_np(info.si_status));
        p->pid = 0;
    }
    if (process >= 0)
        close(process);
}

static void lose(struct keys_process *p, const char *what)
{
    if (p->is_gone)
        return;
    p->is_gone = true;
    snprintf(p->why, sizeof p->why, "ringd-keys, which has this node's keys, %s: ringd has to start again",
             what);
    if (p->watch)
        event_del(p->watch);
    if (p->lost)
        p->lost(p->owner, p->why);
}

static void lose_ended(struct keys_process *p)
{
    char how[64];
    describe_end(p, how, sizeof how);
    lose(p, how);
}

/* It never speaks unasked: what comes between two requests is its end. */
static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    char byte;
    (void)what;
    if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
        lose(arg, "speaks without being asked");
    else
        lose_ended(arg);
}

void keys_process_watch(struct keys_process *p, struct event_base *base,
                        void (*lost)(void *owner, const char *why), void *owner)
{
    p->lost = lost;
    p->owner = owner;
    p->watch = event_new(base, p->fd, EV_READ | EV_PERSIST, on_readable, p);
    if (p->watch)
        event_add(p->watch, NULL);
    if (p->is_gone)
        lost(owner, p->why);
}

pid_t keys_process_pid(const struct keys_process *p)
{
    return p->pid;
}

const char *keys_process_trouble(const struct keys_process *p)
{
    return p->is_gone ? p->why : NULL;
}

/* --- asking ----------------------------------------------------------------------------------- */

/* True: an answer, or its end, is there. */
static bool await(const struct keys_process *p)
{
    const struct instant begin = clock_now();
    struct pollfd wait = {.fd = p->fd, .events = POLLIN};
    for (;;) {
        const uint64_t waited = clock_since_us(clock_now(), begin) / 1000;
        if (waited >= KEYS_PATIENCE_MS)
            return false;
        const int r = poll(&wait, 1, (int)(KEYS_PATIENCE_MS - waited));
        if (r > 0 || (r < 0 && errno != EINTR))
            return r > 0;
    }
}

ssize_t keys_process_ask(void *owner, const uint8_t *request, size_t n, uint8_t *answer, size_t cap)
{
    struct keys_process *p = owner;
    if (p->is_gone)
        return -EPIPE;
    ssize_t r = send(p->fd, request, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (r == (ssize_t)n && !await(p)) {
        lose(p, "does not answer");
        return -ETIMEDOUT;
    }
    if (r == (ssize_t)n)
        r = recv(p->fd, answer, cap, MSG_DONTWAIT | MSG_TRUNC);
    if (r > 0 && (size_t)r <= cap)
        return r;
    if (r > 0)
        lose(p, "answers at too great a length");
    else
        lose_ended(p);
    return -EPIPE;
}

/* --- its beginning ---------------------------------------------------------------------------- */

struct keys_process *keys_process_on(int fd, pid_t pid)
{
    struct keys_process *p = xcalloc(1, sizeof *p);
    p->fd = fd;
    p->pid = pid;
    return p;
}

static int spawn_keeper(const char *program, const char *dir, int end, pid_t *ret)
{
    char *const argv[] = {(char *)(uintptr_t) "ringd-keys", (char *)(uintptr_t)dir, NULL}, *const env[] = {
                                                                                               NULL};
    posix_spawn_file_actions_t files;
    int r = posix_spawn_file_actions_init(&files);
    if (r)
        return -r;
    r = posix_spawn_file_actions_adddup2(&files, end, KEYS_FD);
    if (!r)
        r = posix_spawn_file_actions_addclosefrom_np(&files, KEYS_FD + 1);
    if (!r)
        r = posix_spawn(ret, program, &files, NULL, argv, env);
    posix_spawn_file_actions_destroy(&files);
    return -r;
}

int keys_process_start(struct keys_process **ret, const char *program, const char *dir, struct err *err)
{
    int ends[2];
    pid_t pid = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return err_set(err, -errno, "no socket for ringd-keys: %s", strerror(errno));
    const int r = spawn_keeper(program, dir, ends[1], &pid);
    close(ends[1]);
    if (r) {
        close(ends[0]);
        return err_set(
            err, r,
            "ringd-keys cannot be started from %s: %s; it has the keys of this node: install ringd again",
            program, strerror(-r));
    }
    *ret = keys_process_on(ends[0], pid);
    return 0;
}

void keys_process_close(struct keys_process *p)
{
    if (!p)
        return;
    if (p->watch)
        event_free(p->watch);
    close(p->fd);
    char how[64];
    describe_end(p, how, sizeof how); /* so that no process is left when ringd has ended */
    free(p);
}
