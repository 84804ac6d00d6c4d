/* SPDX-License-Identifier: MIT
 *
 * ringctl data check: a data set as training would read it, here and now, by a ringd-stage that is
 * started for it; no daemon is needed. */
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
    json_t *spec = NULL;
    int rc = ctl_spec_read(ctl, &spec);
    if (rc)
        return rc;
    json_object_set_new(spec, "rows", json_integer(opts_int(ctl->opts, "rows")));
    char *text = json_dumps(spec, JSON_COMPACT);
    json_decref(spec);
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
