/* SPDX-License-Identifier: MIT
 *
 * Owns the daemons of ringctl local and their directory. Each daemon gets its listening socket as
 * systemd would pass it, so that every node's port is known before the first one starts. Called by
 * ctl_local.c alone.
 */
#include "daemon/ctl/ctl_ring.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/common/installed.h"
#include "daemon/common/xalloc.h"

enum { START_MS = 20000, STOP_MS = 5000, LOG_TAIL_BYTES = 2000, LOG_TAIL_LINES = 10 };

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* --- preparing --- */

static int listen_on_loopback(struct ring_node *node)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    node->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (node->listen_fd < 0 || bind(node->listen_fd, (struct sockaddr *)&a, sizeof a) ||
        listen(node->listen_fd, 64) || getsockname(node->listen_fd, (struct sockaddr *)&a, &n))
        return ctl_fail(CTL_FAILED, "no port on 127.0.0.1: %s", strerror(errno));
    node->port = ntohs(a.sin_port);
    return CTL_OK;
}

static int open_notify(struct ring_node *node)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(node->dir) + sizeof "/ringd.sock" > sizeof a.sun_path)
        return ctl_fail(CTL_FAILED, "%s is too long a path for a socket: set TMPDIR to a shorter one",
                        node->dir);
    stpcpy(stpcpy(a.sun_path, node->dir), "/notify");
    node->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (node->notify_fd < 0 || bind(node->notify_fd, (struct sockaddr *)&a, sizeof a))
        return ctl_fail(CTL_FAILED, "%s: %s", a.sun_path, strerror(errno));
    return CTL_OK;
}

static int prepare_node(struct local_ring *ring, int i)
{
    struct ring_node *node = &ring->nodes[i];
    node->dir = xasprintf("%s/n%d", ring->dir, i + 1);
    if (mkdir(node->dir, 0700))
        return ctl_fail(CTL_FAILED, "%s: %s", node->dir, strerror(errno));
    int rc = listen_on_loopback(node);
    return rc ? rc : open_notify(node);
}

int ring_prepare(struct local_ring *ring, int n, int threads, int signal_fd)
{
    const char *tmp = getenv("TMPDIR");
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    *ring = (struct local_ring){.n = n, .threads = threads, .signal_fd = signal_fd};
    for (int i = 0; i < RING_NODES_MAX; i++)
        ring->nodes[i].listen_fd = ring->nodes[i].notify_fd = ring->nodes[i].pid_fd = -1;
    if (len < 0)
        return ctl_fail(CTL_FAILED, "/proc/self/exe cannot be read: %s", strerror(errno));
    self[len] = '\0';
    ring->self = xstrdup(self);
    char *dir = xasprintf("%s/ringd-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) {
        int rc =
            ctl_fail(CTL_FAILED, "no directory can be made as %s: %s (set TMPDIR to choose another place)",
                     dir, strerror(errno));
        free(dir);
        return rc;
    }
    ring->dir = dir;
    ring->socket = xasprintf("%s/n1/ringd.sock", dir);
    int rc = CTL_OK;
    for (int i = 0; i < n && !rc; i++)
        rc = prepare_node(ring, i);
    return rc;
}

/* --- starting --- */

/* In the child: what systemd's socket activation and readiness protocol promise. */
static void pass_sockets(const struct ring_node *node)
{
    char *pid = xasprintf("%d", (int)getpid()), *notify = xasprintf("%s/notify", node->dir);
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_FDNAMES", "peer", 1);
    setenv("NOTIFY_SOCKET", notify, 1);
    free(pid);
    free(notify);
}

static void open_log(const struct ring_node *node)
{
    char *path = xasprintf("%s/log", node->dir);
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600),
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    free(path);
    if (log < 0 || null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(127);
}

/* argv for node i: NULL-terminated, never freed, as the child is about to become it. */
static char **ringd_args(const struct local_ring *ring, int i, char *program)
{
    const struct ring_node *node = &ring->nodes[i];
    char **argv = xcalloc(20, sizeof *argv);
    int n = 0;
    argv[n++] = program;
    argv[n++] = xstrdup("--state-dir");
    argv[n++] = xstrdup(node->dir);
    argv[n++] = xstrdup("--name");
    argv[n++] = xasprintf("n%d", i + 1);
    argv[n++] = xstrdup("--http-listen");
    argv[n++] = xstrdup("none");
    argv[n++] = xstrdup("--discover"); /* this ring is this machine's own affair */
    argv[n++] = xstrdup("off");
    argv[n++] = xstrdup("--threads");
    argv[n++] = xasprintf("%d", ring->threads);
    /* The next one round; of two, one calls the other. */
    if (ring->n > 2 || (ring->n == 2 && i == 0)) {
        argv[n++] = xstrdup("--peer");
        argv[n++] = xasprintf("127.0.0.1:%d", ring->nodes[(i + 1) % ring->n].port);
    }
    return argv;
}

static _Noreturn void become_ringd(const struct local_ring *ring, int i, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Out of the terminal's group: ^C is for the command, which ends its job in order. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(127);
    open_log(&ring->nodes[i]);
    if (ring->nodes[i].listen_fd == 3)
        fcntl(3, F_SETFD, 0);
    else
        dup2(ring->nodes[i].listen_fd, 3);
    pass_sockets(&ring->nodes[i]);
    char *ringd = installed_program("ringd", "sbin"); /* which is not in everybody's PATH */
    char **argv = ringd_args(ring, i, ringd);
    execv(ringd, argv);
    execvp("ringd", argv);
    fprintf(stderr, "ringd is neither %s nor in PATH: %s\n", ringd, strerror(errno));
    _exit(127);
}

static int start_node(struct local_ring *ring, int i)
{
    struct ring_node *node = &ring->nodes[i];
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become_ringd(ring, i, parent);
    if (pid < 0)
        return ctl_fail(CTL_FAILED, "ringd cannot be started: %s", strerror(errno));
    node->pid = pid;
    node->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    close(node->listen_fd);
    node->listen_fd = -1;
    if (node->pid_fd < 0)
        return ctl_fail(CTL_FAILED, "a process cannot be watched (pidfd_open): %s", strerror(errno));
    fcntl(node->pid_fd, F_SETFD, FD_CLOEXEC);
    return CTL_OK;
}

/* --- ends of daemons --- */

static void print_log_tail(const struct ring_node *node)
{
    char buf[LOG_TAIL_BYTES + 1], *path = xasprintf("%s/log", node->dir);
    FILE *file = fopen(path, "re");
    free(path);
    if (!file)
        return;
    if (fseek(file, -LOG_TAIL_BYTES, SEEK_END))
        rewind(file);
    size_t n = fread(buf, 1, LOG_TAIL_BYTES, file), at = n;
    fclose(file);
    for (int lines = 0; at > 0 && lines <= LOG_TAIL_LINES; at--)
        lines += at < n && buf[at - 1] == '\n';
    if (at)
        at += 1;
    fprintf(stderr, "%.*s%s", (int)(n - at), buf + at, n && buf[n - 1] != '\n' ? "\n" : "");
}

void ring_tell_end(struct local_ring *ring, int i)
{
    struct ring_node *node = &ring->nodes[i];
    int status = 0;
    waitpid(node->pid, &status, 0);
    node->pid = 0;
    close(node->pid_fd);
    node->pid_fd = -1;
    if (WIFSIGNALED(status))
        ctl_fail(0, "node n%d was ended by signal %d (%s); its log says last:", i + 1, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        ctl_fail(0, "node n%d ended with status %d; its log says last:", i + 1, WEXITSTATUS(status));
    print_log_tail(node);
}

/* --- waiting for the daemons --- */

static void take_notice(struct ring_node *node)
{
    char text[512];
    ssize_t n = recv(node->notify_fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return;
    text[n] = '\0';
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        node->is_ready = node->is_ready || !strcmp(line, "READY=1");
}

static int first_not_ready(const struct local_ring *ring)
{
    int i = 0;
    while (i < ring->n && ring->nodes[i].is_ready)
        i++;
    return i;
}

static int too_late(const struct local_ring *ring, int i, const char *what)
{
    ctl_fail(0, "%s within %d s; the log of n%d says last:", what, START_MS / 1000, i + 1);
    print_log_tail(&ring->nodes[i]);
    return CTL_FAILED;
}

static int wait_ready(struct local_ring *ring, int64_t deadline)
{
    struct pollfd p[1 + 2 * RING_NODES_MAX];
    p[0] = (struct pollfd){.fd = ring->signal_fd, .events = POLLIN};
    for (int i = 0; i < ring->n; i++) {
        p[1 + 2 * i] = (struct pollfd){.fd = ring->nodes[i].notify_fd, .events = POLLIN};
        p[2 + 2 * i] = (struct pollfd){.fd = ring->nodes[i].pid_fd, .events = POLLIN};
    }
    for (int late; (late = first_not_ready(ring)) < ring->n;) {
        int64_t left = deadline - ctl_now_ms();
        if (left <= 0)
            return too_late(ring, late, "not every node was ready");
        if (poll(p, (nfds_t)(1 + 2 * ring->n), (int)left) <= 0)
            continue;
        if (p[0].revents)
            return CTL_INTERRUPTED;
        for (int i = 0; i < ring->n; i++) {
            if (p[1 + 2 * i].revents)
                take_notice(&ring->nodes[i]);
            if (p[2 + 2 * i].revents) {
                ring_tell_end(ring, i);
                return CTL_FAILED;
            }
        }
    }
    return CTL_OK;
}

/* --- making them a cluster --- */

/* In the child, which has nothing else to do than to wait for its node's answer. */
static _Noreturn void become_joiner(const struct local_ring *ring, int i, json_t *token)
{
    char *socket = xasprintf("%s/ringd.sock", ring->nodes[i].dir);
    struct ctl ctl = {.socket = socket};
    json_t *answer = NULL;
    char peer[32];
    snprintf(peer, sizeof peer, "127.0.0.1:%d", ring->nodes[0].port);
    json_object_set_new(token, "peer", json_string(peer));
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    _exit(ctl_request(&ctl, "POST", "/v1/cluster/join", token, &answer));
}

/* A token from the first node, for a child that joins node i with it. */
static int start_joining(struct local_ring *ring, int i)
{
    struct ctl first = {.socket = ring->socket};
    json_t *token = NULL;
    int rc = ctl_request(&first, "POST", "/v1/cluster/invite", NULL, &token);
    if (rc)
        return rc;
    pid_t pid = fork();
    if (pid == 0)
        become_joiner(ring, i, token);
    json_decref(token);
    ring->nodes[i].joiner = pid > 0 ? pid : 0;
    return pid < 0 ? ctl_fail(CTL_FAILED, "a process cannot be started: %s", strerror(errno)) : CTL_OK;
}

static bool is_interrupted(const struct local_ring *ring)
{
    struct pollfd p = {.fd = ring->signal_fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* All joiners are collected, whatever happens; how the first unlucky one ended. */
static int collect_joiners(struct local_ring *ring, int rc)
{
    for (int i = 1; i < ring->n; i++) {
        int status = 0;
        if (!ring->nodes[i].joiner)
            continue;
        if (rc)
            kill(ring->nodes[i].joiner, SIGKILL);
        while (waitpid(ring->nodes[i].joiner, &status, 0) < 0 && errno == EINTR)
            ;
        ring->nodes[i].joiner = 0;
        if (!rc && is_interrupted(ring))
            rc = CTL_INTERRUPTED;
        if (!rc && status)
            rc = ctl_fail(CTL_FAILED, "node n%d did not get into the cluster", i + 1);
    }
    return rc;
}

/* The way any nodes take: the first makes a cluster, invites the others, and each joins with its
 * token. */
static int enrol_nodes(struct local_ring *ring)
{
    struct ctl first = {.socket = ring->socket};
    json_t *name = json_pack("{s:s}", "name", "local"), *answer = NULL;
    int rc = ring->n > 1 ? ctl_request(&first, "POST", "/v1/cluster/init", name, &answer) : CTL_OK;
    json_decref(name);
    json_decref(answer);
    for (int i = 1; i < ring->n && !rc; i++)
        rc = start_joining(ring, i);
    return collect_joiners(ring, rc);
}

/* --- waiting for the ring --- */

struct closing {
    struct local_ring *ring;
    struct ctl ctl;                   /* towards the first node */
    int index_of[RING_NODES_MAX + 1]; /* of the awaited descriptors; -1 = the signals */
    bool is_closed;
    int status;
    char text[256]; /* what the first node last said of the ring */
};

/* Asks the first node whether the ring is complete. False: no need to wait any longer. */
static bool ask_ring(struct closing *c)
{
    json_t *answer = NULL;
    c->status = ctl_request(&c->ctl, "GET", "/v1/status", NULL, &answer);
    if (c->status)
        return false;
    const json_t *ring = json_object_get(answer, "ring");
    const char *state = field_text(ring, "state", "");
    int n = c->ring->n;
    bool all = json_array_size(json_object_get(ring, "nodes")) == (size_t)n;
    /* Two nodes have one cable: whether that is a chain or a ring is a matter of words. */
    c->is_closed = n == 1 || (all && (!strcmp(state, "closed") || (n == 2 && !strcmp(state, "chain"))));
    snprintf(c->text, sizeof c->text, "%s", field_text(ring, "text", state));
    json_decref(answer);
    return !c->is_closed;
}

static bool on_node_event(void *owner, const char *type, const json_t *data)
{
    (void)type;
    (void)data;
    return ask_ring(owner);
}

static bool on_readable(void *owner, int index)
{
    struct closing *c = owner;
    int node = c->index_of[index];
    if (node >= 0)
        ring_tell_end(c->ring, node);
    c->status = node >= 0 ? CTL_FAILED : CTL_INTERRUPTED;
    return false;
}

static int wait_closed(struct local_ring *ring, int64_t deadline)
{
    struct closing c = {.ring = ring, .ctl.socket = ring->socket};
    int fds[RING_NODES_MAX + 1] = {ring->signal_fd};
    c.index_of[0] = -1;
    for (int i = 0; i < ring->n; i++) {
        fds[i + 1] = ring->nodes[i].pid_fd;
        c.index_of[i + 1] = i;
    }
    if (!ask_ring(&c))
        return c.status;
    int64_t left = deadline - ctl_now_ms();
    struct ctl_stream s = {.event = on_node_event,
                           .readable = on_readable,
                           .owner = &c,
                           .fds = fds,
                           .n_fds = ring->n + 1,
                           .deadline_ms = left > 0 ? (unsigned)left : 1};
    int rc = ctl_follow(&c.ctl, "/v1/events", &s, false);
    if (rc || c.status)
        return rc ? rc : c.status;
    /* The state may have come to be while the stream was opened, or ended. */
    if (c.is_closed || !ask_ring(&c))
        return c.status;
    ctl_fail(0, "the first node says: %s", c.text);
    return too_late(ring, 0, "the ring did not close");
}

int ring_start(struct local_ring *ring)
{
    int64_t deadline = ctl_now_ms() + START_MS;
    int rc = CTL_OK;
    for (int i = 0; i < ring->n && !rc; i++)
        rc = start_node(ring, i);
    rc = rc ? rc : wait_ready(ring, deadline);
    for (int i = 0; i < ring->n; i++) { /* notices that nobody reads would in the end stop who sends them */
        close_if_open(ring->nodes[i].notify_fd);
        ring->nodes[i].notify_fd = -1;
    }
    rc = rc ? rc : enrol_nodes(ring);
    return rc ? rc : wait_closed(ring, deadline);
}

/* --- stopping --- */

static void kill_all(struct local_ring *ring, int sig)
{
    for (int i = 0; i < ring->n; i++) {
        if (ring->nodes[i].pid)
            kill(ring->nodes[i].pid, sig);
    }
}

/* Collects those that end before the deadline; true when none is left. */
static bool collect(struct local_ring *ring, int64_t deadline)
{
    for (int i = 0; i < ring->n; i++) {
        struct ring_node *node = &ring->nodes[i];
        int64_t left = deadline - ctl_now_ms();
        struct pollfd p = {.fd = node->pid_fd, .events = POLLIN};
        if (!node->pid)
            continue;
        int rc;
        while ((rc = poll(&p, 1, left > 0 ? (int)left : 0)) < 0 && errno == EINTR)
            left = deadline - ctl_now_ms();
        if (rc == 1 && waitpid(node->pid, NULL, 0) == node->pid)
            node->pid = 0;
    }
    for (int i = 0; i < ring->n; i++) {
        if (ring->nodes[i].pid)
            return false;
    }
    return true;
}

void ring_stop(struct local_ring *ring)
{
    kill_all(ring, SIGTERM);
    /* A stopped process takes no signal but this one. */
    kill_all(ring, SIGCONT);
    if (collect(ring, ctl_now_ms() + STOP_MS))
        return;
    ctl_fail(0, "not every node ended within %d s: the rest is killed", STOP_MS / 1000);
    kill_all(ring, SIGKILL);
    collect(ring, ctl_now_ms() + STOP_MS);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

void ring_remove(struct local_ring *ring, bool keep)
{
    for (int i = 0; i < ring->n; i++) {
        close_if_open(ring->nodes[i].listen_fd);
        close_if_open(ring->nodes[i].notify_fd);
        close_if_open(ring->nodes[i].pid_fd);
        free(ring->nodes[i].dir);
    }
    if (ring->dir && keep)
        fprintf(stderr, "ringctl: the nodes' files are kept in %s\n", ring->dir);
    else if (ring->dir && nftw(ring->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS))
        ctl_fail(0, "%s cannot be removed: %s", ring->dir, strerror(errno));
    free(ring->dir);
    free(ring->socket);
    free(ring->self);
}
