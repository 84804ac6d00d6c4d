/* SPDX-License-Identifier: MIT
 *
 * Owns what configs say of linear layers: the heads of their delta rule, and which layers have it.
 * Called by config_family.c while one config is parsed; pure, any thread. */
#include "file/config_impl.h"

#include <string.h>

#include "file/input.h"

enum {
    MOST_HEADS = 1 << 10,
    MOST_WIDTH = 256, /* of a head: what a chunk of the rule needs fits a thread's scratch */
    MOST_TAPS = 8,
};

static void add_kind(struct config_reader *r, struct config *c, size_t layer, const char *kind)
{
    if (kind && !strcmp(kind, "linear_attention"))
        config_add_layer(&c->linear, layer);
    else if (!kind || strcmp(kind, "full_attention") != 0)
        config_complain(r, "layer_types: \"%s\" is not supported (full_attention and linear_attention are)",
                        kind ? input_quote(kind).text : "");
}

/* As layer_types says; where it is absent, one layer of each few is not linear. */
static void read_layers(struct config_reader *r, struct config *c)
{
    const json_t *list = config_lookup(r->root, "layer_types");
    const size_t every = config_size(r, r->root, "full_attention_interval", 4, CONFIG_MAX_LAYERS);
    if (list && json_array_size(list) != c->layers) {
        config_complain(r, "layer_types must name the kind of each of the %zu layers", c->layers);
        return;
    }
    for (size_t l = 0; every && l < c->layers; l++)
        if (list)
            add_kind(r, c, l, json_string_value(json_array_get(list, l)));
        else if ((l + 1) % every != 0)
            config_add_layer(&c->linear, l);
}

void config_read_delta(struct config_reader *r, struct config *c)
{
    struct config_delta *d = &c->delta;
    d->key_heads = config_size(r, r->root, "linear_num_key_heads", 16, MOST_HEADS);
    d->value_heads = config_size(r, r->root, "linear_num_value_heads", 32, MOST_HEADS);
    d->key = config_size(r, r->root, "linear_key_head_dim", 128, MOST_WIDTH);
    d->value = config_size(r, r->root, "linear_value_head_dim", 128, MOST_WIDTH);
    d->taps = config_size(r, r->root, "linear_conv_kernel_dim", 4, MOST_TAPS);
    if (d->key_heads && d->value_heads % d->key_heads != 0)
        config_complain(r, "linear_num_value_heads %zu is not a multiple of linear_num_key_heads %zu",
                        d->value_heads, d->key_heads);
    if (d->taps == 1)
        config_complain(r, "linear_conv_kernel_dim is 1, allowed are 2 to %d", MOST_TAPS);
    read_layers(r, c);
}
