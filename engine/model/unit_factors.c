/* SPDX-License-Identifier: MIT
 *
 * What a unit's factors have to do with its weights: the magnitudes and gains of DoRA, and factors
 * that begin with the principal part of a weight. Called by the stage, on the computing thread. */
#include "layer/dora.h"
#include "model/pissa.h"
#include "model/unit_impl.h"

/* The linear with the factors of an adapter, chosen or not. */
static struct linear linear_of(const struct unit *u, size_t set, size_t tensor)
{
    struct linear lin = u->block.weights.lin[tensor];
    lin.lora = &u->all_lora[set * u->ntensors + tensor];
    return lin;
}

/* The same with all rows where they are here: of a slice that trains, what goes back needs all
 * gains. */
static struct linear whole_of(const struct unit *u, size_t set, size_t tensor, struct lora *room)
{
    struct linear lin = linear_of(u, set, tensor);
    if (u->has_all) {
        *room = lora_moved(lin.lora, -(ptrdiff_t)u->cut[tensor].first);
        lin.lora = room;
        lin.w = u->all_rows[tensor];
    }
    return lin;
}

void unit_ready(struct unit *u, struct num *num)
{
    for (size_t set = 0; set < u->sets; set++) {
        for (size_t t = 0; t < u->ntensors && u->stale[set]; t++) {
            struct lora room;
            const struct linear lin = whole_of(u, set, t, &room);
            if (!dora_is(&lin))
                continue;
            dora_norms(num, lin.lora->inv, &lin);
            dora_gains(lin.lora->inv, lin.lora->gain, lin.lora->inv, lin.lora->m, lin.w.rows);
        }
        u->stale[set] = false;
    }
}

int unit_begin_factors(struct unit *u, struct num *num, const struct tune *tunes)
{
    int r = 0;
    for (size_t set = 0; set < u->sets && !r; set++)
        for (size_t i = 0; i < u->all_nparams[set] && !r; i++) {
            const struct param *p = &u->all_params[set * u->most + i];
            const struct linear lin = linear_of(u, set, p->def.tensor);
            if (p->def.role == PARAM_M) /* so that nothing changes at first: the gains are 1 */
                dora_norms(num, p->w, &lin);
            else if (p->def.role == PARAM_B && tunes[set].init == LORA_INIT_PISSA)
                r = pissa_init(num, p[-1].w, p->w, &lin, tunes[set].seed, p->def.name);
        }
    return r;
}
