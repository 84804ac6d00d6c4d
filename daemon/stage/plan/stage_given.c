/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. */
#include "daemon/stage/plan/stage_given.h"

#include <errno.h>
#include <string.h>

static const char *wanted_at(const struct head *h, size_t rank)
{
    return json_string_value(json_array_get(h->spec.split_nodes, rank));
}

static const char *name_at(const struct head *h, size_t place)
{
    return json_string_value(json_object_get(json_array_get(h->planning.nodes, place), "name"));
}

static bool is_node(const struct head *h, size_t rank, size_t place)
{
    const char *wanted = wanted_at(h, rank), *is = name_at(h, place);
    return wanted && is && !strcmp(wanted, is);
}

bool given_is_mirrored(const struct head *h)
{
    const size_t n = h->plan.ranks;
    bool other_way = h->spec.split_nodes && n > 2 && is_node(h, 0, 0);
    for (size_t r = 1; r < n && other_way; r++)
        other_way = is_node(h, r, n - r);
    return other_way;
}

int given_check_nodes(const struct head *h, struct err *err)
{
    for (size_t r = 0; h->spec.split_nodes && r < h->plan.ranks; r++) {
        const char *wanted = wanted_at(h, r), *is = name_at(h, r);
        if (!is_node(h, r, r))
            return err_set(err, -EINVAL,
                           "the split is for a ring whose node %zu is %s, but now it is %s: plan again", r,
                           wanted ? wanted : "missing", is ? is : "?");
    }
    return 0;
}

int given_layers(size_t *ret_first, const struct head *h, size_t at, size_t n, struct err *err)
{
    const size_t layers = h->config.layers;
    ret_first[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(h->spec.split, at + i);
        const json_int_t own = json_integer_value(v);
        if (!json_is_integer(v) || own < 0 || (size_t)own > layers - ret_first[i])
            return err_set(err, -EINVAL,
                           "number %zu of the split is no number of layers, or more than are left: the model "
                           "has %zu in all",
                           at + i + 1, layers);
        ret_first[i + 1] = ret_first[i] + (size_t)own;
    }
    return ret_first[n] == layers
               ? 0
               : err_set(err, -EINVAL, "the split covers %zu layers, but the model has %zu", ret_first[n],
                         layers);
}
