/* SPDX-License-Identifier: MIT
 *
 * Owns the terminal's mode while a question stands or a screen is shown. Called by ctl_watch.c and
 * ctl_top.c. */
#include "daemon/ctl/terminal/ctl_ask.h"

#include <stdio.h>
#include <unistd.h>

bool ask_can(void)
{
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

bool ask_open(struct ask *a, const char *question)
{
    if (a->is_open || tcgetattr(STDIN_FILENO, &a->before))
        return false;
    struct termios raw = a->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw))
        return false;
    a->is_open = true;
    fputs(question, stderr);
    fflush(stderr);
    return true;
}

int ask_key(struct ask *a)
{
    unsigned char key = 0;
    (void)a;
    return read(STDIN_FILENO, &key, 1) == 1 ? key : 0;
}

void ask_close(struct ask *a)
{
    if (a->is_open)
        tcsetattr(STDIN_FILENO, TCSANOW, &a->before);
    a->is_open = false;
}
