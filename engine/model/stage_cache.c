/* SPDX-License-Identifier: MIT
 *
 * How much of a text the caches of generation keep. Called by stages, and by rank 0 for a whole
 * model, before there is a stage. */
#include "model/stage_impl.h"

size_t stage_cached(const struct stage_spec *spec)
{
    return spec->kv && !spec->kv_blocks ? spec->positions : spec->sample;
}

size_t stage_ring(const struct stage_spec *spec)
{
    const size_t positions = stage_cached(spec), window = spec->config.window,
                 ring = (window + spec->tokens + ATTN_RING - 1) / ATTN_RING * ATTN_RING;
    return window && ring < positions ? ring : 0;
}

size_t stage_steps_back(const struct stage_spec *spec)
{
    const struct config *c = &spec->config;
    const size_t ring = stage_ring(spec);
    size_t steps = SIZE_MAX;
    for (size_t l = spec->first_layer; l < spec->end_layer; l++) {
        const struct config_layer layer = config_layer(c, l);
        if (layer.is_linear)
            return 0;
        if (ring && layer.window)
            steps = ring - layer.window;
    }
    return steps;
}

bool stage_has_state(const struct stage_spec *spec)
{
    const struct config *c = &spec->config;
    bool has = config_has_state(c, spec->first_layer, spec->end_layer);
    for (size_t l = spec->first_layer; l < spec->end_layer; l++)
        has = has || (spec->ring_blocks && config_layer(c, l).window);
    return has;
}

_Static_assert((int)STAGE_GUESSES <= (int)PAGED_RING,
               "what is taken back has not pushed out what is seen then");

size_t stage_ring_blocks(const struct config *c)
{
    return c->window ? (c->window - 1 + PAGED_RING + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK : 0;
}
