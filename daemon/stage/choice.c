/* SPDX-License-Identifier: MIT */
#include "daemon/stage/choice.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "daemon/stage/stage_go.h"

_Static_assert(JOB_REPEAT_MAX + JOB_BIASES_MAX <= GO_ADJUST_MAX, "a round has room for all adjustments");

enum { BIAS_MOST = 100 };

int choice_check(const struct job_spec *spec, size_t vocab, struct err *err)
{
    const char *key;
    json_t *value;
    if (json_object_size(spec->logit_bias) > JOB_BIASES_MAX)
        return err_set(err, -EINVAL, "--logit-bias names %zu tokens: at most %d are allowed",
                       json_object_size(spec->logit_bias), JOB_BIASES_MAX);
    json_object_foreach ((json_t *)(uintptr_t)spec->logit_bias, key, value) {
        char *end;
        const unsigned long long id = strtoull(key, &end, 10);
        if (*key < '0' || *key > '9' || *end || id >= vocab)
            return err_set(err, -EINVAL,
                           "--logit-bias \"%s\": the id of a token is needed; this model has tokens 0 to %zu",
                           key, vocab - 1);
        if (!json_is_number(value) || !(fabs(json_number_value(value)) <= BIAS_MOST))
            return err_set(err, -EINVAL, "--logit-bias %s: a number from -%d to %d is needed", key, BIAS_MOST,
                           BIAS_MOST);
    }
    return 0;
}

static bool has_penalties(const struct job_spec *spec)
{
    return spec->repeat_last_n &&
           (spec->repetition_penalty != 1 || spec->presence_penalty != 0 || spec->frequency_penalty != 0);
}

/* A token of the window. */
struct heard {
    uint32_t id;
    bool is_answer;
};

/* Both lie in one room, the adjustments first. */
static size_t most_adjusts(const struct job_spec *spec)
{
    return (has_penalties(spec) ? spec->repeat_last_n : 0) + json_object_size(spec->logit_bias);
}

size_t choice_room(const struct job_spec *spec)
{
    return most_adjusts(spec) * sizeof(struct sample_adjust) +
           (has_penalties(spec) ? spec->repeat_last_n * sizeof(struct heard) : 0);
}

/* The last repeat_last_n tokens; returns how many. */
static size_t window(const struct job_spec *spec, const struct choice_ids *ids, struct heard *ret)
{
    const size_t all = ids->n_prompt + ids->n_answer;
    const size_t n = all < spec->repeat_last_n ? all : spec->repeat_last_n;
    for (size_t i = 0, at = all - n; i < n; i++, at++) {
        const bool is_answer = at >= ids->n_prompt;
        ret[i] = (struct heard){is_answer ? ids->answer[at - ids->n_prompt] : ids->prompt[at], is_answer};
    }
    return n;
}

static int by_id(const void *a, const void *b)
{
    const struct heard *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* One adjustment for each token of heard [n]. */
static size_t penalties(const struct job_spec *spec, struct heard *heard, size_t n, struct sample_adjust *ret)
{
    size_t made = 0;
    qsort(heard, n, sizeof *heard, by_id);
    for (size_t i = 0; i < n; made++) {
        const uint32_t id = heard[i].id;
        size_t said = 0;
        for (; i < n && heard[i].id == id; i++)
            said += heard[i].is_answer;
        const double less = said ? spec->presence_penalty + spec->frequency_penalty * (double)said : 0;
        ret[made] = (struct sample_adjust){id, (float)spec->repetition_penalty, (float)-less};
    }
    return made;
}

static size_t biases(const struct job_spec *spec, struct sample_adjust *ret)
{
    const char *key;
    json_t *value;
    size_t made = 0;
    json_object_foreach ((json_t *)(uintptr_t)spec->logit_bias, key, value)
        ret[made++] =
            (struct sample_adjust){(uint32_t)strtoul(key, NULL, 10), 1, (float)json_number_value(value)};
    return made;
}

struct sample_params choice_next(const struct job_spec *spec, const struct choice_ids *ids, void *room)
{
    struct sample_params p = {.temperature = (float)spec->temperature,
                              .top_p = (float)spec->top_p,
                              .min_p = (float)spec->min_p,
                              .top_k = (uint32_t)spec->top_k,
                              .seed = spec->seed};
    struct sample_adjust *adjust = room;
    p.adjust = adjust;
    if (has_penalties(spec)) {
        struct heard *heard = (struct heard *)(adjust + most_adjusts(spec));
        p.nadjust = penalties(spec, heard, window(spec, ids, heard), adjust);
    }
    p.nadjust += biases(spec, adjust + p.nadjust);
    return p;
}
