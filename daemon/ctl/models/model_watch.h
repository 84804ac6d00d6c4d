/* SPDX-License-Identifier: MIT
 *
 * A model on its way, followed by the daemon's events: a line shows how far it is. One thread. */
#ifndef DAEMON_CTL_MODEL_WATCH_H
#define DAEMON_CTL_MODEL_WATCH_H

#include <jansson.h>
#include <stdbool.h>

struct ctl;

struct model_amounts {
    double done, total; /* bytes; total 0: not known yet */
    double rate;        /* bytes a second; 0: not known */
};

struct model_watch {
    const struct ctl *ctl;
    const char *event; /* its type, whose rows have a "number" */
    bool (*has_ended)(const json_t *row);
    struct model_amounts (*amounts)(const json_t *row);
    json_t *last; /* its last row; the caller's, after model_watch_run */
    /* The rest is model_watch.c's. */
    json_int_t number;
    bool is_terminal, is_drawn, is_stopped;
    int signal_fd;
};

/* row: the first, which is taken. CTL_OK: it has ended; CTL_INTERRUPTED: somebody pressed ^C; or
 * why not, which has been said. */
int model_watch_run(struct model_watch *w, json_t *row);

#endif
