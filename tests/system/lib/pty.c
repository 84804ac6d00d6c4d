/* SPDX-License-Identifier: MIT
 *
 * A terminal with somebody at it: runs a program on a pseudo-terminal and does what the script
 * says. What the program writes is copied to standard output. One thread. usage: pty COLUMNSxLINES
 * [STEP]... -- PROGRAM ARGS...
 *   await:TEXT   until TEXT has been written, after what the steps before have seen; 30 s at most
 *   send:TEXT    as if typed; ^C in it is that key
 *   size:CxL     the window changes its size
 *   hangup       the terminal goes away, as with a lost connection
 * Then until the program ends, whose exit status it returns (128 + signal); 125 if a step fails. */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum { STEP_SECONDS = 30, FAILED = 125 };

struct screen {
    int fd;
    pid_t pid;
    char *text; /* owned: all that was written */
    size_t n, room, seen;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Takes what there is, waiting until `deadline`; false at the end of the terminal or of the
 * time. */
static bool take(struct screen *s, int64_t deadline)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    int64_t left = deadline - now_ms();
    if (left <= 0 || poll(&p, 1, (int)left) <= 0)
        return false;
    if (s->room < s->n + 4096 && !(s->text = realloc(s->text, s->room = 2 * s->room + 8192)))
        abort();
    ssize_t n = read(s->fd, s->text + s->n, 4096);
    if (n <= 0)
        return false;
    fwrite(s->text + s->n, 1, (size_t)n, stdout);
    fflush(stdout);
    s->n += (size_t)n;
    return true;
}

static bool await_text(struct screen *s, const char *text)
{
    int64_t deadline = now_ms() + STEP_SECONDS * INT64_C(1000);
    for (;;) {
        char *at = s->n ? memmem(s->text + s->seen, s->n - s->seen, text, strlen(text)) : NULL;
        if (at) {
            s->seen = (size_t)(at - s->text) + strlen(text);
            return true;
        }
        if (!take(s, deadline)) {
            fprintf(stderr, "pty: \"%s\" was not written\n", text);
            return false;
        }
    }
}

static bool send_text(struct screen *s, const char *text)
{
    for (; *text; text++) {
        char c = *text;
        if (!strncmp(text, "^C", 2)) {
            c = 3;
            text++;
        }
        if (write(s->fd, &c, 1) != 1)
            return false;
    }
    return true;
}

static bool set_size(int fd, const char *text)
{
    struct winsize size = {0};
    return sscanf(text, "%hux%hu", &size.ws_col, &size.ws_row) == 2 && !ioctl(fd, TIOCSWINSZ, &size);
}

static bool do_step(struct screen *s, const char *step)
{
    if (!strncmp(step, "await:", 6))
        return await_text(s, step + 6);
    if (!strncmp(step, "send:", 5))
        return send_text(s, step + 5);
    if (!strncmp(step, "size:", 5))
        return set_size(s->fd, step + 5);
    if (!strcmp(step, "hangup")) {
        close(s->fd);
        s->fd = -1;
        return true;
    }
    fprintf(stderr, "pty: \"%s\" is no step\n", step);
    return false;
}

static int end_of(struct screen *s)
{
    int64_t deadline = now_ms() + STEP_SECONDS * INT64_C(1000);
    int status;
    while (s->fd >= 0 && take(s, deadline))
        ;
    if (now_ms() >= deadline) {
        fprintf(stderr, "pty: the program does not end\n");
        kill(s->pid, SIGKILL);
        waitpid(s->pid, &status, 0);
        return FAILED;
    }
    if (waitpid(s->pid, &status, 0) < 0)
        return FAILED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    int program = 1;
    struct screen s = {.fd = -1};
    while (program < argc && strcmp(argv[program], "--") != 0)
        program++;
    if (program + 1 >= argc || program < 2) {
        fprintf(stderr, "usage: pty COLUMNSxLINES [STEP]... -- PROGRAM ARGS...\n");
        return FAILED;
    }
    s.pid = forkpty(&s.fd, NULL, NULL, NULL);
    if (s.pid == 0) {
        if (!set_size(STDOUT_FILENO, argv[1]))
            _exit(FAILED);
        execvp(argv[program + 1], argv + program + 1);
        _exit(127);
    }
    if (s.pid < 0)
        return FAILED;
    for (int i = 2; i < program; i++) {
        if (!do_step(&s, argv[i])) {
            kill(s.pid, SIGKILL);
            waitpid(s.pid, NULL, 0);
            free(s.text);
            return FAILED;
        }
    }
    int status = end_of(&s);
    free(s.text);
    return status;
}
