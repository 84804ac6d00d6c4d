/* SPDX-License-Identifier: MIT
 *
 * ringd-stage, started by ringctl bench and not by a daemon: measures what this node can do, and
 * what a model's layers take here, with the code that times them for plans (stage_units.h), of
 * which nothing is kept: it is today's answer that is asked for. One thread, and those of the
 * products. */
#include "daemon/stage/stage_bench.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_machine.h"
#include "daemon/stage/plan/stage_units.h"
#include "engine/model/family.h"

enum { DONE = 0, FAILED = 1, WRONG_USE = 2, RANK = 16 };

/* --- the machine ------------------------------------------------------------------------------ */

static int measure_machine(json_t *out, struct num *num, struct err *err)
{
    struct machine *m;
    struct machine_product p;
    json_t *products = json_array();
    int e = machine_new(&m, num, err);
    for (size_t i = 0; !e && machine_product(&p, m, i); i++)
        json_array_append_new(
            products, json_pack("{s:s s:f s:f}", "weights", p.type, "gflops", p.gflops, "row_gbs", p.gbs));
    if (!e) {
        json_object_set_new(out, "threads", json_integer(num_threads(num)));
        json_object_set_new(out, "kernels", json_string(num_isa(num)));
        json_object_set_new(out, "kernels_bf16", json_string(num_isa_bf16(num)));
        json_object_set_new(out, "read_gbs", json_real(machine_read(m)));
        machine_free(m);
    }
    json_object_set_new(out, "products", products);
    return e;
}

/* --- a model ---------------------------------------------------------------------------------- */

struct model {
    const json_t *spec; /* borrowed */
    struct config config;
    const struct family *family;
    size_t tokens, bits;
    int threads;
};
enum work { TRAINING, PREFILL, DECODING, WORKS };
static const char *const names[WORKS] = {[TRAINING] = "training_tokens_per_second",
                                         [PREFILL] = "prefill_tokens_per_second",
                                         [DECODING] = "decoding_tokens_per_second"};

static int open_model(struct model *m, const json_t *spec, struct err *err)
{
    const char *weights = json_string_value(json_object_get(spec, "weights"));
    *m = (struct model){.spec = spec,
                        .tokens = (size_t)json_integer_value(json_object_get(spec, "tokens")),
                        .bits = !weights                   ? 0
                                : !strcmp(weights, "int8") ? 8
                                : !strcmp(weights, "int4") ? 4
                                                           : 0,
                        .threads = (int)json_integer_value(json_object_get(spec, "threads"))};
    int e = config_read(&m->config, json_string_value(json_object_get(spec, "model")), err);
    if (!e && !(m->family = family_find(m->config.family)))
        e = err_set(err, -ENOTSUP, "models of the family \"%s\" are not known", m->config.family);
    return e;
}

static int plan_of(struct job_plan *p, const struct model *m, enum work work, struct err *err)
{
    *p = (struct job_plan){.ranks = 1,
                           .stages = 1,
                           .training = work == TRAINING,
                           .kv = work != TRAINING,
                           .tokens = work == DECODING ? 1 : m->tokens,
                           .seqs = 1,
                           .positions = work == DECODING ? m->tokens + 1 : m->tokens,
                           .weight_bits = m->bits,
                           .vocab = m->config.vocab,
                           .dim = m->config.dim};
    snprintf(p->model, sizeof p->model, "%s", json_string_value(json_object_get(m->spec, "model")));
    if (work != TRAINING)
        return 0;
    p->tune = (struct tune){.kind = TUNE_LORA, .rank = RANK, .alpha = RANK, .end_layer = m->config.layers};
    return tune_targets(&p->tune, m->family, &m->config, "all-linear", err);
}

/* A layer of each kind stands for all of it: those that `unit` may stand for cost the same. */
static bool is_like(const struct model *m, size_t unit, size_t other)
{
    return config_has_experts(&m->config, unit - 1) == config_has_experts(&m->config, other - 1) &&
           family_cost(m->family, &m->config, unit, m->tokens) ==
               family_cost(m->family, &m->config, other, m->tokens);
}

static size_t list_units(struct unit_list *list, size_t count[], const struct model *m,
                         const struct job_plan *p)
{
    const size_t units = m->config.layers + 2;
    list->n = 0;
    for (size_t u = 0; u < units && list->n < UNITS_MOST; u++) {
        size_t same = 0;
        while (u && u + 1 < units && same < list->n &&
               (!list->at[same].unit || !is_like(m, list->at[same].unit, u)))
            same++;
        if (u && u + 1 < units && same < list->n) {
            count[same]++;
            continue;
        }
        count[list->n] = 1;
        list->at[list->n++] = (struct unit_want){.unit = u,
                                                 .tokens = p->tokens,
                                                 .seqs = 1,
                                                 .at = p->positions - p->tokens,
                                                 .trained = p->training && u > 0,
                                                 .needed = true};
    }
    return list->n;
}

/* Tokens a second, if this node held all of it. */
static int rate(double *ret, const struct model *m, enum work work, struct unit_list *list, struct err *err)
{
    struct sched_cost cost[UNITS_MOST];
    size_t count[UNITS_MOST];
    bool have[UNITS_MOST];
    struct job_plan *plan = calloc(1, sizeof *plan);
    double seconds = 0;
    int e = plan ? plan_of(plan, m, work, err) : err_set(err, -ENOMEM, "out of memory");
    const size_t n = e ? 0 : list_units(list, count, m, plan);
    if (!e)
        e = units_time(cost, have, list, plan, &m->config, m->threads, true, err);
    for (size_t i = 0; i < n && !e; i++)
        seconds += (double)count[i] * (cost[i].f + cost[i].i + cost[i].w);
    if (!e)
        *ret = (double)plan->tokens / seconds;
    free(plan);
    return e;
}

static int measure_model(json_t *out, const json_t *spec, struct err *err)
{
    struct model m;
    struct unit_list *list = malloc(sizeof *list);
    int e = list ? open_model(&m, spec, err) : err_set(err, -ENOMEM, "out of memory");
    json_t *said = e ? NULL
                     : json_pack("{s:O s:I s:I s:i}", "dir", json_object_get(spec, "model"), "layers",
                                 (json_int_t)m.config.layers, "tokens", (json_int_t)m.tokens, "weight_bits",
                                 (int)m.bits);
    for (enum work w = 0; w < WORKS && !e; w++) {
        double tokens = 0;
        e = rate(&tokens, &m, w, list, err);
        json_object_set_new(said, names[w], json_real(tokens));
    }
    json_object_set_new(out, "model", said);
    free(list);
    return e;
}

int stage_bench_main(int argc, char **argv)
{
    json_t *spec = argc == 2 ? json_loads(argv[1], 0, NULL) : NULL, *out = json_object();
    struct err err = {"SPEC is no JSON object"};
    struct num *num = NULL;
    if (!json_is_object(spec)) {
        fprintf(stderr, "ringctl: %s\n", err.text);
        return WRONG_USE;
    }
    int e = num_new(&num, (int)json_integer_value(json_object_get(spec, "threads")), &err);
    if (!e)
        e = measure_machine(out, num, &err);
    num_free(num);
    if (!e && json_object_get(spec, "model"))
        e = measure_model(out, spec, &err);
    if (e)
        fprintf(stderr, "ringctl: %s\n", err.text);
    else
        json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(out);
    json_decref(spec);
    return e || fflush(stdout) ? FAILED : DONE;
}
