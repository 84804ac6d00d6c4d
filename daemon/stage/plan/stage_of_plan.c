/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_of_plan.h"

#include <errno.h>
#include <string.h>

int job_plan_check_model(const struct job_plan *plan, const struct config *config, struct err *err)
{
    char mine[33];
    int r = plan->tune.random_init ? 0 : config_fingerprint_of(mine, config, plan->model, err);
    if (!r && !plan->tune.random_init && strcmp(mine, plan->fingerprint))
        r = err_set(err, -EINVAL,
                    "the model in %s differs from the head's (fingerprint %.8s, the head's %.8s): "
                    "copy it again",
                    plan->model, mine, plan->fingerprint);
    return r;
}

/* A prompt that is scored wants logits of all its rows: one by one each would read all weights of
 * the head. */
size_t job_plan_logit_rows(const struct job_plan *p)
{
    enum { SCORED = 32 };
    const size_t scored = p->tokens < SCORED ? p->tokens : SCORED;
    return !p->kv_blocks ? 0 : p->seqs < scored ? scored : p->seqs;
}

struct stage_spec job_plan_stage(const struct job_plan *p, const struct config *config, size_t stage,
                                 size_t pipeline)
{
    const size_t replica = pipeline / job_plan_slices(p);
    return (struct stage_spec){
        .model_dir = p->model,
        .config = *config,
        .tune = p->tune,
        .more = p->more,
        .nmore = p->nmore,
        .first_layer = p->first[stage],
        .end_layer = p->first[stage + 1],
        .embed = stage == 0,
        .head = stage == p->stages - 1,
        .training = p->training,
        .groups = job_plan_groups(p),
        .first_group = job_plan_first_group(p, replica),
        .end_group = p->replicas ? job_plan_first_group(p, replica + 1) : 0,
        .updated = p->divided ? replica : 0,
        .updates = p->divided ? job_plan_replicas(p) : 1,
        .split_backward = p->training && p->bwd_w_only[stage] > 0,
        .slots = p->slots[stage],
        .activations = p->activations[stage],
        .bwd_x_only = p->bwd_x_only[stage],
        .bwd_w_only = p->bwd_w_only[stage],
        .by_layer = p->by_layer && p->training,
        .tokens = p->tokens,
        .seqs = p->seqs,
        .positions = p->positions,
        .slice = job_plan_slice(p, pipeline),
        .weight_bits = p->weight_bits,
        .kv = p->kv,
        .kv_blocks = p->kv_blocks,
        .states = job_plan_states(p),
        .kept = p->kept_states,
        .guesses = p->guesses,
        .ring_blocks = p->rings ? stage_ring_blocks(config) : 0,
        .kv_type = p->kv_type,
        .logit_rows = job_plan_logit_rows(p),
        .sample = p->sample,
        .pairs = p->loss != LOSS_NLL,
    };
}
