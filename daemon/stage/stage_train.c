/* SPDX-License-Identifier: MIT
 *
 * Training, driven from rank 0: batches, steps, evaluation, samples, the log, and saving; of one
 * adapter, or of several on the same weights, whose steps then go through the ring in rounds of
 * many. */
#include "daemon/stage/stage_drive.h"
#include "daemon/common/output_path.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/clock.h"

enum { TRACE_EVERY_US = 1000000 };

/* The rows of a round laid end to end, microbatch by microbatch. */
struct batch {
    uint32_t *ids; /* all below owned */
    int32_t *labels;
    uint32_t *starts;
    struct seqs *seqs;
    struct head_mb *mb;
    size_t n;
};

/* What rows came to. */
struct batch_sum {
    size_t tokens, supervised;
};

static void batch_done(struct batch *b)
{
    free(b->ids);
    free(b->labels);
    free(b->starts);
    free(b->seqs);
    free(b->mb);
    *b = (struct batch){0};
}

static int batch_alloc(struct batch *b, const struct job_plan *p)
{
    size_t n = p->microbatches * p->round_steps;
    b->ids = calloc(n * p->tokens, sizeof *b->ids);
    b->labels = calloc(n * p->tokens, sizeof *b->labels);
    b->starts = calloc(n * (p->seqs + 1), sizeof *b->starts);
    b->seqs = calloc(n, sizeof *b->seqs);
    b->mb = calloc(n, sizeof *b->mb);
    return b->ids && b->labels && b->starts && b->seqs && b->mb ? 0 : -ENOMEM;
}

/* The rows of a pack, behind what microbatch b->n holds; `at` is where its tokens begin,
 * start[seqs] how many it has. */
static size_t batch_add(struct batch *b, const struct stage_data *d, size_t pack, size_t at, uint32_t *start,
                        size_t seqs, struct batch_sum *sum)
{
    size_t n;
    const uint32_t *rows = data_packs_at(d->packs, pack, &n);
    for (size_t i = 0; i < n; i++, seqs++) {
        const struct data_row row = data_row(d->data, rows[i]);
        memcpy(b->ids + at + start[seqs], row.ids, row.n * sizeof *b->ids);
        memcpy(b->labels + at + start[seqs], row.labels, row.n * sizeof *b->labels);
        start[seqs + 1] = start[seqs] + (uint32_t)row.n;
        sum->supervised += row.supervised;
    }
    return seqs;
}

/* Appends n packs of the set to the batch, as microbatches. */
static struct batch_sum batch_fill(struct batch *b, const struct head *h, const struct stage_data *d,
                                   const size_t *packs, size_t n)
{
    const struct job_plan *p = &h->plan;
    struct batch_sum sum = {0};
    for (size_t k = 0; k < n; b->n++) {
        const size_t at = b->n * p->tokens;
        uint32_t *start = b->starts + b->n * (p->seqs + 1);
        size_t seqs = 0;
        start[0] = 0;
        for (size_t i = 0; i < h->spec.micro_batch && k < n; i++, k++)
            seqs = batch_add(b, d, packs[k], at, start, seqs, &sum);
        sum.tokens += start[seqs];
        b->seqs[b->n] = (struct seqs){seqs, start};
        b->mb[b->n] = (struct head_mb){.ids = b->ids + at, .labels = b->labels + at};
    }
    return sum;
}

static double batch_loss(const struct batch *b, size_t first, size_t end)
{
    double sum = 0;
    for (size_t i = first; i < end; i++)
        sum += b->mb[i].loss;
    return sum;
}

/* --- one run ---------------------------------------------------------------------------------- */

/* What an adapter has come to. */
struct progress_of {
    double last_loss, last_valid;
    struct instant told; /* when its last step was */
};

/* A step under way. */
struct train_step {
    struct batch_sum sum;
    size_t first, *packs; /* its first microbatch; [batch] owned: which packs it learns */
};

struct train_run {
    struct head *h;
    struct runner *r;
    struct batch batch;
    struct progress_of of[JOB_MAX_ADAPTERS];
    struct train_step *steps; /* [plan.round_steps] owned, as the next two: of the round */
    struct go_step *go;
    struct head_step *round;
    size_t *packs;         /* [plan.round_steps · batch] owned */
    FILE *log;             /* owned, or NULL */
    struct instant traced; /* when a round was last recorded for people to look at, */
    struct instant told;   /* when a step was last told of, or the round began */
};

/* Of several adapters each line says which it speaks of. */
static void name_adapter(const struct train_run *run, size_t adapter, json_t *line)
{
    if (run->h->nadapters > 1)
        json_object_set_new(line, "adapter", json_string(run->h->adapters[adapter].name));
}

static int log_line(struct train_run *run, const json_t *line, struct err *err)
{
    if (!run->log)
        return 0;
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
    bool ok = text && fprintf(run->log, "%s\n", text) > 0 && !fflush(run->log);
    int saved = errno;
    free(text);
    return ok ? 0 : err_set(err, -saved, "--log %s cannot be written: %s", run->h->spec.log, strerror(saved));
}

/* Which lines of the data a step has learnt: with the seed, what its permutation was. */
static json_t *lines_of(const struct train_run *run, const struct train_step *step)
{
    const struct stage_data *d = &run->h->train;
    json_t *lines = json_array();
    for (size_t i = 0; i < run->h->spec.batch; i++) {
        size_t n;
        const uint32_t *rows = data_packs_at(d->packs, step->packs[i], &n);
        for (size_t k = 0; k < n; k++)
            json_array_append_new(lines, json_integer((json_int_t)data_row(d->data, rows[k]).line));
    }
    return lines;
}

static double seconds_between(struct instant from, struct instant to)
{
    return (double)clock_since_us(to, from) / 1e6;
}

/* Of several adapters a step's seconds are those since the one before of the same adapter, for so
 * often it comes; the bubble is that since any step ended. */
static int report_step(struct train_run *run, size_t at, struct err *err)
{
    const struct train_step *step = &run->steps[at];
    const struct go_step *go = &run->go[at];
    const struct head_step *round = &run->round[at];
    struct progress_of *of = &run->of[go->adapter];
    const struct instant now = clock_now();
    const double seconds = seconds_between(of->told, now), since = seconds_between(run->told, now),
                 bubble = 1 - round->busy / ((double)run->h->plan.ranks * since);
    run->told = of->told = now;
    of->last_loss = batch_loss(&run->batch, step->first, step->first + run->h->plan.microbatches) /
                    (double)step->sum.supervised;
    json_t *line = json_pack("{s:I s:f s:f s:f s:I s:I s:f s:f s:f}", "step", (json_int_t)go->step, "loss",
                             of->last_loss, "grad_norm", round->grad_norm, "lr", (double)round->opt.lr,
                             "tokens", (json_int_t)step->sum.tokens, "supervised_tokens",
                             (json_int_t)step->sum.supervised, "step_seconds", seconds, "tokens_per_second",
                             (double)step->sum.tokens / seconds, "bubble", bubble > 0 ? bubble : 0.0);
    if (!line)
        return err_set(err, -ENOMEM, "out of memory");
    name_adapter(run, go->adapter, line);
    json_t *written = json_copy(line);
    json_object_set_new(written, "lines", lines_of(run, step));
    int e = log_line(run, written, err);
    json_decref(written);
    json_object_set_new(line, "steps", json_integer((json_int_t)run->h->steps));
    stage_event(run->h->events, "step", line);
    return e;
}

static int on_stepped(void *owner, size_t step, struct err *err)
{
    return report_step(owner, step, err);
}

static void prepare_step(struct train_run *run, size_t at, size_t adapter, uint64_t number)
{
    const struct head_adapter *a = &run->h->adapters[adapter];
    const struct job_spec *s = &a->spec;
    struct train_step *step = &run->steps[at];
    step->packs = run->packs + at * s->batch;
    step->first = run->batch.n;
    for (size_t i = 0; i < s->batch; i++)
        step->packs[i] = data_order_at(a->order, (number - 1) * s->batch + i);
    step->sum = batch_fill(&run->batch, run->h, &run->h->train, step->packs, s->batch);
    run->go[at] = (struct go_step){(uint32_t)adapter, number, 1.0 / (double)step->sum.supervised};
    run->round[at] = (struct head_step){.max_norm = s->max_grad_norm};
    run->round[at].opt = (struct adamw){(float)lr_at(s->lr_kind, s->lr, s->warmup, run->h->steps, number),
                                        0.9f, 0.999f, 1e-8f, (float)s->weight_decay};
}

/* Steps `first` to `last`, of each adapter that has not done them yet. */
static int train_round(struct train_run *run, uint64_t first, uint64_t last, struct err *err)
{
    struct head *h = run->h;
    size_t n = 0;
    run->told = clock_now();
    run->batch.n = 0;
    for (uint64_t number = first; number <= last; number++)
        for (size_t a = 0; a < h->nadapters; a++)
            if (number > h->adapters[a].first_step)
                prepare_step(run, n++, a, number);
    for (size_t a = 0; a < h->nadapters; a++)
        run->of[a].told = run->told;
    struct head_round round = {
        .mb = run->batch.mb, .steps = run->round, .stepped = n > 1 ? on_stepped : NULL, .owner = run};
    struct go go = {.program = PROGRAM_TRAIN,
                    .step = first,
                    .nsteps = n,
                    .steps = run->go,
                    .microbatches = run->batch.n,
                    .trace = h->spec.trace || !run->traced.us ||
                             clock_since_us(run->told, run->traced) >= TRACE_EVERY_US,
                    .mb = run->batch.seqs};
    if (go.trace)
        run->traced = run->told;
    int e = runner_round(run->r, &go, &round, err);
    return e || n > 1 ? e : report_step(run, 0, err);
}

/* The whole validation set in file order, through the same pipeline. */
static int evaluate(struct train_run *run, size_t adapter, uint64_t step, struct err *err)
{
    struct head *h = run->h;
    size_t packs = data_packs_count(h->valid.packs), per = h->plan.microbatches * h->spec.micro_batch,
           *pick = calloc(per, sizeof *pick);
    double sum = 0;
    size_t tokens = 0;
    int e = pick ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t at = 0; at < packs && !e; at += per) {
        size_t n = packs - at < per ? packs - at : per;
        for (size_t i = 0; i < n; i++)
            pick[i] = at + i;
        run->batch.n = 0;
        tokens += batch_fill(&run->batch, h, &h->valid, pick, n).supervised;
        struct head_round round = {.mb = run->batch.mb};
        struct go go = {.program = PROGRAM_FORWARD,
                        .step = step,
                        .adapter = (uint32_t)adapter,
                        .microbatches = run->batch.n,
                        .mb = run->batch.seqs};
        e = runner_round(run->r, &go, &round, err);
        sum += batch_loss(&run->batch, 0, run->batch.n);
    }
    free(pick);
    if (e)
        return e;
    run->of[adapter].last_valid = sum / (double)tokens;
    json_t *line = json_pack("{s:I s:f s:I}", "step", (json_int_t)step, "valid_loss",
                             run->of[adapter].last_valid, "valid_tokens", (json_int_t)tokens);
    name_adapter(run, adapter, line);
    e = log_line(run, line, err);
    stage_event(h->events, "valid", line);
    return e;
}

/* --- samples ---------------------------------------------------------------------------------- */

/* What the model writes as it is now: for people to look at, and nothing that training follows
 * from. */
static int take_sample(struct train_run *run, size_t adapter, uint64_t step, struct err *err)
{
    const struct job_spec *s = &run->h->spec;
    char *text;
    int e = head_sample(run->h, run->r, adapter, step, &text, err);
    if (e)
        return e;
    json_t *line =
        json_pack("{s:I s:s s:s}", "step", (json_int_t)step, "prompt", s->sample_prompt, "sample", text);
    free(text);
    if (!line)
        return err_set(err, -ENOMEM, "out of memory");
    name_adapter(run, adapter, line);
    e = log_line(run, line, err);
    stage_event(run->h->events, "sample", line);
    return e;
}

/* --- saving ----------------------------------------------------------------------------------- */

static int save_piece(void *owner, const struct param_piece *piece, float *values, struct err *err)
{
    return adapter_out_piece(owner, piece, values, err);
}

static int save_to(struct train_run *run, size_t adapter, const char *dir, uint64_t step, struct err *err)
{
    struct head *h = run->h;
    struct adapter_out *out;
    struct adapter_out_request req = {.dir = dir,
                                      .model_dir = h->spec.model,
                                      .tune = job_plan_tune(&h->plan, adapter),
                                      .family = h->family,
                                      .config = &h->config,
                                      .step = step,
                                      .record = head_order_record(h, adapter)};
    int e = req.record ? adapter_out_open(&out, &req, err) : err_set(err, -ENOMEM, "out of memory");
    json_decref(req.record);
    if (e)
        return e;
    struct head_round round = {.piece = save_piece, .owner = out};
    struct go go = {.program = PROGRAM_SAVE, .state = true, .step = step, .adapter = (uint32_t)adapter};
    e = runner_round(run->r, &go, &round, err);
    if (e)
        adapter_out_abort(out);
    if (!e)
        e = adapter_out_finish(out, err);
    return e;
}

/* A result that cannot be written where it was asked for is kept under the daemon's state, and the
 * sentence says where: an hour of training is not lost to a full disk. */
static int save(struct train_run *run, size_t adapter, uint64_t step, struct err *err)
{
    const struct head_adapter *a = &run->h->adapters[adapter];
    char path[4096];
    int e = save_to(run, adapter, a->spec.adapter_out, step, err);
    const char *rescue = json_string_value(json_object_get(run->h->json, "rescue_dir"));
    if (!e || !rescue)
        return e;
    struct err first = *err, second;
    if (*a->name)
        mkdir(rescue, 0777);
    snprintf(path, sizeof path, "%s%s%s", rescue, *a->name ? "/" : "", a->name);
    if (save_to(run, adapter, path, step, &second))
        return e;
    return err_set(err, e, "%.300s; the result of step %llu is kept in %s", first.text,
                   (unsigned long long)step, path);
}

/* --- all steps -------------------------------------------------------------------------------- */

static int run_open(struct train_run *run, struct err *err)
{
    const struct job_spec *s = &run->h->spec;
    const size_t steps = run->h->plan.round_steps;
    run->packs = calloc(steps * s->batch, sizeof *run->packs);
    run->steps = calloc(steps, sizeof *run->steps);
    run->go = calloc(steps, sizeof *run->go);
    run->round = calloc(steps, sizeof *run->round);
    if (!run->packs || !run->steps || !run->go || !run->round || batch_alloc(&run->batch, &run->h->plan))
        return err_set(err, -ENOMEM, "out of memory");
    const char *state_dir = json_string_value(json_object_get(run->h->json, "state_dir"));
    return s->log ? output_path_open(state_dir, "--log", s->log, s->resume, &run->log, err) : 0;
}

static void run_done(struct train_run *run)
{
    if (run->log)
        fclose(run->log);
    batch_done(&run->batch);
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
        last = first > h->adapters[a].first_step ? last : first;
    for (uint64_t step = first; step < last; step++)
        if (is_due(run, step, s->save_every) || (h->valid.data && is_due(run, step, s->eval_every)) ||
            (s->sample_prompt && is_due(run, step, s->sample_every)))
            last = step;
    return first + steps_per_adapter_below(last - first + 1, most) - 1;
}

/* What is due after a step, of every adapter that has made it. */
static int after_step(struct train_run *run, uint64_t step, struct err *err)
{
    const struct head *h = run->h;
    const struct job_spec *s = &h->spec;
    int e = 0;
    for (size_t a = 0; a < h->nadapters && !e; a++) {
        if (step <= h->adapters[a].first_step)
            continue;
        if (h->valid.data && is_due(run, step, s->eval_every))
            e = evaluate(run, a, step, err);
        if (!e && s->sample_prompt && is_due(run, step, s->sample_every))
            e = take_sample(run, a, step, err);
        if (!e && is_due(run, step, s->save_every))
            e = save(run, a, step, err);
    }
    return e;
}

static int run_steps(struct train_run *run, struct err *err)
{
    struct head *h = run->h;
    uint64_t step = UINT64_MAX;
    int e = 0;
    for (size_t a = 0; a < h->nadapters && !e; a++) {
        step = h->adapters[a].first_step < step ? h->adapters[a].first_step : step;
        if (h->valid.data && h->adapters[a].first_step < h->steps)
            e = evaluate(run, a, h->adapters[a].first_step, err);
    }
    while (step < h->steps && !e) {
        const uint64_t last = round_end(run, step + 1);
        e = train_round(run, step + 1, last, err);
        step = last;
        if (!e)
            e = after_step(run, step, err);
    }
    /* A run that was killed between its last save and its end: the state is whole, the result may
     * not be. */
    for (size_t a = 0; a < h->nadapters && !e; a++)
        if (h->adapters[a].first_step == h->steps)
            e = save(run, a, h->steps, err);
    return e;
}

static json_t *result_of(const struct train_run *run, size_t adapter)
{
    const struct progress_of *of = &run->of[adapter];
    json_t *result = json_pack("{s:s s:I}", "adapter_out", run->h->adapters[adapter].spec.adapter_out,
                               "steps", (json_int_t)run->h->steps);
    if (!isnan(of->last_loss)) /* one gone on with may have been at its end */
        json_object_set_new(result, "loss", json_real(of->last_loss));
    if (!isnan(of->last_valid))
        json_object_set_new(result, "valid_loss", json_real(of->last_valid));
    name_adapter(run, adapter, result);
    return result;
}

int head_train(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    struct train_run run = {.h = h, .r = r};
    for (size_t a = 0; a < h->nadapters; a++)
        run.of[a] = (struct progress_of){.last_loss = NAN, .last_valid = NAN};
    int e = run_open(&run, err);
    if (!e)
        e = run_steps(&run, err);
    run_done(&run);
    if (e)
        return e;
    if (h->nadapters == 1) {
        *ret_result = result_of(&run, 0);
        return 0;
    }
    json_t *adapters = json_array();
    for (size_t a = 0; a < h->nadapters; a++)
        json_array_append_new(adapters, result_of(&run, a));
    *ret_result = json_pack("{s:O s:I s:o}", "adapter_out", json_object_get(h->json, "adapter_out"), "steps",
                            (json_int_t)h->steps, "adapters", adapters);
    return 0;
}
