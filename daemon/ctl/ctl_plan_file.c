/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/ctl_plan_file.h"

#include <errno.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
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

int plan_file_write(const char *path, const json_t *plan)
{
    const json_t *first = json_object_get(plan, "first"), *forecast = json_object_get(plan, "forecast");
    const size_t stages = json_array_size(first) - 1, ranks = json_array_size(json_object_get(plan, "nodes"));
    if (!json_is_object(forecast) || !ranks)
        return ctl_fail(CTL_FAILED,
                        "%s was not written: only a plan of training with a built-in schedule can be kept",
                        path);
    json_t *split = json_array();
    for (size_t s = 0; s < stages; s++)
        json_array_append_new(split, json_integer(json_integer_value(json_array_get(first, s + 1)) -
                                                  json_integer_value(json_array_get(first, s))));
    json_t *o = json_pack("{s:O s:I s:O s:s s:O s:o}", "schedule", json_object_get(plan, "schedule"),
                          "chunks", (json_int_t)(stages / ranks), "micro_batch_size",
                          json_object_get(forecast, "micro_batch_size"), "recompute",
                          json_is_true(json_object_get(plan, "by_layer")) ? "layer"
                          : recomputes(plan)                              ? "auto"
                                                                          : "none",
                          "nodes", json_object_get(plan, "nodes"), "split", split);
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
        {"recompute", "recompute"}, {"split", "split"},   {"nodes", "split_nodes"}};
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
    json_decref(o);
    return CTL_OK;
}
