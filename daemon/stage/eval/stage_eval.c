/* SPDX-License-Identifier: MIT
 *
 * A job that evaluates, driven from rank 0: its questions go through the stages, and its result is
 * what the answers amount to. */
#include "daemon/stage/stage_drive.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "daemon/stage/eval/eval_run.h"
#include "engine/train/eval_figures.h"
#include "net/clock.h"

struct eval {
    struct head *h;
    const struct eval_work *work; /* borrowed */
    double *logprobs;             /* owned [nseqs] */
    size_t *first_seq;            /* owned [rows + 1]: where the sequences of a row begin */
    size_t done, right, right_norm, tokens;
};

/* What is right so far is shown on the way. */
static void tell(const struct eval *v)
{
    static const char *const figure[EVAL_TASKS] = {[EVAL_CHOICE] = "acc", [EVAL_GENERATION] = "exact_match"};
    const char *name = figure[v->work->set.task];
    json_t *event = json_pack("{s:I s:I}", "step", (json_int_t)v->done, "steps", (json_int_t)v->work->set.n);
    if (name)
        json_object_set_new(event, name, json_real((double)v->right / (double)v->done));
    if (head_was_said(v->h, "step", 0, v->done))
        json_decref(event);
    else
        stage_event(v->h->events, "step", event);
}

static void on_scored(void *owner, size_t row)
{
    struct eval *v = owner;
    const struct eval_row *of = &v->work->set.rows[row];
    const double *logprobs = v->logprobs + v->first_seq[row];
    if (v->work->set.task == EVAL_CHOICE) {
        v->right += eval_is_acc(of, logprobs);
        v->right_norm += eval_is_acc_norm(of, logprobs);
    }
    v->done++;
    tell(v);
}

static void on_written(void *owner, size_t row, const char *text, size_t n, size_t tokens)
{
    struct eval *v = owner;
    v->right += eval_is_match(&v->work->set.rows[row], text, n);
    v->tokens += tokens;
    v->done++;
    tell(v);
}

/* --- the result ------------------------------------------------------------------------------- */

static void put_share(json_t *to, const char *name, const char *name_of_error, size_t right, size_t n)
{
    const struct eval_share share = eval_share_of(right, n);
    json_object_set_new(to, name, json_real(share.mean));
    json_object_set_new(to, name_of_error,
                        isfinite(share.stderr_of) ? json_real(share.stderr_of) : json_null());
}

static void put_perplexity(json_t *to, const struct eval *v)
{
    const struct eval_work *w = v->work;
    struct eval_perplexity sum = {0};
    for (size_t row = 0; row < w->set.n; row++) {
        double logprob = 0;
        for (size_t s = v->first_seq[row]; s < v->first_seq[row + 1]; s++)
            logprob += v->logprobs[s];
        eval_perplexity_add(&sum, &w->set.rows[row], logprob);
    }
    json_object_update_new(to, json_pack("{s:f s:f s:f s:f s:I s:I}", "word_perplexity",
                                         eval_word_perplexity(&sum), "byte_perplexity",
                                         eval_byte_perplexity(&sum), "bits_per_byte",
                                         eval_bits_per_byte(&sum), "total", sum.logprob, "words",
                                         (json_int_t)sum.words, "bytes", (json_int_t)sum.bytes));
}

static json_t *result_of(const struct eval *v, struct instant begin)
{
    const size_t n = v->work->set.n;
    json_t *result = json_pack("{s:s s:I}", "task", eval_task_name(v->work->set.task), "rows", (json_int_t)n);
    switch (v->work->set.task) {
    case EVAL_CHOICE:
        put_share(result, "acc", "acc_stderr", v->right, n);
        put_share(result, "acc_norm", "acc_norm_stderr", v->right_norm, n);
        break;
    case EVAL_GENERATION:
        put_share(result, "exact_match", "exact_match_stderr", v->right, n);
        json_object_set_new(result, "generated_tokens", json_integer((json_int_t)v->tokens));
        break;
    default: put_perplexity(result, v); break;
    }
    json_object_set_new(result, "seconds", json_real((double)clock_since_us(clock_now(), begin) / 1e6));
    return result;
}

int head_eval(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    const struct eval_work *w = h->eval;
    struct eval v = {.h = h,
                     .work = w,
                     .logprobs = calloc(w->nseqs, sizeof *v.logprobs),
                     .first_seq = calloc(w->set.n + 1, sizeof *v.first_seq)};
    struct rows_ring ring;
    const struct eval_run_setup setup = {.work = w,
                                         .plan = &h->plan,
                                         .tok = h->tok,
                                         .spec = &h->spec,
                                         .config = &h->config,
                                         .ring = &ring,
                                         .scored = on_scored,
                                         .written = on_written,
                                         .owner = &v};
    const struct instant begin = clock_now();
    int e = v.logprobs && v.first_seq ? runner_serve(r, &ring, err) : err_set(err, -ENOMEM, "out of memory");
    for (size_t s = 0; s < w->nseqs && !e; s++)
        v.first_seq[w->seqs[s].row + 1] = s + 1;
    if (!e)
        e = eval_run(&setup, v.logprobs, err);
    if (!e)
        *ret_result = result_of(&v, begin);
    free(v.logprobs);
    free(v.first_seq);
    return e;
}
