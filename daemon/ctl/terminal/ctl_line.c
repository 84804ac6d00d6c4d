/* SPDX-License-Identifier: MIT
 *
 * Owns libedit's editor and history, the history's file, and the terminal's mode while a line is
 * typed. The file is plain text, a line for each entry; each is appended when it is typed, so that
 * several conversations at once keep all of theirs. Called by ctl_chat.c. */
#include "daemon/ctl/terminal/ctl_line.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "daemon/common/xalloc.h"

enum {
    HISTORY_LINES = 1000,
    HISTORY_BYTES = 1 << 20, /* of the file when it is opened: what is older is cut off */
    ENTRY_BYTES = 16384,     /* a longer line is not kept */
};

struct ctl_line {
    EditLine *editor; /* owned */
    History *history; /* owned */
    const char *prompt;
    int file;      /* of the history, −1 = none */
    int screen_fd; /* signals that change the terminal */
    int signal_fd; /* of the caller, while a line is read */
    bool is_signal;
    mbstate_t partial; /* of a character that has not come whole */
};

bool ctl_line_can(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

/* --- the history ------------------------------------------------------------------------------ */

char *ctl_line_history_path(const char *name)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/')
        return xasprintf("%s/ringd/%s", state, name);
    return home && *home == '/' ? xasprintf("%s/.local/state/ringd/%s", home, name) : NULL;
}

/* The folders above it, each for this user alone. */
static void make_folders(const char *path)
{
    char *folder = xstrdup(path);
    for (char *p = strchr(folder + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        mkdir(folder, 0700);
        *p = '/';
    }
    free(folder);
}

static void remember(struct ctl_line *l, const char *line)
{
    HistEvent event;
    if (line[strspn(line, " \t")])
        history(l->history, &event, H_ENTER, line);
}

/* Where the last HISTORY_LINES begin. */
static const char *last_lines(const char *text, size_t n)
{
    size_t lines = 0;
    for (size_t i = n; i-- > 0;)
        if (text[i] == '\n' && i + 1 < n && ++lines == HISTORY_LINES)
            return text + i + 1;
    return text;
}

/* What of the file still counts goes into the history; where that is less than half of the file,
 * the rest is cut off. */
static int read_history(struct ctl_line *l)
{
    struct stat st;
    if (flock(l->file, LOCK_EX) || fstat(l->file, &st))
        return -errno;
    size_t size = (size_t)st.st_size, n = size < HISTORY_BYTES ? size : HISTORY_BYTES;
    char *text = xcalloc(n + 1, 1);
    ssize_t got = pread(l->file, text, n, (off_t)(size - n));
    int r = got < 0 ? -errno : 0;
    n = got < 0 ? 0 : (size_t)got;
    text[n] = 0;
    const char *at = last_lines(text, n);
    if (size > HISTORY_BYTES && at == text && (at = strchr(text, '\n')))
        at++;
    size_t left = at ? n - (size_t)(at - text) : 0;
    if (!r && left < size / 2 && (ftruncate(l->file, 0) || (left && write(l->file, at, left) < 0)))
        r = -errno;
    flock(l->file, LOCK_UN);
    for (char *rest = text + (n - left), *line; (line = strsep(&rest, "\n"));)
        remember(l, line);
    free(text);
    return r;
}

static void open_history(struct ctl_line *l, const char *path)
{
    make_folders(path);
    l->file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    struct stat st;
    int r = l->file < 0 || fstat(l->file, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
    if (!r && fchmod(l->file, 0600))
        r = -errno;
    if (!r)
        r = read_history(l);
    if (!r)
        return;
    fprintf(stderr, "ringctl: your lines are not saved, as %s cannot be used: %s\n", path, strerror(-r));
    if (l->file >= 0)
        close(l->file);
    l->file = -1;
}

/* A line that cannot be written is missing in the next conversation, and that is all. */
static void keep(struct ctl_line *l, const char *line, size_t n)
{
    remember(l, line);
    if (l->file < 0 || n > ENTRY_BYTES || !line[strspn(line, " \t")])
        return;
    char *entry = xasprintf("%s\n", line);
    bool is_locked = !flock(l->file, LOCK_EX);
    if (!is_locked || write(l->file, entry, n + 1) < 0) {
        close(l->file);
        l->file = -1;
    } else {
        flock(l->file, LOCK_UN);
    }
    free(entry);
}

/* --- the terminal ----------------------------------------------------------------------------- */

static char *prompt_of(EditLine *editor)
{
    struct ctl_line *l;
    el_get(editor, EL_CLIENTDATA, &l);
    return (char *)l->prompt;
}

/* ^Z at the prompt: the shell gets its terminal as it was, and later we ours. */
static void stop_here(struct ctl_line *l)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    el_set(l->editor, EL_PREP_TERM, 0);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    sigprocmask(SIG_BLOCK, &set, NULL);
    el_set(l->editor, EL_PREP_TERM, 1);
    el_set(l->editor, EL_REFRESH);
}

static void on_screen(struct ctl_line *l)
{
    struct signalfd_siginfo info;
    if (read(l->screen_fd, &info, sizeof info) != sizeof info)
        return;
    if (info.ssi_signo == SIGTSTP)
        stop_here(l);
    else
        el_resize(l->editor);
}

/* One character of UTF-8; what is none is left out. 1, 0 at the end, −1 for a signal. */
static int get_character(EditLine *editor, wchar_t *ret)
{
    struct ctl_line *l;
    el_get(editor, EL_CLIENTDATA, &l);
    struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                         {.fd = l->signal_fd, .events = POLLIN},
                         {.fd = l->screen_fd, .events = POLLIN}};
    for (;;) {
        char byte;
        if (poll(p, 3, -1) < 0)
            continue;
        if (p[2].revents)
            on_screen(l);
        if (p[1].revents) {
            tcflush(STDIN_FILENO, TCIFLUSH); /* what was typed before ^C goes with the line */
            l->is_signal = true;
            return -1;
        }
        if (!p[0].revents)
            continue;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        size_t used = mbrtowc(ret, &byte, 1, &l->partial);
        if (used == (size_t)-1)
            l->partial = (mbstate_t){0};
        else if (used != (size_t)-2)
            return 1;
    }
}

/* What is typed is UTF-8, whatever the locale: so are messages. */
static void use_utf8(void)
{
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

struct ctl_line *ctl_line_open(const char *prompt, const char *path)
{
    struct ctl_line *l = xcalloc(1, sizeof *l);
    HistEvent event;
    sigset_t set;
    use_utf8();
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGTSTP);
    l->prompt = prompt;
    l->file = -1;
    l->screen_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    l->editor = el_init("ringctl", stdin, stderr, stderr);
    l->history = history_init();
    if (l->screen_fd < 0 || !l->editor || !l->history) {
        ctl_line_free(l);
        return NULL;
    }
    history(l->history, &event, H_SETSIZE, HISTORY_LINES);
    history(l->history, &event, H_SETUNIQUE, 1);
    el_set(l->editor, EL_CLIENTDATA, l);
    el_set(l->editor, EL_PROMPT, prompt_of);
    el_set(l->editor, EL_EDITOR, "emacs");
    el_set(l->editor, EL_HIST, history, l->history);
    el_set(l->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(l->editor, NULL);
    /* Else the kernel drops what was typed when ^C comes: a read after poll() said "readable" would
     * then wait for ever. */
    el_set(l->editor, EL_SETTY, "-d", "+noflsh", NULL);
    el_set(l->editor, EL_GETCFN, get_character);
    if (path)
        open_history(l, path);
    return l;
}

void ctl_line_free(struct ctl_line *l)
{
    if (!l)
        return;
    if (l->editor)
        el_end(l->editor);
    if (l->history)
        history_end(l->history);
    if (l->file >= 0)
        close(l->file);
    if (l->screen_fd >= 0)
        close(l->screen_fd);
    free(l);
}

enum ctl_line_end ctl_line_read(struct ctl_line *l, int signal_fd, char **ret)
{
    sigset_t set, before;
    int n = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGTSTP);
    sigprocmask(SIG_BLOCK, &set, &before);
    l->signal_fd = signal_fd;
    l->is_signal = false;
    el_resize(l->editor);
    el_set(l->editor, EL_PREP_TERM, 1); /* before the prompt: an answer to it must not meet the old mode */
    const char *line = el_gets(l->editor, &n);
    if (l->is_signal)
        el_reset(l->editor);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (l->is_signal)
        return LINE_SIGNAL;
    if (!line || n <= 0)
        return LINE_AT_END;
    char *whole = xstrndup(line, strcspn(line, "\n"));
    keep(l, whole, strlen(whole));
    *ret = whole;
    return LINE_TYPED;
}
