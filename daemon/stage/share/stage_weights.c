/* SPDX-License-Identifier: MIT */
#include "daemon/stage/share/stage_weights.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/cache_dir.h"
#include "daemon/common/model_facts.h"
#include "daemon/stage/share/stage_share.h"
#include "engine/file/weights.h"

static void say_read(struct stage_events *tell, uint32_t rank, uint64_t bytes, const char *why)
{
    const bool large = bytes >> 30;
    if (bytes)
        stage_say(tell, "rank %u: %.1f %s of weights were read once, to compare %s", rank,
                  (double)bytes / (large ? 1 << 30 : 1 << 20), large ? "GiB" : "MiB", why);
}

/* owner: NULL: no event is sent. */
static void tell_reading(void *owner, uint64_t done, uint64_t total)
{
    if (!owner)
        return;
    stage_event(owner, "reading",
                json_pack("{s:I s:I}", "done", (json_int_t)done, "total", (json_int_t)total));
}

static int open_weights(struct weights **ret, const char *dir, size_t layers,
                        bool (*want)(void *, const char *), void *arg, struct err *err)
{
    char cache[4096];
    struct err none;
    const bool is_kept = !cache_dir(cache, sizeof cache, "hashes", &none);
    return weights_open(ret, dir, layers, is_kept ? cache : NULL, want, arg, err);
}

static int read_weights(struct weights *w, struct stage_events *tell, bool is_tied, uint64_t *ret_read,
                        struct err *err)
{
    const struct weights_bytes bytes = weights_bytes(w);
    const struct weights_reading how = {
        .threads = omp_get_max_threads(), .told = tell_reading, .owner = tell};
    if (bytes.known < bytes.all)
        tell_reading(tell, 0, bytes.all - bytes.known);
    int r = weights_read(w, &how, ret_read, err);
    return r || !is_tied ? r : weights_check_tied(w, err);
}

/* --- the head --------------------------------------------------------------------------------- */

static bool has_own_head(const struct weights *w)
{
    for (size_t i = 0; i < weights_count(w); i++)
        if (!strncmp(weights_name(w, i), "lm_head.", strlen("lm_head.")))
            return true;
    return false;
}

/* Alone there is nobody to be compared with, but a head that is tied and yet stored is looked at
 * all the same. */
static int check_alone(struct head *h, struct err *err)
{
    struct weights *w;
    uint64_t read = 0;
    if (!h->config.tied)
        return 0;
    int r = open_weights(&w, h->plan.model, h->config.layers, weights_is_tied, NULL, err);
    if (r)
        return r;
    if (has_own_head(w))
        r = read_weights(w, h->events, h->config.tied, &read, err);
    weights_close(w);
    return r;
}

int weights_check_tied_here(const struct job_plan *plan, const struct config *config, uint32_t rank,
                            struct err *err)
{
    struct share_want own;
    struct weights *w = NULL;
    uint64_t read = 0;
    int r = config->tied ? share_want_init(&own, plan, config, rank, err) : 1;
    if (r)
        return r < 0 ? r : 0;
    const bool has_both = own.units[0] && own.units[config->layers + 1];
    share_want_done(&own);
    if (has_both)
        r = open_weights(&w, plan->model, config->layers, weights_is_tied, NULL, err);
    if (!r && w && has_own_head(w))
        r = read_weights(w, NULL, true, &read, err);
    weights_close(w);
    return r;
}

int weights_of_head(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    struct weights *w;
    uint64_t read = 0;
    char missing[240];
    if (p->tune.random_init || *p->content)
        return 0;
    if (p->ranks == 1)
        return check_alone(h, err);
    int r = open_weights(&w, p->model, h->config.layers, NULL, NULL, err);
    if (r)
        return r;
    r = read_weights(w, h->events, h->config.tied, &read, err);
    if (!r && !(p->weights = weights_text(w)))
        r = err_set(err, -ENOMEM, "%s: no memory for the hashes of its tensors", p->model);
    if (!r)
        say_read(h->events, 0, read, "other nodes with them");
    if (!r && weights_missing(w, missing, sizeof missing))
        stage_say(h->events, "rank 0: without %s other nodes cannot be compared with it in all layers",
                  missing);
    weights_close(w);
    return r;
}

/* --- other ranks ------------------------------------------------------------------------------ */

int weights_of_rank(struct stage_events *tell, const struct job_plan *plan, const struct config *config,
                    uint32_t rank, struct err *err)
{
    struct share_want wanted;
    struct weights *w = NULL;
    uint64_t read = 0;
    size_t compared = 0, own = 0;
    int r = share_want_init(&wanted, plan, config, rank, err);
    if (r)
        return r;
    for (size_t u = 0; u < config->layers + 2; u++)
        own += wanted.units[u];
    r = open_weights(&w, plan->model, config->layers, share_wants, &wanted, err);
    if (!r)
        r = read_weights(w, tell, config->tied, &read, err);
    if (!r)
        r = weights_check(w, plan->weights ? plan->weights : "", "the head", &compared, err);
    if (!r)
        say_read(tell, rank, read, "them with the head's");
    if (!r && compared < own)
        stage_say(tell, "rank %u: %zu of its %zu units could not be compared: the head has not all files",
                  rank, own - compared, own);
    weights_close(w);
    share_want_done(&wanted);
    return r;
}

void weights_tell_quantized(struct stage_events *tell, uint32_t rank, size_t bits, const char *dir,
                            const struct requant_told *sum)
{
    char removed[100] = "";
    if (sum->removed)
        snprintf(removed, sizeof removed, "; %.1f MiB, unused for long, were deleted to make room",
                 (double)sum->removed / (1 << 20));
    stage_say(tell, "rank %u: weights in %zu bits under %s: %.1f MiB quantized now, %.1f MiB found%s", rank,
              bits, dir, (double)sum->made / (1 << 20), (double)sum->found / (1 << 20), removed);
}

/* --- the doctor ------------------------------------------------------------------------------- */

json_t *weights_of_dir(struct stage_events *tell, const char *dir)
{
    const struct weights_reading how = {
        .threads = omp_get_max_threads(), .again = true, .told = tell_reading, .owner = tell};
    return model_facts(dir, &how);
}
