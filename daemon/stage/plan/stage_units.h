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

#include "daemon/common/job_plan.h"
#include "engine/model/stage.h"
#include "engine/num/num.h"
#include "engine/pipe/sched.h"

enum { UNITS_MOST = 512 };

struct unit_want {
    size_t unit;         /* as in split.h */
    size_t tokens, seqs; /* of the microbatch */
    size_t at;           /* of a generation, and of each sequence that is served: positions behind it */
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

/* Times the units one by one, or reads earlier results from the cache. ret_have says which units
 * have a cost. Stops timing after 30 s, except for units that are `needed`. If some are missing,
 * it returns the last error and `err` says why. may_time: as in unit_cost. */
int units_time(struct sched_cost *ret, bool *ret_have, const struct unit_list *list,
               const struct job_plan *plan, const struct config *config, int threads, bool may_time,
               struct err *err);

/* The question to another node: the list, and the part of the plan that timing needs. */
json_t *units_encode(const struct unit_list *list, const struct job_plan *plan);
/* −EBADMSG where a unit is not one of the model's, or does not fit the plan. */
int units_decode(struct unit_list *ret, const json_t *units, const struct job_plan *plan,
                 const struct config *config);
/* Times what the question asks for: {"costs": [[f, i, w, r, u] or null, …], "why"}. */
json_t *units_answer(const json_t *question, int threads, bool may_time);
/* The costs of such an answer, for n units; −EBADMSG. */
int units_decode_answer(struct sched_cost *ret, bool *ret_have, size_t n, const json_t *answer);

#endif
