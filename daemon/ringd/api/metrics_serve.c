/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/metrics_serve.h"

#include <jansson.h>

#include "daemon/ringd/api/metrics_put.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/serve/desk.h"

enum { MODELS_MAX = 64 };

struct shown_model {
    const struct job *job; /* borrowed, as all */
    const struct desk_model *model;
};

/* The beginning of a line, up to its last label. */
static void begin(FILE *to, const char *name, const char *end, const struct shown_model *m)
{
    fprintf(to, "ringd_serve_%s%s{", name, end);
    put_label(to, "model", job_served_name(&m->job->asked));
    fprintf(to, ",job=\"%llu\"", (unsigned long long)m->job->id);
}

static void describe(FILE *to, const char *name, const char *type, const char *help)
{
    char whole[64];
    snprintf(whole, sizeof whole, "serve_%s", name);
    put_metric(to, whole, type, help);
}

/* --- what its stage says of itself ------------------------------------------------------------ */

static const struct load_metric {
    const char *name, *type, *key, *help;
} load_metrics[] = {
    {"requests_running", "gauge", "running", "Answers that are being computed."},
    {"requests_waiting", "gauge", "waiting", "Answers that wait for room."},
    {"kv_blocks_used", "gauge", "kv_used", "Blocks of keys and values that hold something of an answer."},
    {"kv_blocks", "gauge", "kv_blocks", "Blocks of keys and values that there are."},
    {"prompt_tokens_total", "counter", "prompt_tokens", "Tokens of prompts that were computed."},
    {"prefix_hit_tokens_total", "counter", "cached_tokens",
     "Tokens of prompts that had been computed before."},
    {"generation_tokens_total", "counter", "generated_tokens", "Tokens of answers."},
    {"preemptions_total", "counter", "preempted", "Answers that gave their blocks to others for a while."},
    {"draft_tokens_total", "counter", "guessed_tokens", "Tokens that were guessed ahead."},
    {"draft_accepted_tokens_total", "counter", "guessed_right", "Guesses that were right."},
};

static double number_of(const struct shown_model *m, const char *key)
{
    return json_number_value(json_object_get(m->model->load, key));
}

static void write_load(FILE *to, const struct shown_model *models, size_t n)
{
    for (size_t k = 0; k < sizeof load_metrics / sizeof *load_metrics; k++) {
        const struct load_metric *metric = &load_metrics[k];
        describe(to, metric->name, metric->type, metric->help);
        for (size_t i = 0; i < n; i++) {
            begin(to, metric->name, "", &models[i]);
            fprintf(to, "} %.17g\n", number_of(&models[i], metric->key));
        }
    }
}

/* Their ends are the powers of 2. */
static void write_rows(FILE *to, const struct shown_model *models, size_t n)
{
    static const char name[] = "batch_rows";
    describe(to, name, "histogram", "Rows of a microbatch: a token of an answer or of a prompt each.");
    for (size_t i = 0; i < n; i++) {
        const json_t *sizes = json_object_get(models[i].model->load, "sizes");
        json_int_t sum = 0;
        for (size_t k = 0; k < json_array_size(sizes) && k < 32; k++) {
            sum += json_integer_value(json_array_get(sizes, k));
            begin(to, name, "_bucket", &models[i]);
            fprintf(to, ",le=\"%lu\"} %lld\n", 1UL << k, (long long)sum);
        }
        begin(to, name, "_bucket", &models[i]);
        fprintf(to, ",le=\"+Inf\"} %.17g\n", number_of(&models[i], "microbatches"));
        begin(to, name, "_sum", &models[i]);
        fprintf(to, "} %.17g\n", number_of(&models[i], "rows"));
        begin(to, name, "_count", &models[i]);
        fprintf(to, "} %.17g\n", number_of(&models[i], "microbatches"));
    }
}

/* --- what the desk has counted ---------------------------------------------------------------- */

static const struct latency_metric {
    const char *name, *help;
    size_t at; /* in struct serve_metrics */
} latency_metrics[] = {
    {"request_queue_time_seconds", "From a request until its prompt is begun.",
     offsetof(struct serve_metrics, queue)},
    {"time_to_first_token_seconds", "From a request until its first token.",
     offsetof(struct serve_metrics, first_token)},
    {"inter_token_latency_seconds", "Between two tokens of an answer; 0 for those that come together.",
     offsetof(struct serve_metrics, between_tokens)},
    {"e2e_request_latency_seconds", "From a request until the end of its answer.",
     offsetof(struct serve_metrics, whole)},
};

static void write_latencies(FILE *to, const char *name, const struct latencies *l,
                            const struct shown_model *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < LATENCY_ENDS; i++) {
        sum += l->bucket[i];
        begin(to, name, "_bucket", m);
        fprintf(to, ",le=\"%g\"} %llu\n", latency_ends[i], (unsigned long long)sum);
    }
    begin(to, name, "_bucket", m);
    fprintf(to, ",le=\"+Inf\"} %llu\n", (unsigned long long)l->n);
    begin(to, name, "_sum", m);
    fprintf(to, "} %.17g\n", l->sum);
    begin(to, name, "_count", m);
    fprintf(to, "} %llu\n", (unsigned long long)l->n);
}

static void write_all_latencies(FILE *to, const struct shown_model *models, size_t n)
{
    for (size_t k = 0; k < sizeof latency_metrics / sizeof *latency_metrics; k++) {
        const struct latency_metric *metric = &latency_metrics[k];
        describe(to, metric->name, "histogram", metric->help);
        for (size_t i = 0; i < n; i++)
            write_latencies(to, metric->name,
                            (const struct latencies *)((const char *)&models[i].model->metrics + metric->at),
                            &models[i]);
    }
}

static void write_calls(FILE *to, const struct shown_model *models, size_t n)
{
    static const char name[] = "requests_total";
    describe(to, name, "counter", "Requests of clients, by how they ended.");
    for (size_t i = 0; i < n; i++)
        for (enum call_outcome k = 0; k < CALL_OUTCOMES; k++) {
            begin(to, name, "", &models[i]);
            fprintf(to, ",outcome=\"%s\"} %llu\n", call_outcome_name(k),
                    (unsigned long long)models[i].model->metrics.calls[k]);
        }
}

void metrics_serve(FILE *to, const struct coord *coord, const struct desk *desk)
{
    struct shown_model models[MODELS_MAX];
    size_t n = 0;
    for (const struct job *job = coord_first(coord); job && n < MODELS_MAX; job = job->next) {
        const struct desk_model *model = desk_model(desk, job->id);
        if (model)
            models[n++] = (struct shown_model){.job = job, .model = model};
    }
    if (!n)
        return;
    write_load(to, models, n);
    write_rows(to, models, n);
    write_all_latencies(to, models, n);
    write_calls(to, models, n);
}
