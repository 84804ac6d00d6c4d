/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_nodes.h"

#include <stdio.h>
#include <string.h>

struct rating {
    double speed, memory;
    size_t relayed; /* hops over nodes that are not in it */
};

static double number(const json_t *nodes, size_t place, const char *key)
{
    return json_number_value(json_object_get(json_array_get(nodes, place), key));
}

double stage_nodes_speed(const json_t *nodes, size_t place)
{
    const double threads = number(nodes, place, "speed");
    return (threads > 0 ? threads : 1) / stage_nodes_slowness(nodes, place);
}

double stage_nodes_slowness(const json_t *nodes, size_t place)
{
    const double slowness = number(nodes, place, "slowness");
    return slowness > 0 ? slowness : 1;
}

static struct rating rate(const json_t *nodes, uint32_t mask)
{
    struct rating r = {0};
    const size_t n = json_array_size(nodes);
    for (size_t i = 0; i < n; i++) {
        if (!(mask >> i & 1))
            continue;
        r.speed += stage_nodes_speed(nodes, i);
        r.memory += number(nodes, i, "memory");
        r.relayed += !(mask >> ((i + 1) % n) & 1);
    }
    return r;
}

static bool is_better(const struct rating *a, const struct rating *b)
{
    if (a->speed > b->speed || a->speed < b->speed)
        return a->speed > b->speed;
    return a->relayed != b->relayed ? a->relayed < b->relayed : a->memory > b->memory;
}

static bool is_named(const json_t *wanted, const json_t *node)
{
    const char *is = json_string_value(json_object_get(node, "name"));
    bool found = !wanted;
    for (size_t i = 0; i < json_array_size(wanted) && !found; i++) {
        const char *name = json_string_value(json_array_get(wanted, i));
        found = name && is && !strcmp(name, is);
    }
    return found;
}

size_t stage_nodes_choose(uint32_t *ret, size_t most, const json_t *nodes, size_t ranks, const json_t *wanted,
                          uint32_t apart)
{
    enum { MOST_NODES = 16 };
    const size_t n = json_array_size(nodes);
    uint32_t allowed = 0;
    size_t found = 0;
    for (size_t i = 0; i < n && i < MOST_NODES; i++)
        allowed |= (uint32_t)is_named(wanted, json_array_get(nodes, i)) << i;
    allowed &= ~apart;
    for (uint32_t mask = 1; n <= MOST_NODES && mask < 1u << n; mask += 2) { /* all with the head */
        if ((mask & ~allowed) || (size_t)__builtin_popcount(mask) != ranks)
            continue;
        const struct rating rating = rate(nodes, mask);
        size_t at = found;
        for (; at > 0; at--) {
            const struct rating before = rate(nodes, ret[at - 1]);
            if (!is_better(&rating, &before))
                break;
            if (at < most)
                ret[at] = ret[at - 1];
        }
        if (at < most)
            ret[at] = mask;
        found += found < most;
    }
    return found;
}

json_t *stage_nodes_take(const json_t *nodes, uint32_t mask)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(nodes); i++)
        if (mask >> i & 1)
            json_array_append(list, json_array_get(nodes, i));
    return list;
}

void stage_nodes_text(char *text, size_t size, const json_t *nodes, uint32_t mask)
{
    size_t used = 0;
    *text = 0;
    for (size_t i = 0; i < json_array_size(nodes) && used < size; i++) {
        const char *name = json_string_value(json_object_get(json_array_get(nodes, i), "name"));
        if (mask >> i & 1)
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     !used             ? ""
                                     : mask >> i == 1u ? " and "
                                                       : ", ",
                                     name ? name : "?");
    }
}

/* --- what they compute with ------------------------------------------------------------------- */

static const char *kernels_of(const json_t *nodes, size_t place)
{
    const char *kernels = json_string_value(json_object_get(json_array_get(nodes, place), "kernels"));
    return kernels ? kernels : "";
}

void stage_nodes_without_bf16(json_t *nodes)
{
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const char *kernels = kernels_of(nodes, i);
        const size_t n = strcspn(kernels, "/");
        if (kernels[n])
            json_object_set_new(json_array_get(nodes, i), "kernels", json_stringn(kernels, n));
    }
}

static bool is_fused(const char *kernels)
{
    static const char *const fused[] = {"avx2", "avx512", "avx512/amx", "neon"};
    bool is = false;
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++)
        is = is || !strcmp(kernels, fused[i]);
    return is;
}

/* tests/unit/engine/num/test_adamw_bits.c holds the tables to it. */
static bool updates_alike(const char *a, const char *b)
{
    return is_fused(a) && is_fused(b);
}

uint32_t stage_nodes_apart(const json_t *nodes, bool updates)
{
    uint32_t apart = 0;
    const char *first = kernels_of(nodes, 0);
    for (size_t i = 1; i < json_array_size(nodes) && i < 32; i++) {
        const char *its = kernels_of(nodes, i);
        const bool is_other = *first && *its && strcmp(its, first) != 0;
        apart |= (uint32_t)(is_other && !(updates && updates_alike(its, first))) << i;
    }
    return apart;
}

void stage_nodes_kernels_text(char *text, size_t size, const json_t *nodes)
{
    const size_t n = json_array_size(nodes);
    size_t used = 0;
    uint32_t done = 0;
    *text = 0;
    for (size_t i = 0; i < n && i < 32 && used < size; i++) {
        const char *kernels = kernels_of(nodes, i);
        char names[512];
        uint32_t same = 0;
        for (size_t k = i; k < n && k < 32; k++)
            same |= (uint32_t)!strcmp(kernels_of(nodes, k), kernels) << k;
        if (!*kernels || done >> i & 1)
            continue;
        done |= same;
        stage_nodes_text(names, sizeof names, nodes, same);
        used += (size_t)snprintf(text + used, size - used, "%s%s with %s", used ? ", " : "", names, kernels);
    }
}

void stage_nodes_kernels(char *text, size_t size, const json_t *nodes)
{
    const size_t n = json_array_size(nodes);
    const char *last = "";
    size_t used = 0;
    *text = 0;
    while (used < size) {
        const char *next = NULL;
        for (size_t i = 0; i < n; i++) {
            const char *its = kernels_of(nodes, i);
            if (strcmp(its, last) > 0 && (!next || strcmp(its, next) < 0))
                next = its;
        }
        if (!next)
            return;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "+" : "", next);
        last = next;
    }
}
