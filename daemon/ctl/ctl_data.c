/* SPDX-License-Identifier: MIT
 *
 * ringctl data check: a data set as training would read it, here and now, by a ringd-stage that is
 * started for it; no daemon is needed. */
#include "daemon/ctl/ctl_data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/ctl/terminal/ctl_term.h"

const struct opt_def ctl_data_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "model with the tokenizer and chat template, as a Hugging Face directory",
     .required = true},
    {.name = "data",
     .type = OPT_PATH,
     .placeholder = "FILE|DIR",
     .help = "rows to check, as for train; in a directory, ringctl checks train, valid and test",
     .required = true},
    CTL_DATA_OPTIONS("512"),
    CTL_PACKING_OPTION,
    {.name = "rows",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "3",
     .min = 0,
     .max = 1000000,
     .help = "show this many rows; trained tokens stand on green, or in [[ ]] where there are no colours"},
    {.name = NULL},
};

int ctl_data_main(struct ctl *ctl)
{
    if (ctl->n_args != 1 || strcmp(ctl->args[0], "check") != 0)
        return ctl_usage(ctl, "give an action; the only one is: ringctl data check");
    json_t *spec = ctl_spec_new(ctl);
    int rc = ctl_spec_template_args(ctl, spec);
    char *text = rc ? NULL : json_dumps(spec, JSON_COMPACT);
    json_decref(spec);
    if (rc)
        return rc;
    if (!text)
        return ctl_fail(CTL_USAGE, "the options cannot be passed on: a path or a text is not UTF-8");
    char *stage = conf_default_stage();
    char *argv[] = {stage,
                    (char *)"data",
                    text,
                    (char *)(ctl->json ? "json" : "text"),
                    (char *)(term_has_colors(stdout) ? "color" : "plain"),
                    NULL};
    execv(stage, argv);
    rc = ctl_fail(CTL_FAILED, "%s, which reads data sets, cannot be run: %s", stage, strerror(errno));
    free(stage);
    free(text);
    return rc;
}
