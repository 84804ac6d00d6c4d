/* SPDX-License-Identifier: MIT
 *
 * What a job trains: of new adapters, of those that it begins with, and of runs that go on. Called
 * while the head plans. */
#include "daemon/stage/plan/stage_head.h"

#include <errno.h>

static int plan_new_adapter(struct head *h, const struct job_spec *s, struct tune *t, struct err *err)
{
    if (t->init == LORA_INIT_PISSA)
        tune_fix_half(t);
    tune_last_layers(t, &h->config, s->num_layers);
    int r = s->layers ? tune_layers(t, &h->config, s->layers, err) : 0;
    if (r)
        return err_prefix(err, r, "--layers");
    r = tune_targets(t, h->family, &h->config, s->targets ? s->targets : tune_default_targets(&h->config),
                     err);
    r = r ? r : tune_check(t, h->family, &h->config, err);
    size_t n = 0;
    for (size_t u = 0; !r && u < h->config.layers + 2; u++)
        n += tune_param_count(t, h->family, &h->config, u);
    return r || n ? r
                  : err_set(err, -EINVAL,
                            "layers %zu to %zu have none of the --target-modules: choose other layers",
                            t->first_layer, t->end_layer - 1);
}

static int plan_tune(struct head *h, struct head_adapter *a, struct tune *t, struct err *err)
{
    const struct job_spec *s = &a->spec;
    *t = (struct tune){.kind = s->full ? TUNE_FULL : TUNE_LORA,
                       .rank = s->rank,
                       .alpha = (float)s->alpha,
                       .dropout = (float)s->dropout,
                       .rslora = s->rslora,
                       .dora = s->dora,
                       .init = s->lora_init,
                       .plus_ratio = s->plus_ratio,
                       .layer_decay = s->layer_decay,
                       .end_layer = h->config.layers,
                       .seed = s->seed,
                       .random_init = s->random_init};
    int r = 0;
    if (!s->full && s->init_adapter)
        r = adapter_read_config(t, s->init_adapter, h->family, &h->config, err);
    else if (!s->full && !s->resume)
        r = plan_new_adapter(h, s, t, err);
    if (!r && s->init_adapter)
        r = adapter_in_open(&a->in, s->init_adapter, t, h->family, &h->config, err);
    if (!r && s->resume)
        r = adapter_in_open_state(&a->in, s->adapter_out, t, h->family, &h->config, &a->first_step, err);
    return r;
}

/* Adapters that are trained together lie on the same linears: those that are gone on with may
 * not. */
int head_plan_tunes(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    int r = plan_tune(h, &h->adapters[0], &p->tune, err);
    p->nmore = h->nadapters - 1;
    for (size_t a = 1; a < h->nadapters && !r; a++) {
        struct tune *t = &p->more[a - 1];
        r = plan_tune(h, &h->adapters[a], t, err);
        if (!r && !tune_same_place(t, &p->tune))
            r = err_set(err, -EINVAL,
                        "%s and %s differ in their layers or linears, so they cannot be trained together: "
                        "resume each in a job of its own",
                        h->adapters[0].spec.adapter_out, h->adapters[a].spec.adapter_out);
    }
    return r;
}
