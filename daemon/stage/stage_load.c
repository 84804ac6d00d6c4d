/* SPDX-License-Identifier: MIT
 *
 * What adapters start from: a round of PROGRAM_RESTORE for each that ranks hold a newer copy of
 * than its files are, else one of PROGRAM_LOAD if it has files. */
#include "daemon/stage/stage_drive.h"

#include <errno.h>
#include <stdlib.h>

static int load_piece(void *owner, const struct param_piece *piece, float *values, struct err *err)
{
    const struct head_adapter *a = owner;
    (void)err;
    adapter_in_piece(a->in, piece, values);
    return 0;
}

/* Which unit comes from which rank; other ranks hold this against the plan. */
int head_restore_read(struct head *h, const json_t *restore, struct err *err)
{
    const json_t *by = json_object_get(restore, "by");
    const size_t units = json_array_size(by);
    if (!restore || !h->plan.copies)
        return 0;
    if (units != h->config.layers + 2)
        return err_set(err, -EBADMSG,
                       "the daemon names ranks for %zu units, and the model has %zu: install the "
                       "same version of ringd and ringd-stage",
                       units, h->config.layers + 2);
    h->held_by = calloc(units, sizeof *h->held_by);
    if (!h->held_by)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t u = 0; u < units; u++)
        h->held_by[u] = (uint32_t)json_integer_value(json_array_get(by, u));
    h->held_step = (uint64_t)json_integer_value(json_object_get(restore, "step"));
    return 0;
}

/* Copies are values alone. A daemon that was started again has no word of what the run decided. */
static bool is_decided(const struct job_spec *s)
{
    return (!s->early_stop && s->on_nan != ON_NAN_SKIP) || json_object_get(s->said, "so-far");
}

static bool is_held(const struct head *h, const struct head_adapter *a)
{
    return is_decided(&h->spec) && h->held_by && h->held_step > a->first_step && h->held_step <= h->steps;
}

static int restore(struct head *h, struct runner *r, size_t adapter, bool is_last, struct err *err)
{
    struct head_round round = {0};
    struct go go = {.program = PROGRAM_RESTORE,
                    .state = true,
                    .hold = is_last,
                    .step = h->held_step,
                    .adapter = (uint32_t)adapter,
                    .nheld = h->config.layers + 2,
                    .held_by = h->held_by};
    int e = runner_round(r, &go, &round, err);
    h->adapters[adapter].first_step = h->held_step;
    return e;
}

static int load(struct runner *r, struct head_adapter *a, size_t adapter, struct err *err)
{
    struct head_round round = {.piece = load_piece, .owner = a};
    struct go go = {.program = PROGRAM_LOAD,
                    .state = adapter_in_has_state(a->in),
                    .step = a->first_step,
                    .adapter = (uint32_t)adapter};
    return runner_round(r, &go, &round, err);
}

int head_load(struct head *h, struct runner *r, struct err *err)
{
    size_t last = h->nadapters;
    int e = 0;
    /* Those from files first: what is copied after the last one is restored has all of them. */
    for (size_t i = 0; i < h->nadapters && !e; i++) {
        if (is_held(h, &h->adapters[i]))
            last = i;
        else if (h->adapters[i].in)
            e = load(r, &h->adapters[i], i, err);
    }
    for (size_t i = 0; i < h->nadapters && !e; i++)
        if (is_held(h, &h->adapters[i]))
            e = restore(h, r, i, i == last, err);
    return e;
}
