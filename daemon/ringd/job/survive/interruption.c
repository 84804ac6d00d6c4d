/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/interruption.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { IN_A_ROW_MAX = 3 };

bool interruption_begin(struct interruption *i, const struct job_nodes *nodes, const char *stage_of,
                        const char *unit, uint64_t step, const char *cause, char *why, size_t size)
{
    const bool is_same_step = i->count && i->step == step;
    const bool is_other_stage =
        is_same_step && *stage_of && *i->stage_of && strcmp(stage_of, i->stage_of) != 0;
    i->count++;
    i->in_a_row = is_same_step ? i->in_a_row + 1 : 1;
    if (is_other_stage)
        snprintf(why, size, "%s %llu ended the stage process of %s before: it is the job itself", unit,
                 (unsigned long long)step + 1, i->stage_of);
    else if (i->in_a_row > IN_A_ROW_MAX)
        snprintf(why, size, "the job was interrupted %u times in %s %llu", i->in_a_row, unit,
                 (unsigned long long)step + 1);
    if (is_other_stage || i->in_a_row > IN_A_ROW_MAX)
        return false;
    snprintf(i->cause, sizeof i->cause, "%s", cause);
    snprintf(i->stage_of, sizeof i->stage_of, "%s", stage_of);
    i->nodes = *nodes;
    i->unit = unit;
    i->step = step;
    i->since = time(NULL);
    i->until = 0;
    i->is_waited = false;
    i->refused = 0;
    return true;
}

void interruption_end(struct interruption *i)
{
    i->in_a_row = 0;
    *i->stage_of = '\0';
}

void interruption_plan(struct interruption *i, const struct job_nodes *nodes, const char *unit, uint64_t step,
                       const char *cause)
{
    *i = (struct interruption){.nodes = *nodes,
                               .fitted = i->fitted,
                               .count = i->count + 1,
                               .unit = unit,
                               .step = step,
                               .since = time(NULL)};
    snprintf(i->cause, sizeof i->cause, "%s", cause);
}

size_t interruption_missing(const struct interruption *i, const struct members *members, char *names,
                            size_t size)
{
    size_t missing = 0, len = 0;
    *names = '\0';
    for (size_t r = 1; r < i->nodes.n; r++) {
        const struct member *node = members_find(members, i->nodes.id[r]);
        if (members_reachable(members, i->nodes.id[r]) || (node && *node->drained))
            continue;
        if (len < size)
            len += (size_t)snprintf(names + len, size - len, "%s%s", missing ? ", " : "", i->nodes.name[r]);
        missing++;
    }
    return missing;
}

struct interruption_where interruption_where(const struct interruption *i)
{
    struct interruption_where w;
    if (i->step)
        snprintf(w.text, sizeof w.text, "after %s %llu", i->unit, (unsigned long long)i->step);
    else
        snprintf(w.text, sizeof w.text, "before its first %s", i->unit);
    return w;
}

void interruption_clock(char ret[INTERRUPTION_CLOCK], int64_t seconds)
{
    const time_t at = (time_t)seconds;
    struct tm tm;
    if (!localtime_r(&at, &tm) || !strftime(ret, INTERRUPTION_CLOCK, "%H:%M:%S", &tm))
        snprintf(ret, INTERRUPTION_CLOCK, "?");
}

void interruption_describe(const struct interruption *i, const char *names, const char *obstacle, char *text,
                           size_t size)
{
    char since[INTERRUPTION_CLOCK], until[INTERRUPTION_CLOCK];
    interruption_clock(since, i->since);
    interruption_clock(until, i->until);
    const int n =
        snprintf(text, size, "interrupted at %s %s: %s; ", since, interruption_where(i).text, i->cause);
    char *end = text + ((size_t)n < size ? (size_t)n : size - 1);
    size -= (size_t)(end - text);
    if (*names && i->until && !i->is_waited)
        snprintf(end, size, "it waits for %s until %s, then goes on without", names, until);
    else if (*names && (!i->is_waited || i->refused))
        snprintf(end, size, "it waits for %s", names);
    else if (!*obstacle)
        snprintf(end, size, "it waits for more nodes");
    else
        snprintf(end, size, "it waits for a ring: %s", obstacle);
}
