/* SPDX-License-Identifier: MIT
 *
 * ringctl merge: an adapter put into its model, here and now, by a ringd-stage that is started for
 * it: files are read and written as the user who asks, and no daemon is needed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/ctl/ctl.h"

const struct opt_def ctl_merge_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "model, as a Hugging Face directory or a GGUF file",
     .required = true},
    {.name = "adapter", .type = OPT_PATH, .placeholder = "DIR", .help = "adapter to merge", .required = true},
    {.name = "out",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "write the merged model to this directory, which must be new or empty",
     .required = true},
    {.name = "dtype",
     .type = OPT_CHOICE,
     .placeholder = "f32|f16|bf16",
     .help = "store all weights in this type (default: each weight keeps its type, and FP8 becomes bf16)"},
    {.name = NULL},
};

int ctl_merge_main(struct ctl *ctl)
{
    const char *dtype = opts_str(ctl->opts, "dtype");
    int rc = ctl_no_args(ctl);
    if (rc)
        return rc;
    char *stage = conf_default_stage();
    char *argv[] = {stage,
                    (char *)"merge",
                    (char *)opts_str(ctl->opts, "model"),
                    (char *)opts_str(ctl->opts, "adapter"),
                    (char *)opts_str(ctl->opts, "out"),
                    (char *)(dtype ? dtype : "stored"),
                    (char *)(ctl->json ? "json" : "text"),
                    NULL};
    execv(stage, argv);
    rc = ctl_fail(CTL_FAILED, "%s, which merges, cannot be run: %s", stage, strerror(errno));
    free(stage);
    return rc;
}
