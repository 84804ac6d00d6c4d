/* SPDX-License-Identifier: MIT */
#include "daemon/ctl_plan.h"

#include <stdio.h>

#include "daemon/ctl_print.h"
#include "daemon/ctl_table.h"

static struct amount bytes_told(const json_t *value)
{
    return value ? print_bytes(json_number_value(value)) : (struct amount){"-"};
}

void ctl_print_plan(const json_t *job)
{
    const json_t *plan = json_object_get(job, "plan"), *memory = json_object_get(job, "memory");
    struct table *t = table_new("  RANK\tNODE\tLAYERS\tPLANNED\tOF\tMEASURED\tPEAK\tSLOTS");
    const json_t *split = json_object_get(plan, "split");
    for (size_t r = 0; r < json_array_size(split); r++) {
        const char *name = json_string_value(json_array_get(json_object_get(plan, "nodes"), r));
        double from = json_number_value(json_array_get(json_array_get(split, r), 0));
        double to = json_number_value(json_array_get(json_array_get(split, r), 1));
        const json_t *measured = json_array_get(memory, r);
        char layers[48] = "none";
        if (to > from)
            snprintf(layers, sizeof layers, "%.0f-%.0f", from, to - 1);
        table_add(t, "  %zu\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f", r, name ? name : "?", layers,
                  print_bytes(json_number_value(json_array_get(json_object_get(plan, "bytes"), r))).text,
                  bytes_told(json_array_get(json_object_get(plan, "available"), r)).text,
                  bytes_told(json_object_get(measured, "rss")).text,
                  bytes_told(json_object_get(measured, "peak")).text,
                  json_number_value(json_array_get(json_object_get(plan, "slots"), r)));
    }
    if (table_rows(t) && !*field_text(plan, "schedule", ""))
        printf("plan, at most %.0f tokens at once\n", field_number(plan, "tokens"));
    else if (table_rows(t))
        printf("plan, schedule %s, %.0f microbatches, at most %.0f tokens each\n",
               field_text(plan, "schedule", "-"), field_number(plan, "microbatches"),
               field_number(plan, "tokens"));
    table_print_free(t, stdout);
}
