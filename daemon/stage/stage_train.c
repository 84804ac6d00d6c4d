/* SPDX-License-Identifier: MIT
 *
 * Training, driven from rank 0: batches, steps, evaluation, samples, the log, and saving; of one
 * adapter, or of several on the same weights, whose steps then go through the ring in rounds of
 * many. */
#include "daemon/stage/stage_drive.h"
#include "daemon/stage/train/train_report.h"
#include "daemon/stage/train/train_valid.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/clock.h"

enum {
    TRACE_EVERY_US = 1000000,
    SAVE_EVERY_US = 300000000,
    LEAVE_AGAIN_US = 1000000,
    LEAVE_TIMES = 10,
    HOLD_SHARE = 100
};

/* --- a round ---------------------------------------------------------------------------------- */

/* Which packs the step learns. */
static void begin_step(struct train_run *run, size_t at, size_t adapter, uint64_t number)
{
    const struct head_adapter *a = &run->h->adapters[adapter];
    struct train_step *step = &run->steps[at];
    run->go[at] = (struct go_step){.adapter = (uint32_t)adapter, .step = number};
    step->packs = run->packs + at * a->spec.batch;
    for (size_t i = 0; i < a->spec.batch; i++)
        step->packs[i] = data_order_at(a->order, (number - 1) * a->spec.batch + i);
}

static void prepare_step(struct train_run *run, size_t at)
{
    struct go_step *go = &run->go[at];
    const struct job_spec *s = &run->h->adapters[go->adapter].spec;
    const uint64_t number = go->step;
    struct train_step *step = &run->steps[at];
    step->first = run->batch.n;
    step->sum =
        batch_fill(&run->batch, run->h, &run->h->train, step->packs, s->batch, run->h->spec.micro_batch);
    go->dscale = 1.0 / (double)(step->sum.pairs ? step->sum.pairs : step->sum.supervised);
    go->beta = step->sum.pairs ? s->beta : 0;
    for (size_t i = 0; i < s->batch && run->train_refs.logp; i++)
        run->refs[at * s->batch + i] = pair_refs_of(&run->train_refs, step->packs[i]);
    run->round[at] = (struct head_step){.max_norm = s->max_grad_norm};
    run->round[at].opt = (struct adamw){(float)lr_at(s->lr_kind, s->lr, s->warmup, run->h->steps, number),
                                        0.9f, 0.999f, 1e-8f, (float)s->weight_decay};
}

/* Adapters are small: after every step. Where all weights are trained, as often as it takes a
 * hundredth of the time. */
static bool is_hold_due(const struct train_run *run, uint64_t last)
{
    const struct head *h = run->h;
    if (!h->plan.copies || last == h->steps)
        return false;
    if (train_keep_forbids(&run->keep))
        return false;
    return atomic_load(&h->leave) || h->plan.tune.kind == TUNE_LORA || !run->held.us ||
           (double)clock_since_us(run->reported, run->held) / 1e6 >= HOLD_SHARE * runner_hold_seconds(run->r);
}

/* Steps `first` to `last`, of each adapter that has not done them yet. */
static int train_round(struct train_run *run, uint64_t first, uint64_t last, struct err *err)
{
    struct head *h = run->h;
    size_t n = 0;
    for (uint64_t number = first; number <= last; number++)
        for (size_t a = 0; a < h->nadapters; a++)
            if (number > h->adapters[a].first_step && !guard_is_over(&run->guard, a))
                begin_step(run, n++, a, number);
    int e = run->train_refs.logp
                ? pair_refs_find(&run->train_refs, h, run->r, &run->batch, run->packs, n * h->spec.batch, err)
                : 0;
    if (e)
        return e;
    run->reported = clock_now();
    run->batch.n = 0;
    for (size_t at = 0; at < n; at++)
        prepare_step(run, at);
    for (size_t a = 0; a < h->nadapters; a++)
        run->of[a].reported = run->reported;
    struct head_round round = {
        .mb = run->batch.mb, .steps = run->round, .stepped = train_on_stepped, .owner = run};
    run->is_one_step = n == 1;
    struct go go = {.program = PROGRAM_TRAIN,
                    .step = first,
                    .nsteps = n,
                    .steps = run->go,
                    .microbatches = run->batch.n,
                    .hold = is_hold_due(run, last),
                    .kept = train_keep_is_whole(&run->keep),
                    .trace = h->spec.trace || !run->traced.us ||
                             clock_since_us(run->reported, run->traced) >= TRACE_EVERY_US,
                    .mb = run->batch.seqs,
                    .nrefs = run->train_refs.logp ? n * h->spec.batch : 0,
                    .refs = run->refs};
    if (go.trace)
        run->traced = run->reported;
    if (go.hold) {
        run->held = run->reported;
        train_keep_given(&run->keep);
    }
    run->held_step = go.hold ? last : run->held_step;
    e = runner_round(run->r, &go, &round, err);
    return e || n > 1 || !run->round[0].update ? e : train_report_step(run, 0, err);
}

/* --- samples ---------------------------------------------------------------------------------- */

/* What the model writes as it is now: for people to look at, and nothing that training follows
 * from. */
static int take_sample(struct train_run *run, size_t adapter, uint64_t step, struct err *err)
{
    const struct job_spec *s = &run->h->spec;
    char *text;
    if (train_was_told(run, "sample", adapter, step))
        return 0;
    int e = head_sample(run->h, run->r, adapter, step, &text, err);
    if (e)
        return e;
    json_t *line =
        json_pack("{s:I s:s s:s}", "step", (json_int_t)step, "prompt", s->sample_prompt, "sample", text);
    free(text);
    return train_tell(run, "sample", adapter, step, line, (struct train_more){0}, err);
}

/* --- all steps -------------------------------------------------------------------------------- */

/* Adapters learn to be better than the model without them: the sets of --loss dpo have it. */
static int open_refs(struct train_run *run)
{
    const struct head *h = run->h;
    if (h->plan.loss != LOSS_DPO)
        return 0;
    int e = pair_refs_init(&run->train_refs, &h->train);
    if (!e && h->valid.data)
        e = pair_refs_init(&run->valid_refs, &h->valid);
    for (size_t i = 0; i < JOB_EVAL_SETS && !e; i++)
        if (h->more_valid[i].data)
            e = pair_refs_init(&run->more_refs[i], &h->more_valid[i]);
    return e;
}

static int run_open(struct train_run *run, struct err *err)
{
    const struct job_spec *s = &run->h->spec;
    const size_t steps = run->h->plan.round_steps;
    run->packs = calloc(steps * s->batch, sizeof *run->packs);
    run->steps = calloc(steps, sizeof *run->steps);
    run->go = calloc(steps, sizeof *run->go);
    run->round = calloc(steps, sizeof *run->round);
    run->refs = calloc(steps * s->batch, sizeof *run->refs);
    if (!run->packs || !run->steps || !run->go || !run->round || !run->refs ||
        batch_alloc(&run->batch, &run->h->plan) || open_refs(run))
        return err_set(err, -ENOMEM, "out of memory");
    int e = train_save_init(&run->save, run->h, run->r, &run->log, err);
    if (!e)
        e = train_keep_init(&run->keep, run->h, err);
    return e ? e : stage_log_open(&run->log, s, err);
}

static void run_done(struct train_run *run)
{
    train_save_done(&run->save);
    stage_log_close(&run->log);
    batch_done(&run->batch);
    pair_refs_done(&run->train_refs);
    pair_refs_done(&run->valid_refs);
    for (size_t i = 0; i < JOB_EVAL_SETS; i++)
        pair_refs_done(&run->more_refs[i]);
    free(run->refs);
    free(run->packs);
    free(run->steps);
    free(run->go);
    free(run->round);
}

static bool is_due(const struct train_run *run, uint64_t step, size_t every)
{
    return step == run->h->steps || (every && step % every == 0);
}

/* The last step of the round that begins with `first`: none is beyond one after which something is
 * due, and adapters that are not equally far go on one step at a time. */
static uint64_t round_end(const struct train_run *run, uint64_t first)
{
    const struct head *h = run->h;
    const struct job_spec *s = &h->spec;
    const size_t most = h->plan.round_steps / h->nadapters;
    uint64_t last = first + most - 1;
    for (size_t a = 0; a < h->nadapters; a++)
        last = first > h->adapters[a].first_step && !guard_is_over(&run->guard, a) ? last : first;
    for (uint64_t step = first; step < last; step++)
        if (is_due(run, step, s->save_every) || (h->valid.data && is_due(run, step, s->eval_every)) ||
            (s->sample_prompt && is_due(run, step, s->sample_every)))
            last = step;
    return first + steps_per_adapter_below(last - first + 1, most) - 1;
}

/* Where nothing is asked for, a run that is interrupted loses minutes and not hours. */
static bool is_save_due(const struct train_run *run, uint64_t step)
{
    const size_t every = run->h->spec.save_every;
    return is_due(run, step, every) ||
           (!every && clock_since_us(clock_now(), run->save.begun) >= SAVE_EVERY_US);
}

/* Each adapter as far as it has come; `again`: also where it was at its end before. */
static int save(struct train_run *run, uint64_t step, bool again, struct err *err)
{
    const struct head *h = run->h;
    struct train_save_of of[JOB_MAX_ADAPTERS] = {0};
    json_t *so_far[JOB_MAX_ADAPTERS] = {NULL};
    bool is_whole = true;
    for (size_t a = 0; a < h->nadapters; a++) {
        const struct guard_of *guard = &run->guard.of[a];
        so_far[a] = guard_encode(&run->guard, a);
        is_whole = is_whole && so_far[a];
        of[a] = (struct train_save_of){.is_wanted = again || guard->done > h->adapters[a].first_step,
                                       .is_best = guard->has_best && guard->best_step == guard->done,
                                       .step = guard->done,
                                       .so_far = so_far[a]};
    }
    const bool keeps = is_whole && step < h->steps && train_keep_begins(&run->keep, run->held_step);
    const int e =
        is_whole ? train_save_all(&run->save, step, of, keeps, err) : err_set(err, -ENOMEM, "out of memory");
    for (size_t a = 0; a < h->nadapters; a++)
        json_decref(so_far[a]);
    return e;
}

/* The sentence comes once: a run that does the step again has said it. */
static void say_early(const struct train_run *run, size_t adapter)
{
    const struct guard_of *of = &run->guard.of[adapter];
    const char *name = run->h->adapters[adapter].name;
    stage_say(
        run->h->events,
        "%s%sstops after step %llu: %zu evaluations had no better loss than %.6g of step %llu, which is "
        "kept in %s/best",
        name, *name ? " " : "training ", (unsigned long long)of->done, of->worse, of->best,
        (unsigned long long)of->best_step, run->h->adapters[adapter].spec.adapter_out);
}

/* An evaluation is one of --eval-every, or the last; what a run begins with is none. True: what was
 * evaluated is to be saved, as the best so far, or as the last there will be. */
static bool judge(struct train_run *run, size_t adapter, uint64_t step)
{
    if (!run->h->spec.early_stop || !step || !is_due(run, step, run->h->spec.eval_every))
        return false;
    const bool is_best = guard_evaluated(&run->guard, adapter, step, run->of[adapter].last_valid);
    train_tell_so_far(run, adapter, step);
    if (guard_is_early(&run->guard, adapter))
        say_early(run, adapter);
    return is_best || guard_is_early(&run->guard, adapter);
}

/* What is due after a step, of every adapter that has made it. */
static int after_step(struct train_run *run, uint64_t step, struct err *err)
{
    const struct head *h = run->h;
    const struct job_spec *s = &h->spec;
    bool must_save = is_save_due(run, step);
    int e = 0;
    for (size_t a = 0; a < h->nadapters && !e; a++) {
        if (step <= h->adapters[a].first_step || run->guard.of[a].done != step)
            continue;
        const bool is_evaluated = h->valid.data && is_due(run, step, s->eval_every);
        if (is_evaluated)
            e = train_evaluate(run, a, step, err);
        if (!e && is_evaluated && judge(run, a, step))
            must_save = true;
        if (!e && s->sample_prompt && is_due(run, step, s->sample_every))
            e = take_sample(run, a, step, err);
    }
    return e || !must_save ? e : save(run, step, false, err);
}

/* A step that cannot be applied ends the job, with the state before it saved. */
static int stop_at_bad_step(struct train_run *run, uint64_t last, struct err *err)
{
    const struct head *h = run->h;
    struct err why = {""};
    size_t a = 0;
    while (a < h->nadapters && !run->guard.of[a].stopped)
        a++;
    if (a == h->nadapters)
        return 0;
    const struct guard_of *of = &run->guard.of[a];
    int e = of->done > h->adapters[a].first_step || h->nadapters > 1 ? save(run, last, false, &why) : 0;
    if (!e)
        e = train_save_finish(&run->save, &why);
    if (e)
        return err_set(err, -EDOM,
                       "%.600s; nothing of it is applied, but the state before it is not saved: %.300s",
                       run->why, why.text);
    if (!of->done)
        return err_set(err, -EDOM, "%.600s; it is the first step, so the model or the data may have a fault",
                       run->why);
    return err_set(
        err, -EDOM,
        "%.600s; nothing of it is applied, and the state of step %llu is saved. A lower --lr or "
        "--max-grad-norm 1 helps where training diverges; --resume --on-nan skip leaves such steps out",
        run->why, (unsigned long long)of->done);
}

/* A run that was killed between its last save and its end: the state is whole, the result may not
 * be. So what was at its end before is written again. */
static int finish(struct train_run *run, struct err *err)
{
    const struct head *h = run->h;
    bool again = false;
    for (size_t a = 0; a < h->nadapters; a++)
        again = again || run->guard.of[a].done == h->adapters[a].first_step;
    const int e = again ? save(run, h->steps, true, err) : 0;
    return e ? e : train_save_finish(&run->save, err);
}

static bool is_over(const struct train_run *run)
{
    for (size_t a = 0; a < run->h->nadapters; a++)
        if (!guard_is_over(&run->guard, a))
            return false;
    return true;
}

/* What a run begins with is evaluated, but not where it was interrupted: an undisturbed one has
 * nothing there. */
static bool is_first_evaluated(const struct train_run *run, size_t adapter)
{
    const uint64_t step = run->h->adapters[adapter].first_step;
    return step < run->h->steps &&
           (!train_was_said(run, "valid", adapter, 0) || !step || is_due(run, step, run->h->spec.eval_every));
}

/* Of a run that the user goes on with: what the log holds is of the run before. */
static int begin_log(struct train_run *run, struct err *err)
{
    const struct job_spec *s = &run->h->spec;
    return s->log && s->resume && !s->said
               ? train_commit(&run->save.commit, 0, stage_log_bytes(&run->log), err)
               : 0;
}

/* What is due where a run begins: of one that was interrupted, perhaps before it was said or
 * counted. ret: something is to be saved. */
static int before_steps(struct train_run *run, bool *ret, struct err *err)
{
    const struct head *h = run->h;
    const struct job_spec *s = &h->spec;
    int e = begin_log(run, err);
    for (size_t a = 0; a < h->nadapters && !e; a++) {
        const uint64_t first = h->adapters[a].first_step;
        if (guard_is_needed(&run->guard))
            train_tell_so_far(run, a, run->guard.of[a].done);
        const bool is_over = guard_is_over(&run->guard, a),
                   is_evaluated = h->valid.data && !is_over && is_first_evaluated(run, a);
        if (is_evaluated)
            e = train_evaluate(run, a, first, err);
        if (is_evaluated && !e && judge(run, a, first))
            *ret = true;
        if (!e && s->said && s->sample_prompt && first && !is_over && is_due(run, first, s->sample_every))
            e = take_sample(run, a, first, err);
    }
    return e;
}

/* Behind a step that nodes have copies of, or that is on the disk. Where the disk is full the job
 * stays, since it can go on, and tries again so much later that trying takes little of its time. */
static int leave_if_asked(struct train_run *run, uint64_t step, struct err *err)
{
    struct head *h = run->h;
    const int leave = atomic_load(&h->leave);
    if (leave == HEAD_STAYS || is_over(run) || (h->plan.copies && run->held_step != step))
        return 0;
    h->has_left = h->plan.copies && leave == HEAD_LEAVES;
    const struct instant now = clock_now();
    if (h->has_left || clock_since_us(now, run->stayed) < run->stays_us)
        return 0;
    const int e = save(run, step, false, err);
    h->has_left = !e && train_save_is_kept(&run->save);
    run->stayed = clock_now();
    run->stays_us = LEAVE_TIMES * clock_since_us(run->stayed, now) + LEAVE_AGAIN_US;
    return e;
}

static int run_steps(struct train_run *run, struct err *err)
{
    struct head *h = run->h;
    uint64_t step = UINT64_MAX;
    bool must_save = false;
    for (size_t a = 0; a < h->nadapters; a++)
        step = h->adapters[a].first_step < step ? h->adapters[a].first_step : step;
    train_begin_lines(run);
    int e = before_steps(run, &must_save, err);
    if (!e && must_save)
        e = save(run, step, true, err);
    while (!is_over(run) && !e && !h->has_left) {
        const uint64_t last = round_end(run, step + 1);
        e = train_round(run, step + 1, last, err);
        if (!e)
            e = stop_at_bad_step(run, last, err);
        step = last;
        if (!e)
            e = after_step(run, step, err);
        if (!e)
            e = leave_if_asked(run, step, err);
    }
    return e || h->has_left ? e : finish(run, err);
}

static json_t *result_of(const struct train_run *run, size_t adapter)
{
    const struct progress_of *of = &run->of[adapter];
    const struct guard_of *guard = &run->guard.of[adapter];
    json_t *result = json_pack("{s:s s:I}", "adapter_out", run->h->adapters[adapter].spec.adapter_out,
                               "steps", (json_int_t)guard->done);
    if (guard->skipped)
        json_object_set_new(result, "skipped", json_integer((json_int_t)guard->skipped));
    if (guard->has_best)
        json_object_update_new(result, json_pack("{s:I s:f s:b}", "best_step", (json_int_t)guard->best_step,
                                                 "best_valid_loss", guard->best, "stopped_early",
                                                 (int)guard_is_early(&run->guard, adapter)));
    if (!isnan(of->last_loss)) /* one gone on with may have been at its end */
        json_object_set_new(result, "loss", json_real(of->last_loss));
    if (!isnan(of->last_valid))
        json_object_set_new(result, "valid_loss", json_real(of->last_valid));
    if (run->h->nadapters > 1)
        json_object_set_new(result, "adapter", json_string(run->h->adapters[adapter].name));
    return result;
}

int head_train(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    struct train_run run = {.h = h, .r = r};
    for (size_t a = 0; a < h->nadapters; a++)
        run.of[a] = (struct progress_of){.last_loss = NAN, .last_valid = NAN};
    guard_init(&run.guard, h);
    int e = run_open(&run, err);
    if (!e)
        e = run_steps(&run, err);
    if ((e || h->has_left) && run.save.saver)
        train_save_leave(&run.save);
    run_done(&run);
    if (e || h->has_left)
        return e;
    if (h->nadapters == 1) {
        *ret_result = result_of(&run, 0);
        return 0;
    }
    json_t *adapters = json_array();
    for (size_t a = 0; a < h->nadapters; a++)
        json_array_append_new(adapters, result_of(&run, a));
    *ret_result = json_pack("{s:s s:I s:o}", "adapter_out", h->asked.adapter_out, "steps",
                            (json_int_t)h->steps, "adapters", adapters);
    return 0;
}
