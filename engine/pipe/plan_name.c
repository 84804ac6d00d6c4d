/* SPDX-License-Identifier: MIT
 *
 * How tasks and messages are called in sentences and charts. Pure; any thread. */
#include "pipe/plan.h"

#include <stdio.h>

const char *task_kind_name(enum task_kind kind)
{
    static const char *const text[TASK_COUNT] = {
        [TASK_F] = "F",         [TASK_I] = "I",           [TASK_W] = "W",       [TASK_B] = "B",
        [TASK_NORM] = "norm",   [TASK_UPDATE] = "update", [TASK_PUT] = "put",   [TASK_LOSS] = "loss",
        [TASK_TOKEN] = "token", [TASK_R] = "R",           [TASK_ROWS] = "rows", [TASK_DONE] = "losses",
        [TASK_TELL] = "scale",  [TASK_GIVE] = "give",     [TASK_TAKE] = "take", [TASK_SQUARES] = "squares",
        [TASK_TIED] = "tied",
    };
    return (unsigned)kind < TASK_COUNT ? text[kind] : "?";
}

const char *msg_kind_name(enum msg_kind kind)
{
    static const char *const text[MSG_COUNT] = {
        [MSG_ACT] = "activations",
        [MSG_GRAD] = "gradient",
        [MSG_TARGET] = "targets",
        [MSG_LOSS] = "loss",
        [MSG_TOKEN] = "token",
        [MSG_NORM] = "norm",
        [MSG_SCALE] = "scale",
        [MSG_TIED_GRAD] = "tied gradient",
        [MSG_TIED_WEIGHT] = "tied weight",
        [MSG_PARAM] = "parameters",
        [MSG_HELD] = "copy",
        [MSG_GO] = "go",
        [MSG_ROWS] = "rows",
        [MSG_LOSSES] = "losses",
        [MSG_PART] = "gradients of groups",
        [MSG_SUM] = "sum of gradients",
        [MSG_SLICE] = "slice of an output",
        [MSG_SQUARES] = "sums of squares",
        [MSG_VALUES] = "values",
    };
    return (unsigned)kind < MSG_COUNT ? text[kind] : "?";
}

char *task_name(char *buf, size_t n, const struct task *task)
{
    if (task->kind == TASK_NORM || task->kind == TASK_UPDATE)
        snprintf(buf, n, "%u %s", task->stage, task_kind_name(task->kind));
    else if (!task_is_compute(task->kind))
        snprintf(buf, n, "%u %s %u", task->stage, task_kind_name(task->kind), task->mb);
    else
        snprintf(buf, n, "%u%s%u", task->stage, task_kind_name(task->kind), task->mb);
    return buf;
}
