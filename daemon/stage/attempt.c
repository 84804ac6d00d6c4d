/* SPDX-License-Identifier: MIT */
#include "daemon/stage/attempt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/cache_dir.h"
#include "daemon/common/model_facts.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/plan/stage_room.h"
#include "daemon/stage/plan_admit.h"
#include "daemon/stage/stage_cell.h"
#include "daemon/stage/share/stage_weights.h"
#include "engine/file/maps.h"

static void on_traced(void *owner, json_t *event)
{
    struct attempt *a = owner;
    stage_event(a->events, "timeline", event);
}

/* Not looked at here: the daemon keeps them for who goes on with the job. */
static void on_heard(void *owner, const char *lines, size_t n)
{
    struct attempt *a = owner;
    json_t *event = json_pack("{s:s%}", "lines", lines, n);
    stage_event(a->events, "lines", event ? event : json_object()); /* no UTF-8: there is a gap */
}

/* After a round: what it holds is warm. */
static void on_round(void *owner)
{
    struct attempt *a = owner;
    struct memory_use use;
    if (!memory_due(&a->memory, clock_now()))
        return;
    exchange_sample_tcp(a->exchange);
    if (!memory_read(&use) && memory_changed(&a->memory, &use))
        stage_event(a->events, "memory",
                    json_pack("{s:I s:I s:I}", "rss", (json_int_t)use.rss, "anon", (json_int_t)use.anon,
                              "peak", (json_int_t)use.peak));
}

static void on_begun(void *owner)
{
    struct attempt *a = owner;
    stage_event(a->events, "begun", json_object());
}

static void on_whole(void *owner)
{
    struct attempt *a = owner;
    stage_event(a->events, "whole", json_object());
}

static void on_settled(void *owner, bool on_disk)
{
    struct attempt *a = owner;
    stage_event(a->events, "settled", json_pack("{s:b}", "disk", (int)on_disk));
}

static void on_kept(void *owner, uint64_t step, const char *why)
{
    struct attempt *a = owner;
    stage_event(a->events, "kept", json_pack("{s:I s:s*}", "step", (json_int_t)step, "error", why));
}

static void tell_weights(struct attempt *a, const char *dir)
{
    struct requant_told sum = {0}, one;
    for (size_t s = 0; s < a->plan.stages; s++) {
        if (!a->stages[s])
            continue;
        stage_requanted(a->stages[s], &one);
        sum.made += one.made;
        sum.found += one.found;
        sum.removed += one.removed;
    }
    weights_tell_quantized(a->events, a->rank, a->plan.weight_bits, dir, &sum);
}

static void say_compute(struct attempt *a, const struct num *num)
{
    if (a->plan.training && a->plan.compute == NUM_BF16 && !num_is_bf16_fast(num))
        stage_say(
            a->events,
            "rank %u: this CPU is no faster in bf16, so it computes the same numbers in f32: for speed, "
            "leave --compute out",
            a->rank);
}

/* Every stage here carves it in its own way. */
static int alloc_scratch(struct slab *ret, size_t bytes, bool is_shared, struct err *err)
{
    ret->used = bytes;
    int r = slab_alloc(ret, "scratch", err);
    ret->used = r ? 0 : bytes;
    ret->overlaps = is_shared;
    return r;
}

static int open_stages(struct attempt *a, const struct config *config, struct num *num, struct maps *maps,
                       struct err *err)
{
    char dir[4096];
    struct stage_bytes bytes;
    int r = a->plan.weight_bits ? cache_dir(dir, sizeof dir, "weights", err) : 0;
    if (!r)
        r = stage_chunks(&bytes, &a->plan, config, a->rank, err);
    if (!r)
        r = alloc_scratch(
            &a->scratch, bytes.work,
            a->plan.stages > job_plan_places_of(&a->plan, job_plan_pipeline_of(&a->plan, a->rank)), err);
    slice_lanes_init(&a->slices, &a->plan, a->rank, a->progress);
    for (size_t s = 0; s < a->plan.stages && !r; s++) {
        struct stage_spec spec = job_plan_stage(&a->plan, config, s, job_plan_pipeline_of(&a->plan, a->rank));
        spec.cache_dir = dir;
        spec.scratch = &a->scratch;
        spec.maps = maps;
        spec.gather = &a->slices.gather;
        if (job_plan_is_at(&a->plan, s, a->rank))
            r = stage_open(&a->stages[s], num, &spec, err);
    }
    if (!r)
        maps_trim(maps);
    if (!r && a->plan.weight_bits)
        tell_weights(a, dir);
    return r;
}

/* [[first, end], …]: of each stage, as it was opened. */
static json_t *opened_layers(const struct attempt *a)
{
    json_t *list = json_array();
    for (size_t s = 0; s < a->plan.stages; s++)
        if (a->stages[s])
            json_array_append_new(
                list, json_pack("[I,I]", (json_int_t)a->plan.first[s], (json_int_t)a->plan.first[s + 1]));
    return list;
}

/* Weights twice: as the model stores them, and as they are quantized. And what earlier processes
 * left. */
static uint64_t mapped_bytes(const struct attempt *a)
{
    uint64_t bytes = a->plan.tune.random_init ? 0 : 2 * (uint64_t)model_file_bytes(a->plan.model);
    struct stat st;
    bytes += a->draft ? 2 * (uint64_t)model_file_bytes(a->draft) : 0;
    for (size_t i = 0; i + 1 < a->nheld; i++)
        bytes += fstat(a->held[i], &st) ? 0 : (uint64_t)st.st_size;
    return bytes;
}

static int open_hold(struct attempt *a, const struct config *config, struct err *err)
{
    if (!a->plan.copies)
        return 0;
    if (!a->nheld)
        return err_set(err, -EBADMSG,
                       "ringd gave no file for copies: install the same version of ringd and ringd-stage");
    return hold_new(&a->hold,
                    &(struct hold_setup){.plan = &a->plan,
                                         .config = config,
                                         .rank = a->rank,
                                         .stages = a->stages,
                                         .exchange = a->exchange,
                                         .progress = a->progress,
                                         .files = a->held,
                                         .nfiles = a->nheld,
                                         .disk = a->disk ? a->disk : -1,
                                         .whole = on_whole,
                                         .settled = on_settled,
                                         .kept = on_kept,
                                         .owner = a},
                    err);
}

/* One name may stand for other files on another node: then nothing is computed. */
static int check_content(const struct attempt *a, const char *here, struct err *err)
{
    if (!*a->plan.content || a->plan.tune.random_init || (here && !strcmp(here, a->plan.content)))
        return 0;
    return err_set(err, -ESTALE,
                   "%s is here with other files than on the head (%.8s, the head's %.8s): `ringctl models "
                   "verify` says which are right, and `models remove` lets them come again",
                   a->plan.model, here ? here : "not known", a->plan.content);
}

int attempt_admit(struct attempt *a, struct config *ret, const json_t *msg, struct err *err)
{
    int r = job_plan_decode(&a->plan, json_object_get(msg, "plan"), err);
    a->rank = (uint32_t)json_integer_value(json_object_get(msg, "rank"));
    if (!r)
        r = config_read(ret, a->plan.model, err);
    if (!r)
        r = job_plan_check_model(&a->plan, ret, err);
    if (!r)
        r = plan_admit(&a->plan, ret, a->rank, a->is_head, err);
    if (!r)
        r = plan_admit_memory(&a->plan, ret, a->rank, memory_of_machine(), err);
    if (!r)
        r = check_content(a, json_string_value(json_object_get(msg, "content")), err);
    return r;
}

int attempt_compare(struct attempt *a, const struct config *config, struct err *err)
{
    return a->plan.tune.random_init ? 0
           : *a->plan.content       ? weights_check_tied_here(&a->plan, config, a->rank, err)
           : a->rank                ? weights_of_rank(a->events, &a->plan, config, a->rank, err)
                                    : 0;
}

int attempt_open(struct attempt *a, const struct config *config, struct num *num, struct maps *maps,
                 struct err *err)
{
    num_set_compute(num, job_plan_compute(&a->plan));
    say_compute(a, num);
    cell_limit_memory(a->plan.bytes[a->rank], mapped_bytes(a), (unsigned)num_threads(num),
                      memory_of_machine());
    int r = open_stages(a, config, num, maps, err);
    if (!r)
        r = exchange_new(&a->exchange, a->progress, err);
    a->slices.exchange = a->exchange;
    if (!r)
        r = open_hold(a, config, err);
    const struct runner_setup setup = {.plan = &a->plan,
                                       .config = config,
                                       .rank = a->rank,
                                       .stages = a->stages,
                                       .exchange = a->exchange,
                                       .progress = a->progress,
                                       .hold = a->hold,
                                       .traced = on_traced,
                                       .heard = on_heard,
                                       .rounded = on_round,
                                       .begun = a->rank ? NULL : on_begun,
                                       .owner = a};
    if (!r)
        r = runner_new(&a->runner, &setup, err);
    if (!r)
        stage_event(a->events, "ready",
                    json_pack("{s:o s:s s:i s:o*}", "layers", opened_layers(a), "isa", num_isa(num),
                              "threads", num_threads(num), "held", a->hold ? hold_report(a->hold) : NULL));
    return r;
}

void attempt_done(struct attempt *a)
{
    runner_free(a->runner);
    exchange_free(a->exchange);
    hold_free(a->hold);
    for (size_t i = 0; i < a->nheld; i++)
        close(a->held[i]);
    if (a->disk)
        close(a->disk);
    for (size_t s = 0; s < JOB_MAX_STAGES; s++)
        stage_close(a->stages[s]);
    slab_free(&a->scratch);
    job_plan_done(&a->plan);
    *a = (struct attempt){.events = a->events, .progress = a->progress};
}
