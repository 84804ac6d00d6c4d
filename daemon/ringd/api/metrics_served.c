/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/metrics_served.h"

#include "daemon/ringd/api/metrics_write.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/serve/desk.h"

static const double seconds_ends[DESK_BUCKETS] = DESK_SECONDS, tokens_ends[DESK_BUCKETS] = DESK_TOKENS;

struct served_sources {
    const struct desk *desk;
    const struct coord *coord;
};

/* The next model whose job is still known, with its name. */
static const struct desk_model *next_model(const struct served_sources *n, const struct desk_model *before,
                                           const char **ret_name)
{
    const struct desk_model *m = before;
    while ((m = desk_next(n->desk, m))) {
        const struct job *job = coord_find(n->coord, m->job);
        *ret_name = job ? job_served_name(&job->asked) : NULL;
        if (*ret_name)
            return m;
    }
    return NULL;
}

static void begin_value(FILE *to, const char *metric, const char *part, const char *model)
{
    fprintf(to, "ringd_%s%s{", metric, part);
    metrics_label(to, "model", model);
}

static const struct histogram *histogram_at(const struct desk_stats *stats, size_t at)
{
    return (const struct histogram *)(const void *)((const char *)stats + at);
}

static void write_histogram(FILE *to, const struct served_sources *n, const char *metric, const char *help,
                            size_t at, const double *ends)
{
    const char *name;
    metrics_describe(to, metric, "histogram", help);
    for (const struct desk_model *m = NULL; (m = next_model(n, m, &name));) {
        const struct histogram *h = histogram_at(&m->stats, at);
        uint64_t all = 0;
        for (size_t i = 0; i < DESK_BUCKETS; i++) {
            all += h->counts[i];
            begin_value(to, metric, "_bucket", name);
            fprintf(to, ",le=\"%g\"} %llu\n", ends[i], (unsigned long long)all);
        }
        all += h->counts[DESK_BUCKETS];
        begin_value(to, metric, "_bucket", name);
        fprintf(to, ",le=\"+Inf\"} %llu\n", (unsigned long long)all);
        begin_value(to, metric, "_sum", name);
        fprintf(to, "} %.17g\n", h->sum);
        begin_value(to, metric, "_count", name);
        fprintf(to, "} %llu\n", (unsigned long long)all);
    }
}

static void write_outcomes(FILE *to, const struct served_sources *n)
{
    static const char *const names[DESK_OUTCOMES] = DESK_OUTCOME_NAMES;
    const char *name;
    metrics_describe(to, "serve_requests_total", "counter", "Requests that have ended, by how.");
    for (const struct desk_model *m = NULL; (m = next_model(n, m, &name));)
        for (size_t i = 0; i < DESK_OUTCOMES; i++) {
            begin_value(to, "serve_requests_total", "", name);
            fprintf(to, ",outcome=\"%s\"} %llu\n", names[i], (unsigned long long)m->stats.outcomes[i]);
        }
}

/* What the stage tells in its event "load"; it counts from its start on. */
static const struct {
    const char *key, *metric, *type, *help;
} loads[] = {
    {"running", "serve_sequences_running", "gauge", "Answers that have keys and values in the pool."},
    {"waiting", "serve_sequences_waiting", "gauge", "Answers that wait for room in the pool."},
    {"kv_used", "serve_kv_blocks_used", "gauge", "Blocks of keys and values that answers hold."},
    {"kv_blocks", "serve_kv_blocks", "gauge", "Blocks of keys and values that there are."},
    {"prompt_tokens", "serve_prompt_tokens_computed_total", "counter",
     "Tokens of prompts that were computed."},
    {"cached_tokens", "serve_prompt_tokens_cached_total", "counter", "Tokens of prompts that were there."},
    {"generated_tokens", "serve_generated_tokens_total", "counter", "Tokens of answers."},
    {"guessed_tokens", "serve_guessed_tokens_total", "counter", "Tokens that were guessed from the text."},
    {"guessed_right", "serve_guessed_right_total", "counter", "Of those, the right ones."},
    {"drafted_tokens", "serve_drafted_tokens_total", "counter",
     "Tokens that a draft model or the model's own layer guessed."},
    {"drafted_right", "serve_drafted_right_total", "counter", "Of those, the right ones."},
    {"preempted", "serve_preempted_total", "counter",
     "Answers that gave their blocks back, to be computed again."},
};

static void write_loads(FILE *to, const struct served_sources *n)
{
    const char *name;
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        metrics_describe(to, loads[i].metric, loads[i].type, loads[i].help);
        for (const struct desk_model *m = NULL; (m = next_model(n, m, &name));) {
            begin_value(to, loads[i].metric, "", name);
            fprintf(to, "} %.17g\n", json_number_value(json_object_get(m->load, loads[i].key)));
        }
    }
}

void metrics_write_served(FILE *to, const struct desk *desk, const struct coord *coord)
{
    const struct served_sources from = {desk, coord}, *n = &from;
    const char *name;
    if (!desk || !next_model(n, NULL, &name))
        return;
    write_histogram(to, n, "serve_time_to_first_token_seconds", "From a request to its first token.",
                    offsetof(struct desk_stats, first), seconds_ends);
    write_histogram(to, n, "serve_time_between_tokens_seconds", "Between tokens of one answer.",
                    offsetof(struct desk_stats, between), seconds_ends);
    write_histogram(to, n, "serve_queue_seconds", "From a request until its prompt begins to be read.",
                    offsetof(struct desk_stats, queue), seconds_ends);
    write_histogram(to, n, "serve_batch_tokens", "Tokens that one microbatch gave.",
                    offsetof(struct desk_stats, batch), tokens_ends);
    write_outcomes(to, n);
    write_loads(to, n);
}
