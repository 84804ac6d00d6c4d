/* SPDX-License-Identifier: MIT
 *
 * How far a job is: a bar with speed and time left, kept on the last line of a terminal; elsewhere
 * a line for the first step that is seen, for each tenth of the way, and for each minute. Standard
 * error. One thread. */
#ifndef DAEMON_CTL_METER_H
#define DAEMON_CTL_METER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* One of the adapters of a sweep; of a job without there is one, with no name. */
struct meter_of {
    char name[64];
    double loss, speed;
    int64_t tenths_shown; /* elsewhere than on a terminal, as the next */
    time_t shown_s;       /* when its last line was, CLOCK_MONOTONIC */
};

struct meter {
    bool is_terminal;
    bool shows_start; /* on a terminal, also that a job gets ready: with much data that takes a while */
    bool line_open;   /* the terminal's line is half written, */
    bool is_passing;  /* with what is not worth keeping */
    bool is_in_text;  /* an answer on the terminal may go on in the same line */
    struct meter_of of[16];
    size_t n; /* adapters that have told of a step */
    double first_loss, last_loss, step_seconds;
    bool has_loss;
    char waits_for[256]; /* the reason shown last */
};

void meter_init(struct meter *m);
/* An event of a job that has steps; false if it is none that is shown here. */
bool meter_event(struct meter *m, const char *type, const json_t *data);
/* A piece of an answer was written to standard output: the next message begins a line. */
void meter_wrote(struct meter *m, const char *text);
void meter_clear(struct meter *m); /* whatever is printed next has the line for itself */

/* "[####....]", `columns` wide in all. */
void meter_bar(char *ret, size_t size, double part, size_t columns);

#endif
