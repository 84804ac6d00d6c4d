/* SPDX-License-Identifier: MIT
 *
 * ringd as systemd runs it: it says when it answers, what it does, that it goes on and that it
 * stops, and serves the control socket it was handed, which outlives it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000 };

struct fixture {
    char dir[64], ringd[4200], control[128];
    int notify; /* what systemd hears */
    pid_t pid;
};

static int listen_at(const char *dir, const char *name, int type)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir, name);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* The child's side, as systemd does it: the socket as descriptor 3, and for this process alone. */
static void become_ringd(const struct fixture *f, int control)
{
    char path[128], pid[16];
    snprintf(path, sizeof path, "%s/notify", f->dir);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("NOTIFY_SOCKET", path, 1);
    setenv("WATCHDOG_USEC", "300000", 1);
    unsetenv("WATCHDOG_PID");
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_FDNAMES", "control", 1);
    if (control == 3 ? fcntl(3, F_SETFD, 0) : dup2(control, 3) != 3)
        _exit(126);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO);
    execl(f->ringd, "ringd", "--config", "/dev/null", "--state-dir", f->dir, "--http-listen", "none",
          "--listen", "127.0.0.1:0", "--discover", "off", "--name", "served", (char *)NULL);
    _exit(127);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    char *tests = strstr(self, "/tests/unit/");
    assert_non_null(tests);
    *tests = '\0';
    snprintf(f->ringd, sizeof f->ringd, "%s/ringd", self);
    strcpy(f->dir, "/tmp/ringd-service-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->control, sizeof f->control, "%s/control", f->dir);
    *state = f;
    if (access(f->ringd, X_OK))
        return 0;
    f->notify = listen_at(f->dir, "notify", SOCK_DGRAM);
    int control = listen_at(f->dir, "control", SOCK_STREAM);
    assert_int_equal(listen(control, 8), 0);
    f->pid = fork();
    assert_true(f->pid >= 0);
    if (!f->pid)
        become_ringd(f, control);
    close(control);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    if (f->pid > 0) {
        kill(f->pid, SIGKILL);
        waitpid(f->pid, NULL, 0);
    }
    close(f->notify);
    DIR *dir = opendir(f->dir);
    for (struct dirent *e; dir && (e = readdir(dir));)
        unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(f->dir);
    free(f);
    return 0;
}

/* Until systemd is told something that begins so; what comes before is in `heard`, each in
 * brackets. */
static void await(const struct fixture *f, const char *begin, char *heard, size_t size)
{
    char said[4096];
    do {
        struct pollfd p = {.fd = f->notify, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_MS) != 1)
            fail_msg("no \"%s\" for %d ms after %s", begin, PATIENCE_MS, heard);
        ssize_t n = recv(f->notify, said, sizeof said - 1, 0);
        assert_true(n > 0);
        said[n] = '\0';
        size_t len = strlen(heard);
        snprintf(heard + len, size - len, "[%s]", said);
    } while (strncmp(said, begin, strlen(begin)));
}

/* One request over the control socket; the answer. */
static void ask(const struct fixture *f, const char *request, char *buf, size_t size)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, f->control);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    size_t n = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        ssize_t got = read(fd, buf + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    buf[n] = '\0';
    close(fd);
}

static void systemd_is_told(void **state)
{
    struct fixture *f = *state;
    char heard[8192] = "", answer[4096];
    struct stat st;
    if (!f->pid)
        skip();
    await(f, "STATUS=served is alone", heard, sizeof heard);
    assert_non_null(strstr(heard, "[READY=1]"));
    ask(f, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", answer, sizeof answer);
    assert_true(!strncmp(answer, "HTTP/1.1 200", 12) && strstr(answer, "ok\n"));
    await(f, "WATCHDOG=1", heard, sizeof heard);
    await(f, "WATCHDOG=1", heard, sizeof heard);
    heard[0] = '\0';
    ask(f, "POST /v1/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        answer, sizeof answer);
    assert_non_null(strstr(answer, "{\"applied\":[],\"restart\":[]}"));
    await(f, "READY=1", heard, sizeof heard);
    assert_non_null(strstr(heard, "[RELOADING=1"));
    /* A loop that does not go on says nothing: that is what systemd's watchdog waits for. */
    kill(f->pid, SIGSTOP);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)f->pid, &info, WSTOPPED), 0);
    while (recv(f->notify, answer, sizeof answer, MSG_DONTWAIT) > 0)
        ;
    struct pollfd p = {.fd = f->notify, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 400), 0);
    kill(f->pid, SIGCONT);
    kill(f->pid, SIGTERM);
    heard[0] = '\0';
    await(f, "STOPPING=1", heard, sizeof heard);
    int status;
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    f->pid = -1;
    assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
    assert_int_equal(stat(f->control, &st), 0); /* systemd's, for the next one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(systemd_is_told, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
