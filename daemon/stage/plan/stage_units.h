/* SPDX-License-Identifier: MIT
 *
 * Which units of a model are to be timed and at what sizes: a list the head makes, and every node
 * of its ring answers for itself. In the stage process that plans (stage_search.c), and in the one
 * a node starts for another's plan (main.c, "measure"); main thread. */
#ifndef DAEMON_STAGE_UNITS_H
#define DAEMON_STAGE_UNITS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/stage/plan/stage_plan.h"
#include "engine/num/num.h"
#include "engine/pipe/sched.h"

enum { UNITS_MOST = 512 };

struct unit_want {
    size_t unit;         /* as in split.h */
    size_t tokens, seqs; /* of the microbatch */
    size_t at;           /* of a generation: positions behind it */
    bool trained;        /* the backward reaches it */
    bool needed;         /* also when time has run out */
};
struct unit_list {
    size_t n;
    struct unit_want at[UNITS_MOST];
};

/* What every stage of that one unit would be opened with. */
struct stage_spec unit_spec(const struct job_plan *plan, const struct config *config, size_t unit,
                            size_t tokens, size_t seqs);

/* Times them one by one, or takes what is kept; ret_have says which came to something. Within 30 s,
 * but for those that are needed. What is missing is explained in `err`, and the last error is
 * returned. may_time: as in unit_cost. */
int units_time(struct sched_cost *ret, bool *ret_have, const struct unit_list *list,
               const struct job_plan *plan, const struct config *config, int threads, bool may_time,
               struct err *err);

/* The question, with as much of the plan as it takes, and what its units are, which have to be of
 * that model and fit that plan; one node's answer: {"costs": [[f, i, w, r] or null, …], "why"}, and
 * what it says. −EBADMSG. */
json_t *units_encode(const struct unit_list *list, const struct job_plan *plan);
int units_decode(struct unit_list *ret, const json_t *units, const struct job_plan *plan,
                 const struct config *config);
json_t *units_answer(const json_t *question, int threads, bool may_time);
int units_decode_answer(struct sched_cost *ret, bool *ret_have, size_t n, const json_t *answer);

#endif
