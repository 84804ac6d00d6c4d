/* SPDX-License-Identifier: MIT
 *
 * One key from the terminal, asked for while something else is awaited. One thread. */
#ifndef DAEMON_CTL_ASK_H
#define DAEMON_CTL_ASK_H

#include <stdbool.h>
#include <termios.h>

struct ask {
    bool is_open;
    struct termios before; /* how the terminal was */
};

/* Whether somebody is there to be asked: standard input and standard error are this process's
 * terminal. */
bool ask_can(void);
/* Prints the question on standard error; from here on keys come without Enter, on standard input.
 * False if the terminal will not have it. */
bool ask_open(struct ask *a, const char *question);
/* The key that came, 0 at the end of input. The terminal is as before after ask_close. */
int ask_key(struct ask *a);
void ask_close(struct ask *a);

#endif
