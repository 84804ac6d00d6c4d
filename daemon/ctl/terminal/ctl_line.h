/* SPDX-License-Identifier: MIT
 *
 * A line typed on a terminal, with editing and with a history that is kept in a file. The only user
 * of libedit. One thread. */
#ifndef DAEMON_CTL_LINE_H
#define DAEMON_CTL_LINE_H

#include <stdbool.h>

struct ctl_line;

/* Whether lines can be edited: standard input and standard error are one terminal that can move its
 * cursor. */
bool ctl_line_can(void);
/* Lines from standard input, with the prompt (borrowed) on standard error. history: the file where
 * they are kept, with the lines of earlier calls, NULL = none; where it cannot be used, a sentence
 * says so and lines are read all the same. NULL if libedit cannot start. */
struct ctl_line *ctl_line_open(const char *prompt, const char *history);
void ctl_line_free(struct ctl_line *l);
/* The file of the history, $XDG_STATE_HOME/ringd/NAME or ~/.local/state/ringd/NAME; the caller
 * frees. NULL: there is no home. */
char *ctl_line_history_path(const char *name);

enum ctl_line_end { LINE_TYPED, LINE_AT_END, LINE_SIGNAL };
/* Waits as long as somebody thinks. LINE_TYPED: ret is the line without its end, the caller frees.
 * LINE_AT_END: ^D or a terminal that is gone. LINE_SIGNAL: signal_fd, a signalfd of signals that
 * are blocked, can be read; what was typed is dropped. */
enum ctl_line_end ctl_line_read(struct ctl_line *l, int signal_fd, char **ret);

#endif
