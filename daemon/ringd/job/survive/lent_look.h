/* SPDX-License-Identifier: MIT
 *
 * Looks which files this daemon can open by itself, of those that clients had opened for jobs of an
 * earlier life of it. They are opened beside the loop, because a network share may hang; what has
 * not answered in time counts as closed. Loop thread. */
#ifndef DAEMON_LENT_LOOK_H
#define DAEMON_LENT_LOOK_H

#include <jansson.h>
#include <stdint.h>

struct aside;
struct event_base;
struct lent_look;

struct lent_look_setup {
    /* all borrowed */
    struct event_base *base;
    struct aside *aside;
    unsigned limit_ms; /* for all files; 0: 10 s */
    void *owner;
    /* Once for each job. why: "" if all its files can be opened, else the first that cannot, and
     * why, as a sentence without a full stop. */
    void (*looked)(void *owner, uint64_t job, const char *why);
};
struct lent_look *lent_look_new(const struct lent_look_setup *setup);
void lent_look_free(struct lent_look *l); /* no answer comes any more; before aside_free */

/* Another job, before lent_look_begin. files: absolute paths, borrowed. */
void lent_look_add(struct lent_look *l, uint64_t job, const json_t *files);
/* Answers come from the loop, in the order of lent_look_add. */
void lent_look_begin(struct lent_look *l);

#endif
