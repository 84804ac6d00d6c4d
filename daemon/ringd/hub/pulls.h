/* SPDX-License-Identifier: MIT
 *
 * Models that are on their way to this node, from other nodes or from a hub, and what became of the
 * last ones. So many come at once, the others wait. Owned by supply.c; loop thread. */
#ifndef DAEMON_PULLS_H
#define DAEMON_PULLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/common/model/model_name.h"
#include "engine/err.h"

struct aside;
struct carriers;
struct carry_order;
struct fetchers;
struct pull;
struct pulls;

enum pull_state { PULL_WAITS, PULL_RUNS, PULL_DONE, PULL_FAILED, PULL_STOPPED };

struct pulls_setup { /* the pointers are borrowed */
    struct aside *aside;
    struct fetchers *fetchers;
    struct carriers *carriers;
    const char *dir;                /* the folder of models */
    uint64_t quota;                 /* 0: none */
    json_t *(*in_use)(void *owner); /* the caller owns it */
    void (*changed)(void *owner, const struct pull *p);
    void *owner;
};
struct pulls *pulls_new(const struct pulls_setup *setup);
void pulls_free(struct pulls *p);

/* what: "pull", "outline" (what a plan is made of, from the hub) or "verify". One of the name that
 * is under way is joined, unless that is not all of it, and all is wanted. −EINVAL, −EAGAIN and a
 * sentence. */
int pulls_begin(struct pulls *p, const char *what, const char *name, struct pull **ret, struct err *err);
/* The folder's files get the name, which has no revision; if it cannot be read, those of `kept`,
 * where this node keeps a result that was meant for it. Its row is that of a pull. −EBUSY: one of
 * that name is under way. */
int pulls_add(struct pulls *p, const char *name, const char *folder, const char *kept, struct pull **ret,
              struct err *err);
/* The same in parts: a model's outline, and the blocks of the order, from its nodes; should none of
 * them give it, from the hub. Blocks of a later order come too. −EBUSY: it is pulled from the
 * hub, or read again. */
int pulls_take(struct pulls *p, const struct carry_order *order, struct pull **ret, struct err *err);
/* By the name that was asked for, or the exact one; NULL: neither under way nor remembered. */
struct pull *pulls_find(const struct pulls *p, const char *name);
void pulls_forget(struct pulls *p, const char *model);
/* Those models with the "pull" of each, and behind them those that are only under way, or failed. A
 * failure is shown for an hour, or until its name is pulled or added again. The caller owns it. */
json_t *pulls_show(const struct pulls *p, const json_t *models);

void pull_stop(struct pull *p);               /* if it is under way */
const char *pull_model(const struct pull *p); /* exact once that is known, else as asked */
enum pull_state pull_state(const struct pull *p);
const char *pull_waits(const struct pull *p); /* for the hub, because of this; "": it does not */
const char *pull_why(const struct pull *p);   /* PULL_FAILED: a sentence */
bool pull_is_of_nodes(const struct pull *p);  /* it comes from other nodes, and not from the hub */
/* It has failed with the process that brought it, and may be tried again in a moment. */
bool pull_was_cut_off(const struct pull *p);
/* It has failed, and may be tried again by itself: not at once, and later if it will fail again.
 * has_source: another node has it, which is asked sooner than a hub. */
bool pull_may_retry(const struct pull *p, bool has_source);
void pull_amounts(const struct pull *p, uint64_t *ret_done, uint64_t *ret_total, double *ret_rate);
/* As docs/API.md has it; its number is of this life of the daemon. */
json_t *pull_row(const struct pull *p);

#endif
