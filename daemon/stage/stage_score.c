/* SPDX-License-Identifier: MIT
 *
 * Scoring, driven from rank 0: log-probability of every token of a text, or the perplexity of a
 * data set. */
#include "daemon/stage/stage_drive.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/token_json.h"
#include "net/clock.h"

/* Each token with what was said of it at the position before. */
static json_t *token_list(const struct head *h, const float *logprobs, const struct likely *likely)
{
    const size_t top = h->spec.top_logprobs;
    json_t *a = json_array();
    for (size_t i = 0; i < h->nids; i++) {
        json_t *token = token_json(h->tok, h->ids[i], i ? json_real((double)logprobs[i - 1]) : json_null());
        if (top)
            json_object_set_new(token, "top",
                                token_json_top(h->tok, i ? likely + (i - 1) * top : NULL, i ? top : 0));
        json_array_append_new(a, token);
    }
    return a;
}

static int score_text(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    size_t n = h->nids;
    int32_t *labels = calloc(n, sizeof *labels);
    float *logprobs = calloc(n, sizeof *logprobs);
    struct likely *likely = calloc(n * h->spec.top_logprobs + 1, sizeof *likely);
    int e = labels && logprobs && likely ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n && !e; i++)
        labels[i] = i + 1 < n ? (int32_t)h->ids[i + 1] : LABEL_NONE;
    uint32_t start[2] = {0, (uint32_t)n};
    struct seqs seqs = {1, start};
    struct head_mb mb = {.ids = h->ids, .labels = labels, .logprobs = logprobs, .likely = likely};
    struct head_round round = {.mb = &mb};
    struct go go = {.program = PROGRAM_FORWARD,
                    .logprobs = true,
                    .top = (uint32_t)h->spec.top_logprobs,
                    .microbatches = 1,
                    .mb = &seqs};
    if (!e)
        e = runner_round(r, &go, &round, err);
    if (!e)
        *ret_result = json_pack("{s:o s:f s:f}", "tokens", token_list(h, logprobs, likely), "total", -mb.loss,
                                "perplexity", exp(mb.loss / (double)(n - 1)));
    free(labels);
    free(logprobs);
    free(likely);
    return e;
}

enum { GROUP = 8 }; /* rows a round: enough to fill the stages of a home ring */

static int score_group(struct head *h, struct runner *r, size_t at, size_t n, double *loss, size_t *labels,
                       struct err *err)
{
    struct head_mb mb[GROUP] = {0};
    struct seqs seqs[GROUP];
    uint32_t start[GROUP][2] = {0};
    for (size_t i = 0; i < n; i++) {
        struct data_row row = data_row(h->train.data, at + i);
        start[i][1] = (uint32_t)row.n;
        seqs[i] = (struct seqs){1, start[i]};
        mb[i] = (struct head_mb){.ids = row.ids, .labels = row.labels};
    }
    struct head_round round = {.mb = mb};
    struct go go = {.program = PROGRAM_FORWARD, .microbatches = n, .mb = seqs};
    int e = runner_round(r, &go, &round, err);
    for (size_t i = 0; i < n && !e; i++)
        *loss += mb[i].loss;
    for (size_t i = 0; i < n && !e; i++)
        *labels += data_row(h->train.data, at + i).supervised;
    return e;
}

/* A job that begins again after a loss says nothing twice. */
static bool was_said(const struct head *h, size_t row)
{
    const json_t *rows = json_object_get(h->spec.said, "step");
    return (json_int_t)row <= json_integer_value(json_object_get(rows, ""));
}

static int score_data(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    size_t rows = data_rows(h->train.data),
           group = h->plan.microbatches < GROUP ? h->plan.microbatches : GROUP;
    struct data_counts counts = data_counts(h->train.data);
    double loss = 0;
    const struct instant begin = clock_now();
    size_t labels = 0; /* scored so far, so that what is shown on the way is a mean too */
    int e = 0;
    for (size_t at = 0; at < rows && !e; at += group) {
        e = score_group(h, r, at, rows - at < group ? rows - at : group, &loss, &labels, err);
        const size_t done = at + group < rows ? at + group : rows;
        if (!e && !was_said(h, done))
            stage_event(h->events, "step",
                        json_pack("{s:I s:I s:f}", "step", (json_int_t)done, "steps", (json_int_t)rows,
                                  "loss", loss / (double)labels));
    }
    if (!e)
        *ret_result = json_pack("{s:I s:I s:f s:f s:f}", "rows", (json_int_t)rows, "supervised_tokens",
                                (json_int_t)counts.supervised, "total", -loss, "perplexity",
                                exp(loss / (double)counts.supervised), "seconds",
                                (double)clock_since_us(clock_now(), begin) / 1e6);
    return e;
}

int head_score(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    return h->train.data ? score_data(h, r, ret_result, err) : score_text(h, r, ret_result, err);
}
