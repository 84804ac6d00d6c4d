/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/eval/eval_show.h"

#include <stdio.h>

#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"

void eval_show(const json_t *result)
{
    static const struct {
        const char *name, *error;
    } figures[] = {
        {"acc", "acc_stderr"},   {"acc_norm", "acc_norm_stderr"}, {"exact_match", "exact_match_stderr"},
        {"word_perplexity", ""}, {"byte_perplexity", ""},         {"bits_per_byte", ""}};
    struct table *t = table_new("METRIC\tVALUE\tSTDERR");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const json_t *value = json_object_get(result, figures[i].name);
        if (json_is_number(value))
            table_add(t, "%s\t%s\t%s", figures[i].name, print_number(value, "-").text,
                      print_number(json_object_get(result, figures[i].error), "-").text);
    }
    printf("task %s, %.0f rows\n", field_text(result, "task", "?"), field_number(result, "rows"));
    table_print_free(t, stdout);
}
