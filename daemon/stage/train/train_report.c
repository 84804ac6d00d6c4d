/* SPDX-License-Identifier: MIT */
#include "daemon/stage/train/train_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void name_adapter(const struct train_run *run, size_t adapter, json_t *line)
{
    if (run->h->nadapters > 1)
        json_object_set_new(line, "adapter", json_string(run->h->adapters[adapter].name));
}

bool train_was_said(const struct train_run *run, const char *kind, size_t adapter, uint64_t step)
{
    return head_was_said(run->h, kind, adapter, step);
}

bool train_was_told(const struct train_run *run, const char *kind, size_t adapter, uint64_t step)
{
    return train_was_said(run, kind, adapter, step) &&
           stage_log_has(&run->log, kind, run->h->adapters[adapter].name, step);
}

/* To the daemon, and to that of rank 1. Takes the reference. */
static void say(const struct train_run *run, const char *kind, json_t *event)
{
    json_object_set_new(event, "ev", json_string(kind));
    runner_add_line(run->r, event);
    stage_event(run->h->events, kind, event);
}

void train_begin_lines(const struct train_run *run)
{
    json_t *said = json_copy((json_t *)(uintptr_t)run->h->spec.said);
    json_object_del(said, "so-far"); /* it is said again where it is needed */
    json_t *line = json_pack("{s:s s:o}", "ev", "said", "said", said ? said : json_object());
    if (line)
        runner_add_line(run->r, line);
    json_decref(line);
}

static json_t *with(const json_t *line, json_t *more)
{
    json_t *whole = json_copy((json_t *)line);
    if (more)
        json_object_update_new(whole, more);
    return whole;
}

int train_tell(struct train_run *run, const char *kind, size_t adapter, uint64_t step, json_t *line,
               struct train_more more, struct err *err)
{
    if (!line) {
        json_decref(more.logged);
        json_decref(more.said);
        return err_set(err, -ENOMEM, "out of memory");
    }
    name_adapter(run, adapter, line);
    json_t *logged = with(line, more.logged), *said = with(line, more.said);
    const int e = stage_log_write(&run->log, kind, run->h->adapters[adapter].name, step, logged, err);
    json_decref(logged);
    json_decref(line);
    if (train_was_said(run, kind, adapter, step))
        json_decref(said);
    else
        say(run, kind, said);
    return e;
}

/* Which lines of the data packs [first, end) of a step have: with the seed, what its permutation
 * was. */
static json_t *lines_of(const struct train_run *run, const struct train_step *step, size_t first, size_t end)
{
    const struct stage_data *d = &run->h->train;
    json_t *lines = json_array();
    for (size_t i = first; i < end && i < run->h->spec.batch; i++) {
        size_t n;
        const uint32_t *rows = data_packs_at(d->packs, step->packs[i], &n);
        for (size_t k = 0; k < n; k += data_together(d->data))
            json_array_append_new(lines, json_integer((json_int_t)data_row(d->data, rows[k]).line));
    }
    return lines;
}

static double loss_of(const struct train_run *run, const struct train_step *step)
{
    return batch_loss(&run->batch, step->first, step->first + run->h->plan.microbatches) /
           (double)(step->sum.pairs ? step->sum.pairs : step->sum.supervised);
}

static void add_pairs(const struct train_run *run, size_t at, json_t *line)
{
    const struct train_step *step = &run->steps[at];
    const struct pair_loss how = {run->h->plan.loss, run->go[at].beta};
    struct pair_sums sums = {0};
    if (!step->sum.pairs || !line)
        return;
    pair_sums_add(&sums, &run->h->train, &run->train_refs, &how, &run->batch, step->first, step->packs,
                  run->h->spec.batch);
    pair_sums_encode(line, "", &sums, &how);
}

static double seconds_between(struct instant from, struct instant to)
{
    return (double)clock_since_us(to, from) / 1e6;
}

int train_report_step(struct train_run *run, size_t at, struct err *err)
{
    const struct train_step *step = &run->steps[at];
    const struct go_step *go = &run->go[at];
    const struct head_step *round = &run->round[at];
    struct progress_of *of = &run->of[go->adapter];
    const struct instant now = clock_now();
    const double seconds = seconds_between(of->reported, now), since = seconds_between(run->reported, now),
                 bubble = 1 - round->busy / ((double)run->h->plan.ranks * since);
    run->reported = of->reported = now;
    of->last_loss = loss_of(run, step);
    if (train_was_told(run, "step", go->adapter, go->step))
        return 0;
    json_t *line = json_pack("{s:I s:f s:f s:f s:I s:I s:f s:f s:f}", "step", (json_int_t)go->step, "loss",
                             of->last_loss, "grad_norm", round->grad_norm, "lr", (double)round->opt.lr,
                             "tokens", (json_int_t)step->sum.tokens, "supervised_tokens",
                             (json_int_t)step->sum.supervised, "step_seconds", seconds, "tokens_per_second",
                             (double)step->sum.tokens / seconds, "bubble", bubble > 0 ? bubble : 0.0);
    add_pairs(run, at, line);
    const struct train_more more = {
        .logged = json_pack("{s:o}", "lines", lines_of(run, step, 0, run->h->spec.batch)),
        .said = json_pack("{s:I}", "steps", (json_int_t)run->h->steps)};
    return train_tell(run, "step", go->adapter, go->step, line, more, err);
}

/* The microbatch that the ranks name was one of this step, or else all rows are said. */
static json_t *bad_lines(const struct train_run *run, const struct train_step *step,
                         const struct bad_value *bad)
{
    const struct job_spec *s = &run->h->spec;
    const bool is_known = bad->kind == BAD_OUTPUT && bad->mb >= step->first &&
                          bad->mb - step->first < run->h->plan.microbatches;
    const size_t first = is_known ? (bad->mb - step->first) * s->micro_batch : 0;
    return lines_of(run, step, first, is_known ? first + s->micro_batch : s->batch);
}

static int say_skipped(struct train_run *run, size_t at, const char *text, json_t *lines, struct err *err)
{
    const struct go_step *go = &run->go[at];
    json_t *line = json_pack("{s:I s:I s:O}", "step", (json_int_t)go->step, "skipped",
                             (json_int_t)run->guard.of[go->adapter].skipped, "lines", lines);
    const struct train_more more = {.said = json_pack("{s:s}", "text", text)};
    return train_tell(run, "skipped", go->adapter, go->step, line, more, err);
}

void train_tell_so_far(const struct train_run *run, size_t adapter, uint64_t step)
{
    json_t *event =
        json_pack("{s:I s:o}", "step", (json_int_t)step, "so_far", guard_encode(&run->guard, adapter));
    if (!event)
        return; /* without memory: then the job ends, or goes on from the disk */
    name_adapter(run, adapter, event);
    say(run, "so-far", event);
}

static int take_bad_step(struct train_run *run, size_t at, enum guard_verdict verdict, struct err *err)
{
    const struct go_step *go = &run->go[at];
    const struct train_step *step = &run->steps[at];
    char text[900];
    json_t *lines = bad_lines(run, step, &run->round[at].bad);
    guard_tell(text, sizeof text, &run->guard, go->adapter, go->step, loss_of(run, step), &run->round[at].bad,
               lines);
    int e = 0;
    if (verdict == GUARD_SKIP)
        train_tell_so_far(run, go->adapter, go->step);
    if (verdict == GUARD_SKIP)
        e = say_skipped(run, at, text, lines, err);
    else if (!*run->why)
        snprintf(run->why, sizeof run->why, "%s", text);
    json_decref(lines);
    return e;
}

int train_on_stepped(void *owner, size_t at, struct err *err)
{
    struct train_run *run = owner;
    const struct go_step *go = &run->go[at];
    struct head_step *round = &run->round[at];
    const enum guard_verdict verdict =
        guard_step(&run->guard, go->adapter, go->step, loss_of(run, &run->steps[at]), round->grad_norm);
    round->update = verdict == GUARD_APPLY ? guard_updates(&run->guard, go->adapter) : 0;
    if (verdict != GUARD_APPLY)
        return take_bad_step(run, at, verdict, err);
    return run->is_one_step ? 0 : train_report_step(run, at, err);
}
