/* SPDX-License-Identifier: MIT
 *
 * A service manager for one daemon: keeps what the daemon gives to its file descriptor store, as
 * systemd does, and starts the daemon again when it was killed. SIGTERM is passed on, and ends
 * this.
 * usage: supervisor SOCKET COMMAND... */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT_MAX = 256, FIRST_FD = 3, ABOVE = 500 };

static struct {
    char name[64];
    int fd; /* at least ABOVE */
} kept[KEPT_MAX];
static size_t n_kept;

static int listen_at(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || chmod(path, 0666)) {
        perror(path);
        exit(1);
    }
    return fd;
}

static void hear(int sock)
{
    char text[512] = "", name[64];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } beside = {.room = ""};
    struct iovec io = {text, sizeof text - 1};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = beside.room, .msg_controllen = sizeof beside.room};
    const char *at = recvmsg(sock, &m, MSG_CMSG_CLOEXEC) > 0 ? strstr(text, "FDNAME=") : NULL;
    if (!at)
        return;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 7, "\n"), at + 7);
    if (m.msg_controllen && n_kept < KEPT_MAX) {
        int fd;
        memcpy(&fd, CMSG_DATA(&beside.head), sizeof fd);
        kept[n_kept].fd = fcntl(fd, F_DUPFD_CLOEXEC, ABOVE);
        strcpy(kept[n_kept++].name, name);
        close(fd);
    }
    for (size_t i = 0; i < n_kept && !strncmp(text, "FDSTOREREMOVE=1\n", 16);)
        if (!strcmp(kept[i].name, name)) {
            close(kept[i].fd);
            kept[i] = kept[--n_kept];
        } else {
            i++;
        }
    printf("%zu kept\n", n_kept);
    fflush(stdout);
}

static void become(char **command)
{
    char names[KEPT_MAX * 64] = "", number[24];
    sigset_t none;
    size_t len = 0;
    for (size_t i = 0; i < n_kept; i++) {
        dup2(kept[i].fd, FIRST_FD + (int)i);
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", i ? ":" : "", kept[i].name);
    }
    snprintf(number, sizeof number, "%zu", n_kept);
    setenv("LISTEN_FDS", number, 1);
    setenv("LISTEN_FDNAMES", names, 1);
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv("LISTEN_PID", number, 1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(command[0], command);
    _exit(127);
}

static pid_t start(char **command)
{
    const pid_t child = fork();
    if (!child)
        become(command);
    return child;
}

int main(int argc, char **argv)
{
    struct signalfd_siginfo info;
    sigset_t set;
    if (argc < 3)
        return 2;
    struct pollfd on[] = {{.fd = listen_at(argv[1]), .events = POLLIN}, {.events = POLLIN}};
    setenv("NOTIFY_SOCKET", argv[1], 1);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    on[1].fd = fcntl(signalfd(-1, &set, SFD_CLOEXEC), F_DUPFD_CLOEXEC, ABOVE);
    on[0].fd = fcntl(on[0].fd, F_DUPFD_CLOEXEC, ABOVE);
    pid_t child = start(argv + 2);
    for (;;) {
        int status;
        if (poll(on, 2, -1) < 0 && errno != EINTR)
            return 1;
        if (on[0].revents) /* what it said before its end counts */
            hear(on[0].fd);
        else if (on[1].revents && read(on[1].fd, &info, sizeof info) == sizeof info) {
            if (info.ssi_signo == SIGTERM)
                kill(child, SIGTERM);
            else if (waitpid(child, &status, WNOHANG) == child && !WIFSIGNALED(status))
                return WEXITSTATUS(status);
            else
                child = start(argv + 2);
        }
    }
}
