/* SPDX-License-Identifier: MIT
 *
 * ringctl local: a ring on this machine, a command on its first node, and nothing left
 * afterwards. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/cores.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_ring.h"
#include "daemon/common/xalloc.h"

const struct opt_def ctl_local_options[] = {
    {.name = "keep",
     .type = OPT_FLAG,
     .help = "keep the nodes' files and print their path",
     .short_name = 'k'},
    {.name = "threads",
     .type = OPT_INT,
     .placeholder = "T",
     .min = 1,
     .max = 1024,
     .help = "threads of each node (default: an equal share of the machine's cores)"},
    {.name = NULL},
};

/* The command: a program for exec, else this ringctl again. */
static _Noreturn void become_command(const struct ctl *ctl, const struct local_ring *ring,
                                     const sigset_t *mask)
{
    bool is_exec = !strcmp(ctl->rest[0], "exec");
    char **argv = xcalloc((size_t)ctl->n_rest + 3, sizeof *argv);
    int n = 0;
    if (!is_exec)
        argv[n++] = ring->self;
    if (!is_exec && ctl->json)
        argv[n++] = xstrdup("--json");
    for (int i = is_exec; i < ctl->n_rest; i++)
        argv[n++] = ctl->rest[i];
    setenv("RINGD_SOCKET", ring->socket, 1);
    setenv("RINGCTL_LOCAL", "1", 1); /* what is submitted ends with the ring: ctl_watch.c */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (is_exec)
        execvp(argv[0], argv);
    else
        execv(ring->self, argv);
    ctl_fail(0, "%s cannot be run: %s", argv[0], strerror(errno));
    _exit(127);
}

/* ^C reaches the command from the terminal itself; a signal sent to us alone is passed on. */
static void pass_signal(int signal_fd, pid_t pid)
{
    struct signalfd_siginfo info;
    if (read(signal_fd, &info, sizeof info) == sizeof info &&
        (info.ssi_code <= 0 || info.ssi_signo != SIGINT))
        kill(pid, (int)info.ssi_signo);
}

static int exit_status(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Waits until the command ends. A node that ends earlier is reported at once; the command goes
 * on. */
static int watch_command(struct local_ring *ring, pid_t pid, int pid_fd)
{
    struct pollfd p[2 + RING_NODES_MAX] = {{.fd = pid_fd, .events = POLLIN},
                                           {.fd = ring->signal_fd, .events = POLLIN}};
    for (int i = 0; i < ring->n; i++)
        p[2 + i] = (struct pollfd){.fd = ring->nodes[i].pid_fd, .events = POLLIN};
    while (!p[0].revents) {
        if (poll(p, (nfds_t)(2 + ring->n), -1) <= 0)
            continue;
        if (p[1].revents)
            pass_signal(ring->signal_fd, pid);
        for (int i = 0; i < ring->n; i++) {
            if (p[2 + i].revents) {
                ring_tell_end(ring, i);
                p[2 + i].fd = -1;
                p[2 + i].revents = 0;
            }
        }
    }
    return exit_status(pid);
}

static int run_command(struct ctl *ctl, struct local_ring *ring, const sigset_t *mask)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        become_command(ctl, ring, mask);
    if (pid < 0)
        return ctl_fail(CTL_FAILED, "%s cannot be run: %s", ctl->rest[0], strerror(errno));
    int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int status = pid_fd < 0 ? exit_status(pid) : watch_command(ring, pid, pid_fd);
    if (pid_fd >= 0)
        close(pid_fd);
    return status;
}

static int check(const struct ctl *ctl, int *ret_n)
{
    char *end;
    if (ctl->n_args < 1)
        return ctl_usage(ctl, "how many nodes?");
    long n = strtol(ctl->args[0], &end, 10);
    if (*end || n < 1 || n > RING_NODES_MAX)
        return ctl_usage(ctl, "\"%s\": a number of nodes from 1 to %d is needed", ctl->args[0],
                         RING_NODES_MAX);
    if (!ctl->n_rest)
        return ctl_usage(ctl, "a command to run on the ring is missing, such as status");
    if (!strcmp(ctl->rest[0], "local"))
        return ctl_usage(ctl, "a ring does not run inside another");
    if (!strcmp(ctl->rest[0], "exec") && ctl->n_rest < 2)
        return ctl_usage(ctl, "exec: a program is missing");
    *ret_n = (int)n;
    return CTL_OK;
}

int ctl_local_main(struct ctl *ctl)
{
    int n = 0, rc = check(ctl, &n);
    if (rc)
        return rc;
    struct local_ring ring;
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &before);
    int signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0)
        return ctl_fail(CTL_FAILED, "signals cannot be awaited: %s", strerror(errno));
    int threads =
        opts_is_set(ctl->opts, "threads") ? (int)opts_int(ctl->opts, "threads") : (int)cores_here() / n;
    rc = ring_prepare(&ring, n, threads > 1 ? threads : 1, signal_fd);
    rc = rc ? rc : ring_start(&ring);
    rc = rc ? rc : run_command(ctl, &ring, &before);
    ring_stop(&ring);
    ring_remove(&ring, opts_flag(ctl->opts, "keep"));
    close(signal_fd);
    return rc;
}
