/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/ctl_plan_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_forecast.h"
#include "daemon/ctl/terminal/ctl_print.h"

static bool recomputes(const json_t *plan)
{
    size_t s;
    json_t *n;
    json_array_foreach (json_object_get(plan, "activations"), s, n)
        if (json_integer_value(n))
            return true;
    return false;
}

/* Layers of each stage. */
static json_t *split_of(const json_t *first, size_t stages)
{
    json_t *split = json_array();
    for (size_t s = 0; s < stages; s++)
        json_array_append_new(split, json_integer(json_integer_value(json_array_get(first, s + 1)) -
                                                  json_integer_value(json_array_get(first, s))));
    return split;
}

/* Of unlike replicas the layers of each rank, of a replica from its first stage on. A rank's bounds
 * in the plan are those of its stages, one after the other. */
static json_t *split_of_each(const json_t *plan)
{
    const json_t *bounds = json_object_get(plan, "split");
    json_t *split = json_array();
    size_t rank = 0;
    for (size_t d = 0; rank < json_array_size(bounds); d++) {
        const size_t begin = rank;
        for (size_t n = forecast_places(plan, d); n > 0; n--, rank++) {
            const json_t *of = json_array_get(bounds, rank);
            const json_int_t layers = json_integer_value(json_array_get(of, json_array_size(of) - 1)) -
                                      json_integer_value(json_array_get(of, 0));
            json_array_insert_new(split, d % 2 ? begin : rank, json_integer(layers));
        }
    }
    return split;
}

int plan_file_write(const char *path, const json_t *plan)
{
    const json_t *first = json_object_get(plan, "first"), *forecast = json_object_get(plan, "forecast");
    const size_t stages = json_array_size(first) - 1, ranks = json_array_size(json_object_get(plan, "nodes"));
    if (!json_is_object(forecast) || !ranks)
        return ctl_fail(CTL_FAILED,
                        "%s was not written: only a plan of training with a built-in schedule can be kept",
                        path);
    char parallel[40];
    forecast_parallel(parallel, sizeof parallel, plan);
    const bool is_unlike = json_array_size(json_object_get(plan, "other_places")) > 0;
    const size_t chunks = is_unlike ? 1 : stages / forecast_places(plan, 0);
    json_t *o = json_pack("{s:O s:I s:s s:O s:s s:O s:o}", "schedule", json_object_get(plan, "schedule"),
                          "chunks", (json_int_t)chunks, "parallel", parallel, "micro_batch_size",
                          json_object_get(forecast, "micro_batch_size"), "recompute",
                          json_is_true(json_object_get(plan, "by_layer")) ? "layer"
                          : recomputes(plan)                              ? "auto"
                                                                          : "none",
                          "nodes", json_object_get(plan, "nodes"), "split",
                          is_unlike ? split_of_each(plan) : split_of(first, stages));
    if (json_is_true(json_object_get(plan, "divided")))
        json_object_set_new(o, "zero", json_integer(1));
    errno = 0;
    int failed = json_dump_file(o, path, JSON_INDENT(1)), saved = errno;
    json_decref(o);
    return failed ? ctl_fail(CTL_FAILED, "%s cannot be written: %s", path,
                             saved ? strerror(saved) : "it is no plan")
                  : CTL_OK;
}

int plan_file_read(const char *path, json_t *spec)
{
    static const char *const kept[][2] = {
        {"schedule", "schedule"},   {"chunks", "chunks"}, {"micro_batch_size", "micro_batch_size"},
        {"recompute", "recompute"}, {"split", "split"},   {"nodes", "split_nodes"},
        {"parallel", "parallel"}};
    json_error_t e;
    json_t *o = json_load_file(path, 0, &e);
    if (!json_is_object(o)) {
        json_decref(o);
        return ctl_fail(CTL_USAGE, "--plan %s: %s; `ringctl plan train ... --out` writes such files", path,
                        o ? "this is no plan" : e.text);
    }
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        json_t *v = json_object_get(o, kept[i][0]);
        if (!v) {
            json_decref(o);
            return ctl_fail(CTL_USAGE,
                            "--plan %s has no \"%s\": `ringctl plan train ... --out` writes such files", path,
                            kept[i][0]);
        }
        json_object_set(spec, kept[i][1], v);
    }
    if (json_object_get(o, "zero"))
        json_object_set(spec, "zero", json_object_get(o, "zero"));
    json_decref(o);
    return CTL_OK;
}
