/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_head_serve.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/stage/serve/draft_model.h"
#include "engine/model/stage.h"

enum {
    CONTEXT = 8192, /* of a request, where nothing is said: more takes memory */
    CONTEXTS = 4    /* likewise, so many of them have room at once */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Each is loaded as if it were the only one; requests name it. */
static int plan_adapters(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    const char *name;
    json_t *folder;
    size_t n = 0;
    int r = 0;
    json_object_foreach ((json_t *)(uintptr_t)h->spec.adapters, name, folder) {
        struct tune *t = n ? &p->more[n - 1] : &p->tune;
        struct head_adapter *a = &h->adapters[n++];
        const char *dir = json_string_value(folder);
        h->nadapters = n;
        p->nmore = n - 1;
        snprintf(a->name, sizeof a->name, "%s", name);
        r = adapter_read_config(t, dir, h->family, &h->config, err);
        r = r ? r : adapter_in_open(&a->in, dir, t, h->family, &h->config, err);
        if (r)
            return err_prefix(err, r, "--adapter %s", name);
    }
    return 0;
}

static void go_without_draft(struct head *h, const struct err *why)
{
    draft_model_free(h->draft);
    h->draft = NULL;
    h->plan.draft_bytes = 0;
    stage_say(h->events, "served without its draft model: %s", why->text);
}

/* A job that has served before goes on without one that is not to be had here. */
static int plan_draft(struct head *h, struct err *err)
{
    const struct job_spec *s = &h->spec;
    const struct draft_setup setup = {.dir = s->draft_mtp ? s->model : s->draft_model,
                                      .plan = &h->plan,
                                      .served = &h->config,
                                      .tok = h->tok,
                                      .weight_bits = s->draft_mtp ? s->weight_bits : s->draft_bits,
                                      .is_ahead = s->draft_mtp};
    struct err why;
    if (!s->draft_mtp && !s->draft_model)
        return 0;
    const int r = draft_model_read(&h->draft, &setup, &why);
    if (!r)
        h->plan.draft_bytes = draft_model_bytes(h->draft);
    else if (h->spec.is_again)
        go_without_draft(h, &why);
    else
        *err = why;
    return r && !h->spec.is_again ? r : 0;
}

/* Memory of states that texts may begin with, all ranks together. */
static const size_t KEPT_BYTES = (size_t)512 << 20;

/* What a state takes on all ranks together. */
static int measure_state(const struct head *h, size_t *ret_bytes, bool *ret_has, struct err *err)
{
    const struct job_plan *p = &h->plan;
    struct stage_bytes with, without;
    struct stage_spec spec = {.model_dir = h->spec.model,
                              .config = h->config,
                              .tune = {.end_layer = h->config.layers},
                              .end_layer = h->config.layers,
                              .kv = true,
                              .slots = 1,
                              .tokens = 1,
                              .seqs = 1,
                              .positions = STAGE_KV_BLOCK,
                              .kv_blocks = 1,
                              .kv_type = p->kv_type,
                              .states = 1,
                              .ring_blocks = p->rings ? stage_ring_blocks(&h->config) : 0};
    int r = stage_measure(&without, &spec, err);
    spec.kept = 1;
    r = r ? r : stage_measure(&with, &spec, err);
    if (!r) {
        *ret_bytes = with.kv - without.kv;
        *ret_has = stage_has_state(&spec);
    }
    return r;
}

/* Layers with a window have a ring of each sequence, where that takes less memory than what all
 * sequences share. */
static int plan_states(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    const size_t ring = stage_ring_blocks(&h->config), states = job_plan_states(p);
    size_t bytes = 0;
    bool has = false;
    p->guesses = h->spec.draft_max;
    p->rings = ring && (states + 1) * ring < p->kv_blocks;
    const int r = measure_state(h, &bytes, &has, err);
    if (r || !has)
        return r;
    p->kept_states = larger(KEPT_BYTES / larger(bytes, 1), 1);
    if (p->kept_states > p->seqs)
        p->kept_states = p->seqs;
    if (p->rings && p->kept_states > p->kv_blocks / ring - states)
        p->kept_states = p->kv_blocks / ring - states;
    return 0;
}

int head_plan_serve(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    const struct job_spec *s = &h->spec;
    const size_t made_for = config_positions(&h->config);
    struct err quiet;
    int r = plan_adapters(h, err);
    if (r)
        return r;
    if (!h->tok && tokenizer_open(&h->tok, s->model, &quiet))
        stage_say(h->events, "%s: requests are answered with token ids alone", quiet.text);
    p->kv = true;
    p->positions = s->max_context ? s->max_context : made_for < CONTEXT ? made_for : CONTEXT;
    head_say_positions(h, p->positions, "a prompt and its answer are");
    p->seqs = s->max_num_seqs;
    p->tokens = p->seqs + s->prefill_step;
    p->microbatches = 1;
    p->kv_type = s->kv_type;
    p->kv_blocks = larger(s->max_kv_size ? s->max_kv_size : CONTEXTS * p->positions, p->positions);
    p->kv_blocks = (p->kv_blocks + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK;
    r = plan_states(h, err);
    return r ? r : plan_draft(h, err);
}

/* Nor does it wait for the memory of one. */
int head_split_served(struct head *h, struct err *err)
{
    struct err why;
    const struct job_plan before = h->plan; /* owns nothing yet */
    int r = head_split(h, &why);
    if (r == -ENOSPC && h->draft && h->spec.is_again) {
        job_plan_done(&h->plan);
        h->plan = before;
        h->planning.lacks = 0;
        go_without_draft(h, &why);
        r = head_split(h, &why);
    }
    if (r)
        *err = why;
    return r;
}

int head_open_draft(struct head *h, struct num *num, struct maps *maps, struct err *err)
{
    struct err why;
    const int r = h->draft ? draft_model_open(h->draft, num, maps, &why) : 0;
    if (r && h->spec.is_again)
        go_without_draft(h, &why);
    else if (r)
        *err = why;
    return r && !h->spec.is_again ? r : 0;
}
