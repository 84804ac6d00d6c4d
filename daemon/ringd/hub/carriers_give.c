/* SPDX-License-Identifier: MIT
 *
 * Which nodes get a model from this one. */
#include <string.h>

#include "daemon/ringd/hub/carriers_impl.h"

/* asked: that message. */
static void deny(const struct carriers *all, const uint8_t to[16], const json_t *asked, bool soon,
                 const char *why)
{
    all->setup.send(all->setup.owner, to,
                    json_pack("{s:s s:O s:b s:O* s:s}", "kind", "model-denied", "model",
                              json_object_get(asked, "model"), "soon", (int)soon, "through",
                              json_object_get(asked, "through"), "why", why));
}

/* It may give to this one as well: what a node waits for it promises to nobody, but for a model's
 * outline, and that goes one way only. */
void carriers_take_give(struct carriers *all, const uint8_t from[16], const json_t *body)
{
    const char *model = json_string_value(json_object_get(body, "model")),
               *content = json_string_value(json_object_get(body, "content"));
    const char *here = all->setup.content(all->setup.owner, model);
    struct carrier *c = carrier_find(all, model);
    const bool is_hub = json_is_true(json_object_get(body, "through"));
    struct carry_node *n = c ? carrier_find_node(c, from, false, is_hub) : NULL;
    if (!c && !here)
        deny(all, from, body, true, "it is not here yet");
    else if (strcmp(c ? c->content : here, content) != 0)
        deny(all, from, body, false,
             "its files here are others: `ringctl models verify` says which are right");
    else if (!c && all->n == MODELS)
        deny(all, from, body, true, "it shares as many models as it can");
    else if (!n && !carrier_add_node(c ? c : carrier_new(all, model, content, ""), from, false, is_hub))
        deny(all, from, body, true, "it gives to as many nodes as it can");
    else if (n && !n->up && !n->is_barred) {
        n->since = clock_now();
        carrier_connect(n);
    }
}
