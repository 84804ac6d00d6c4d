/* SPDX-License-Identifier: MIT */
#include "daemon/common/model/travel_text.h"

#include <stdio.h>
#include <string.h>

#include "engine/err.h"

static double number_of(const json_t *of, const char *key)
{
    return json_number_value(json_object_get(of, key));
}

static const char *text_of(const json_t *of, const char *key)
{
    const char *text = json_string_value(json_object_get(of, key));
    return text ? text : "?";
}

/* "node a", "node a and node b", "node a and the hub": in the order of the list. */
static void sources_text(char *text, size_t size, const json_t *rank)
{
    const json_t *from = json_object_get(rank, "from"), *one;
    const size_t n = json_array_size(from) + (number_of(rank, "hub") > 0);
    size_t used = 0, i;
    *text = '\0';
    json_array_foreach (from, i, one)
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%snode %s",
                                     !i           ? ""
                                     : i + 1 == n ? " and "
                                                  : ", ",
                                     text_of(one, "node"));
    if (n > json_array_size(from) && used < size)
        snprintf(text + used, size - used, "%sthe hub", used ? " and " : "");
}

bool travel_rank_text(char *text, size_t size, const json_t *travel, size_t rank)
{
    const json_t *r = json_array_get(json_object_get(travel, "ranks"), rank);
    const struct err_amounts a = err_amounts((size_t)number_of(r, "share"), (size_t)number_of(r, "lacks"));
    char from[600];
    sources_text(from, sizeof from, r);
    if (r && !json_object_get(r, "lacks"))
        snprintf(text, size, "what node %s lacks of %s is not known: it %s", text_of(r, "node"), a.need,
                 text_of(r, "why"));
    else
        snprintf(text, size, "node %s lacks %s of %s: from %s", text_of(r, "node"), a.have, a.need, from);
    return r && (!json_object_get(r, "lacks") || number_of(r, "lacks") > 0);
}

static void time_text(char *text, size_t size, double seconds)
{
    if (seconds < 9.95)
        snprintf(text, size, "%.2g s", seconds);
    else if (seconds < 120)
        snprintf(text, size, "%.0f s", seconds);
    else if (seconds < 7200)
        snprintf(text, size, "%.0f min", seconds / 60);
    else
        snprintf(text, size, "%.1f h", seconds / 3600);
}

bool travel_total_text(char *text, size_t size, const json_t *travel)
{
    const double bytes = number_of(travel, "bytes"), hub = number_of(travel, "hub"),
                 mbps = number_of(travel, "mbps");
    const struct err_amounts a = err_amounts((size_t)bytes, (size_t)hub);
    char of_hub[80] = "", time[40], way[120] = ", at a rate that is not known";
    time_text(time, sizeof time, number_of(travel, "seconds"));
    if (hub > 0 && hub >= bytes)
        snprintf(of_hub, sizeof of_hub, ", all of it from the hub");
    else if (hub > 0)
        snprintf(of_hub, sizeof of_hub, ", %s of it from the hub", a.have);
    if (hub >= bytes)
        *way = '\0';
    else if (json_object_get(travel, "seconds"))
        snprintf(way, sizeof way, "%s %s at %.3g %s", *of_hub ? ", and the rest takes" : ":", time,
                 mbps < 1000 ? mbps : mbps / 1000, mbps < 1000 ? "Mb/s" : "Gb/s");
    snprintf(text, size, "%s must travel%s%s", a.need, of_hub, way);
    return bytes > 0;
}

bool travel_spared_text(char *text, size_t size, const json_t *travel)
{
    const double bytes = number_of(travel, "spared");
    snprintf(text, size, "of splits that are within 2 %% of the fastest, this one spares %s of travel",
             err_amounts((size_t)bytes, 0).need);
    return bytes > 0;
}
