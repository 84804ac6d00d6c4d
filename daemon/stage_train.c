/* SPDX-License-Identifier: MIT
 *
 * Training, driven from rank 0: batches, steps, evaluation, samples, the log, and saving. */
#include "daemon/stage_head.h"

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
    size_t n, tokens, supervised;
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
    size_t n = p->microbatches;
    b->ids = calloc(n * p->tokens, sizeof *b->ids);
    b->labels = calloc(n * p->tokens, sizeof *b->labels);
    b->starts = calloc(n * (p->seqs + 1), sizeof *b->starts);
    b->seqs = calloc(n, sizeof *b->seqs);
    b->mb = calloc(n, sizeof *b->mb);
    return b->ids && b->labels && b->starts && b->seqs && b->mb ? 0 : -ENOMEM;
}

/* The rows of a pack, behind what microbatch b->n holds; `at` is where its tokens begin, start[seqs] how many it has. */
static size_t batch_add(struct batch *b, const struct stage_data *d, size_t pack, size_t at, uint32_t *start,
                        size_t seqs)
{
    size_t n;
    const uint32_t *rows = data_packs_at(d->packs, pack, &n);
    for (size_t i = 0; i < n; i++, seqs++) {
        const struct data_row row = data_row(d->data, rows[i]);
        memcpy(b->ids + at + start[seqs], row.ids, row.n * sizeof *b->ids);
        memcpy(b->labels + at + start[seqs], row.labels, row.n * sizeof *b->labels);
        start[seqs + 1] = start[seqs] + (uint32_t)row.n;
        b->supervised += row.supervised;
    }
    return seqs;
}

/* Fills the batch with n packs of the set. */
static void batch_fill(struct batch *b, const struct head *h, const struct stage_data *d, const size_t *packs,
                       size_t n)
{
    const struct job_plan *p = &h->plan;
    b->n = b->tokens = b->supervised = 0;
    for (size_t k = 0; k < n; b->n++) {
        const size_t at = b->n * p->tokens;
        uint32_t *start = b->starts + b->n * (p->seqs + 1);
        size_t seqs = 0;
        start[0] = 0;
        for (size_t i = 0; i < h->spec.micro_batch && k < n; i++, k++)
            seqs = batch_add(b, d, packs[k], at, start, seqs);
        b->tokens += start[seqs];
        b->seqs[b->n] = (struct seqs){seqs, start};
        b->mb[b->n] = (struct head_mb){.ids = b->ids + at, .labels = b->labels + at};
    }
}

static double batch_loss(const struct batch *b)
{
    double sum = 0;
    for (size_t i = 0; i < b->n; i++)
        sum += b->mb[i].loss;
    return sum;
}

/* --- one run ---------------------------------------------------------------------------------- */

struct run {
    struct head *h;
    struct runner *r;
    struct batch batch;
    size_t *packs; /* owned: [batch] */
    FILE *log;     /* owned, or NULL */
    double last_loss, last_valid;
    struct instant traced; /* when a step was last recorded for people to look at */
};

static int log_line(struct run *run, const json_t *line, struct err *err)
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
static json_t *lines_of(const struct run *run)
{
    const struct stage_data *d = &run->h->train;
    json_t *lines = json_array();
    for (size_t i = 0; i < run->h->spec.batch; i++) {
        size_t n;
        const uint32_t *rows = data_packs_at(d->packs, run->packs[i], &n);
        for (size_t k = 0; k < n; k++)
            json_array_append_new(lines, json_integer((json_int_t)data_row(d->data, rows[k]).line));
    }
    return lines;
}

static int report_step(struct run *run, uint64_t step, const struct head_round *round, double loss,
                       double seconds, struct err *err)
{
    const struct batch *b = &run->batch;
    double bubble = 1 - round->busy / ((double)run->h->plan.ranks * seconds);
    json_t *line =
        json_pack("{s:I s:f s:f s:f s:I s:I s:f s:f s:f}", "step", (json_int_t)step, "loss", loss,
                  "grad_norm", round->grad_norm, "lr", (double)round->opt.lr, "tokens", (json_int_t)b->tokens,
                  "supervised_tokens", (json_int_t)b->supervised, "step_seconds", seconds,
                  "tokens_per_second", (double)b->tokens / seconds, "bubble", bubble > 0 ? bubble : 0.0);
    if (!line)
        return err_set(err, -ENOMEM, "out of memory");
    json_t *written = json_copy(line);
    json_object_set_new(written, "lines", lines_of(run));
    int e = log_line(run, written, err);
    json_decref(written);
    json_object_set_new(line, "steps", json_integer((json_int_t)run->h->steps));
    head_event(run->h, "step", line);
    return e;
}

static int train_step(struct run *run, uint64_t step, struct err *err)
{
    struct head *h = run->h;
    const struct job_spec *s = &h->spec;
    struct instant start = clock_now();
    for (size_t i = 0; i < s->batch; i++)
        run->packs[i] = data_order_at(h->order, (step - 1) * s->batch + i);
    batch_fill(&run->batch, h, &h->train, run->packs, s->batch);
    struct head_round round = {.mb = run->batch.mb, .max_norm = s->max_grad_norm};
    round.opt = (struct adamw){(float)lr_at(s->lr_kind, s->lr, s->warmup, h->steps, step), 0.9f, 0.999f,
                               1e-8f, (float)s->weight_decay};
    struct go go = {.program = PROGRAM_TRAIN,
                    .step = step,
                    .dscale = 1.0 / (double)run->batch.supervised,
                    .microbatches = run->batch.n,
                    .trace = !run->traced.us || clock_since_us(start, run->traced) >= TRACE_EVERY_US,
                    .mb = run->batch.seqs};
    if (go.trace)
        run->traced = start;
    int e = runner_round(run->r, &go, &round, err);
    if (e)
        return e;
    run->last_loss = batch_loss(&run->batch) / (double)run->batch.supervised;
    return report_step(run, step, &round, run->last_loss, (double)clock_since_us(clock_now(), start) / 1e6,
                       err);
}

/* The whole validation set in file order, through the same pipeline. */
static int evaluate(struct run *run, uint64_t step, struct err *err)
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
        batch_fill(&run->batch, h, &h->valid, pick, n);
        struct head_round round = {.mb = run->batch.mb};
        struct go go = {
            .program = PROGRAM_FORWARD, .step = step, .microbatches = run->batch.n, .mb = run->batch.seqs};
        e = runner_round(run->r, &go, &round, err);
        sum += batch_loss(&run->batch);
        tokens += run->batch.supervised;
    }
    free(pick);
    if (e)
        return e;
    run->last_valid = sum / (double)tokens;
    json_t *line = json_pack("{s:I s:f s:I}", "step", (json_int_t)step, "valid_loss", run->last_valid,
                             "valid_tokens", (json_int_t)tokens);
    e = log_line(run, line, err);
    head_event(h, "valid", line);
    return e;
}

/* --- samples ---------------------------------------------------------------------------------- */

/* What the model writes as it is now: for people to look at, and nothing that training follows from. */
static int take_sample(struct run *run, uint64_t step, struct err *err)
{
    const struct job_spec *s = &run->h->spec;
    char *text;
    int e = head_sample(run->h, run->r, step, &text, err);
    if (e)
        return e;
    json_t *line =
        json_pack("{s:I s:s s:s}", "step", (json_int_t)step, "prompt", s->sample_prompt, "sample", text);
    free(text);
    if (!line)
        return err_set(err, -ENOMEM, "out of memory");
    e = log_line(run, line, err);
    head_event(run->h, "sample", line);
    return e;
}

/* --- saving ----------------------------------------------------------------------------------- */

static int save_piece(void *owner, const struct param_piece *piece, float *values, struct err *err)
{
    return adapter_out_piece(owner, piece, values, err);
}

static int save_to(struct run *run, const char *dir, uint64_t step, struct err *err)
{
    struct head *h = run->h;
    struct adapter_out *out;
    struct adapter_out_request req = {.dir = dir,
                                      .model_dir = h->spec.model,
                                      .tune = &h->plan.tune,
                                      .family = h->family,
                                      .config = &h->config,
                                      .step = step};
    int e = adapter_out_open(&out, &req, err);
    if (e)
        return e;
    struct head_round round = {.piece = save_piece, .owner = out};
    struct go go = {.program = PROGRAM_SAVE, .state = true, .step = step};
    e = runner_round(run->r, &go, &round, err);
    if (e)
        adapter_out_abort(out);
    if (!e)
        e = adapter_out_finish(out, err);
    return e ? e : head_save_order(h, dir, err);
}

/* A result that cannot be written where it was asked for is kept under the daemon's state, and the sentence says where: an hour of
 * training is not lost to a full disk. */
static int save(struct run *run, uint64_t step, struct err *err)
{
    int e = save_to(run, run->h->spec.adapter_out, step, err);
    const char *rescue = json_string_value(json_object_get(run->h->json, "rescue_dir"));
    if (!e || !rescue)
        return e;
    struct err first = *err, second;
    if (save_to(run, rescue, step, &second))
        return e;
    return err_set(err, e, "%.300s; the result of step %llu is kept in %s", first.text,
                   (unsigned long long)step, rescue);
}

static int run_open(struct run *run, struct err *err)
{
    const struct job_spec *s = &run->h->spec;
    run->packs = calloc(s->batch, sizeof *run->packs);
    if (!run->packs || batch_alloc(&run->batch, &run->h->plan))
        return err_set(err, -ENOMEM, "out of memory");
    if (s->log && !(run->log = fopen(s->log, s->resume ? "ae" : "we")))
        return err_set(err, -errno, "--log %s cannot be opened: %s", s->log, strerror(errno));
    return 0;
}

static int run_steps(struct run *run, struct err *err)
{
    struct head *h = run->h;
    const struct job_spec *s = &h->spec;
    int e = h->valid.data ? evaluate(run, h->first_step, err) : 0;
    for (uint64_t step = h->first_step + 1; step <= h->steps && !e; step++) {
        bool last = step == h->steps;
        e = train_step(run, step, err);
        if (!e && h->valid.data && (last || (s->eval_every && step % s->eval_every == 0)))
            e = evaluate(run, step, err);
        if (!e && s->sample_prompt && (last || (s->sample_every && step % s->sample_every == 0)))
            e = take_sample(run, step, err);
        if (!e && (last || (s->save_every && step % s->save_every == 0)))
            e = save(run, step, err);
    }
    return e;
}

int head_train(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    struct run run = {.h = h, .r = r, .last_valid = NAN};
    int e = run_open(&run, err);
    if (!e)
        e = run_steps(&run, err);
    if (run.log)
        fclose(run.log);
    batch_done(&run.batch);
    free(run.packs);
    if (e)
        return e;
    *ret_result = json_pack("{s:s s:I s:f}", "adapter_out", h->spec.adapter_out, "steps",
                            (json_int_t)h->steps, "loss", run.last_loss);
    if (!isnan(run.last_valid))
        json_object_set_new(*ret_result, "valid_loss", json_real(run.last_valid));
    return 0;
}
