/* SPDX-License-Identifier: MIT
 *
 * What ranks tell of the last step of a job: rows of any numbers, from ranks that need not agree,
 * or those of the job's plan with any times; how many bytes they sent, and how far other clocks are
 * ahead. Whatever is taken can be shown. Input: u8 schedule and ranks ‖ (u8 rank ‖ u8 step ‖ u8
 * microbatches ‖ u8 rows ‖ 7 bytes a row and one a message ‖ u8 bytes ‖ one each ‖ u8 clocks ‖ 3
 * bytes each)*. */
#include "tests/fuzz/lib/input.h"
#include "tests/lib/small_plan.h"

#include "daemon/ringd/timeline/timeline.h"
#include "engine/pipe/plan.h"

enum { RANKS = 4, MESSAGES = 24, OF_THE_PLAN = 128 };

static json_t *row(struct input *in, int kind, size_t emits)
{
    int8_t v[7] = {0};
    input_bytes(in, v, sizeof v);
    json_t *one = json_pack("[i,i,I,I,i,i,i]", kind >= 0 ? kind : v[0] & 15, v[1], (json_int_t)v[2] * 1000,
                            (json_int_t)v[3] * 1000, v[4], v[5] & 15, v[6]);
    for (size_t i = 0; i < emits; i++)
        json_array_append_new(one, json_integer((json_int_t)(int8_t)input_u8(in) * 1000));
    return one;
}

static json_t *any_rows(struct input *in)
{
    json_t *tasks = json_array();
    for (size_t rows = input_u8(in) % 32; rows > 0 && in->left; rows--)
        json_array_append_new(tasks, row(in, -1, *in->at % (TASK_MAX_EMITS + 2)));
    return tasks;
}

/* The tasks this rank would have done, so that the plan is found again behind them. */
static json_t *planned_rows(struct input *in, const struct sched_request *want, uint32_t lowest, bool tied,
                            size_t rank)
{
    struct sched *sched = NULL;
    struct plan *plan = NULL;
    struct err err;
    json_t *tasks = json_array();
    if (!sched_make(&sched, want, &err) && lowest <= sched->stages &&
        !plan_compile(&plan,
                      &(struct plan_request){.program = PROGRAM_TRAIN,
                                             .sched = sched,
                                             .ranks = want->ranks,
                                             .tied = tied,
                                             .lowest_trained = lowest},
                      &err))
        for (size_t i = 0; rank < want->ranks && i < plan->rank[rank].n; i++)
            json_array_append_new(
                tasks, row(in, (int)plan->rank[rank].tasks[i].kind, plan->rank[rank].tasks[i].nemits));
    plan_free(plan);
    sched_free(sched);
    return tasks;
}

static json_t *bytes_of(struct input *in, size_t rows)
{
    const uint8_t how = input_u8(in);
    json_t *bytes = json_array();
    for (size_t i = 0; i < rows + (how & 1); i++)
        json_array_append_new(bytes, json_integer((int8_t)input_u8(in) * ((json_int_t)1 << (how & 48))));
    return bytes;
}

static json_t *clocks_of(struct input *in)
{
    json_t *clocks = json_array();
    for (size_t n = input_u8(in) % 6; n > 0; n--) {
        const uint8_t of = input_u8(in);
        const json_int_t ahead = (int8_t)input_u8(in), error = (int8_t)input_u8(in);
        json_array_append_new(
            clocks, json_pack("[i,I,I]", of % (RANKS + 1), ahead * ((json_int_t)1 << (of & 48)), error));
    }
    return clocks;
}

static json_t *event_of(struct input *in, struct sched_request *want, uint8_t how, size_t rank)
{
    const uint8_t step = input_u8(in), lowest = step >> 4;
    const bool tied = step & 1;
    want->microbatches = input_u8(in) % 8;
    json_t *tasks =
        how & OF_THE_PLAN && want->microbatches ? planned_rows(in, want, lowest, tied, rank) : any_rows(in);
    json_t *bytes = bytes_of(in, json_array_size(tasks));
    json_t *event = json_pack("{s:i s:I s:i s:b s:o s:o s:o}", "step", step & 15, "microbatches",
                              (json_int_t)want->microbatches, "lowest", lowest, "tied", tied, "tasks", tasks,
                              "bytes", bytes, "clocks", clocks_of(in));
    json_t *adapters = json_array();
    for (uint8_t k = 0, steps = input_u8(in) % 9; k < steps; k++)
        json_array_append_new(adapters, json_integer(k & 1));
    json_object_set_new(event, "adapters", adapters);
    return event;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1", "interleaved-1f1b", "none"};
    static const char names[RANKS][64] = {"a", "b", "c", "d"};
    struct input in = {data, n};
    const uint8_t how = input_u8(&in);
    const size_t ranks = 1 + how % RANKS, stages = how & 64 ? 2 * ranks : 0;
    struct sched_request want = {
        .name = schedules[how / RANKS % 5], .ranks = ranks, .chunks = stages ? 2 : 1};
    struct job_plan plan = small_plan(JOB_TRAIN, ranks);
    snprintf(plan.schedule, sizeof plan.schedule, "%s", want.name);
    plan.stages = stages ? stages : ranks;
    struct timeline *t = timeline_new(&plan);
    for (int i = 0; i < MESSAGES && in.left; i++) {
        const size_t rank = input_u8(&in) % (RANKS + 1);
        json_t *event = event_of(&in, &want, how, rank);
        const int r = timeline_add(t, rank, event);
        expect(r == 0 || r == 1 || r == -EBADMSG || r == -ESTALE);
        json_decref(event);
        if (r == 1) {
            json_t *shown = timeline_encode(t, 1, names);
            expect(json_array_size(json_object_get(shown, "ranks")) == ranks);
            json_decref(shown);
        }
    }
    timeline_free(t);
    return 0;
}
