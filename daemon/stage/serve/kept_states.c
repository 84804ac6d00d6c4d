/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/kept_states.h"

#include <stdbool.h>
#include <stdlib.h>

struct kept_state {
    uint64_t hash, needed; /* needed: when it last was, counted in needs */
    uint32_t holders;
    bool is_used;
};

struct kept_states {
    struct kept_state *at; /* owned [n] */
    size_t n;
    uint64_t now;
};

struct kept_states *kept_states_new(size_t n)
{
    struct kept_states *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->n = n;
    k->at = calloc(n + 1, sizeof *k->at);
    if (k->at)
        return k;
    free(k);
    return NULL;
}

void kept_states_free(struct kept_states *k)
{
    if (!k)
        return;
    free(k->at);
    free(k);
}

uint32_t kept_states_find(struct kept_states *k, uint64_t hash)
{
    for (size_t i = 0; i < k->n; i++)
        if (k->at[i].is_used && k->at[i].hash == hash) {
            k->at[i].needed = ++k->now;
            return (uint32_t)i + 1;
        }
    return 0;
}

void kept_states_hold(struct kept_states *k, uint32_t number)
{
    k->at[number - 1].holders++;
}

void kept_states_release(struct kept_states *k, uint32_t number)
{
    k->at[number - 1].holders--;
}

/* Unused ones were never needed, so they come first. */
static struct kept_state *oldest(struct kept_states *k)
{
    struct kept_state *found = NULL;
    for (size_t i = 0; i < k->n; i++)
        if (!k->at[i].holders && (!found || k->at[i].needed < found->needed))
            found = &k->at[i];
    return found;
}

uint32_t kept_states_take(struct kept_states *k, uint64_t hash, uint64_t before)
{
    if (kept_states_find(k, hash))
        return 0;
    const uint32_t own = before ? kept_states_find(k, before) : 0;
    struct kept_state *it = own && !k->at[own - 1].holders ? &k->at[own - 1] : oldest(k);
    if (!it)
        return 0;
    *it = (struct kept_state){.hash = hash, .needed = ++k->now, .is_used = true};
    return (uint32_t)(it - k->at) + 1;
}
