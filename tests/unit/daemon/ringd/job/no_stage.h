/* SPDX-License-Identifier: MIT
 *
 * spawn.h with a stage that is no process: it takes every message, and says what a test says for
 * it. Included once in a program, which links no other spawn. */
#ifndef TESTS_UNIT_NO_STAGE_H
#define TESTS_UNIT_NO_STAGE_H

#include <stdio.h>
#include <string.h>

#include "daemon/ringd/job/spawn.h"

struct spawn {
    const struct spawn_ops *ops; /* NULL: there is none */
    void *owner;
    bool is_ending;
    size_t told;   /* messages and connections that it was given, but for the ways that are alive */
    char last[16]; /* what the last of the messages asked for */
};
static struct spawn the_stage;
static unsigned the_stages; /* that were started */

struct spawner *spawner_new(const struct spawner_setup *setup)
{
    (void)setup;
    return NULL;
}

void spawner_free(struct spawner *m)
{
    (void)m;
}

uint64_t spawner_lingering(const struct spawner *m)
{
    (void)m;
    return 0;
}

int spawn_start(struct spawn **ret, struct spawner *m, uint64_t within_us, const struct spawn_ops *ops,
                void *owner, struct err *err)
{
    (void)m, (void)within_us, (void)err;
    the_stage = (struct spawn){.ops = ops, .owner = owner};
    the_stages++;
    *ret = &the_stage;
    return 0;
}

int spawn_send_file(struct spawn *s, json_t *message, int fd)
{
    (void)fd;
    const char *what = json_string_value(json_object_get(message, "do"));
    s->told += !what || strcmp(what, "paths") != 0;
    snprintf(s->last, sizeof s->last, "%s", what ? what : "");
    json_decref(message);
    return 0;
}

int spawn_lend(struct spawn *s, struct loan *loan)
{
    (void)s, (void)loan;
    return 0;
}

int spawn_send_lane(struct spawn *s, const struct ipc_lane *lane, int fd)
{
    (void)lane, (void)fd;
    s->told++;
    return 0;
}

void spawn_end(struct spawn *s)
{
    s->is_ending = true;
}

void spawn_kill(struct spawn *s, const char *cause)
{
    (void)s, (void)cause;
}

void spawn_free(struct spawn *s)
{
    if (s)
        s->ops = NULL;
}

int spawn_confine(struct spawn *s, uint64_t job)
{
    (void)s, (void)job;
    return 0;
}

pid_t spawn_pid(const struct spawn *s)
{
    (void)s;
    return -1;
}

struct cgroup *spawn_group(const struct spawn *s)
{
    (void)s;
    return NULL;
}

const struct progress *spawn_progress(const struct spawn *s)
{
    static struct progress progress;
    (void)s;
    return &progress;
}

enum spawn_fate spawn_fate(const struct spawn *s)
{
    (void)s;
    return SPAWN_HAS_FAILED;
}

uint64_t spawn_peak(const struct spawn *s)
{
    (void)s;
    return 0;
}

uint64_t spawn_memory(const struct spawn *s)
{
    (void)s;
    return 0;
}

#endif
