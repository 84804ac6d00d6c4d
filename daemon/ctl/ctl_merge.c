/* SPDX-License-Identifier: MIT
 *
 * ringctl merge and convert: a model written in another form, here and now, by a ringd-stage that
 * is started for it: files are read and written as the user who asks. A daemon is needed only to
 * say where a model lies that is named as ORG/NAME. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/models/model_find.h"

const struct opt_def ctl_merge_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "model: a Hugging Face directory, a GGUF file, or ORG/NAME of this node",
     .required = true},
    {.name = "adapter",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "adapter to merge: a directory, or ORG/NAME of this node",
     .required = true},
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

const struct opt_def ctl_convert_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "model: a directory of Hugging Face or mlx-lm, a GGUF file, or ORG/NAME of this node",
     .required = true},
    {.name = "out",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "write the model to this directory, which must be new or empty",
     .required = true},
    {.name = "dtype",
     .type = OPT_CHOICE,
     .placeholder = "f32|f16|bf16",
     .help = "store all weights in this type (default: each weight keeps its type, FP8 becomes bf16, and "
             "quantized weights take the type that config.json names)"},
    {.name = "quantize",
     .short_name = 'q',
     .type = OPT_FLAG,
     .help = "quantize the matrices, as mlx-lm does"},
    {.name = "q-bits",
     .type = OPT_CHOICE,
     .placeholder = "2|3|4|5|6|8",
     .def = "4",
     .help = "with --quantize: bits of a weight; products with 4 and 8 bits are the fastest"},
    {.name = "q-group-size",
     .type = OPT_CHOICE,
     .placeholder = "32|64|128",
     .def = "64",
     .help = "with --quantize: weights that share a scale and a bias"},
    {.name = "max-shard-size",
     .type = OPT_STRING,
     .placeholder = "SIZE",
     .def = "5G",
     .help = "begin another file of weights when one would grow larger than this, such as 5G or 900M"},
    {.name = NULL},
};

static int become_stage(char **argv)
{
    argv[0] = conf_default_stage();
    execv(argv[0], argv);
    const int rc =
        ctl_fail(CTL_FAILED, "%s, which writes models, cannot be run: %s", argv[0], strerror(errno));
    free(argv[0]);
    return rc;
}

int ctl_merge_main(struct ctl *ctl)
{
    const char *dtype = opts_str(ctl->opts, "dtype");
    char *model = NULL, *adapter = NULL;
    int rc = ctl_no_args(ctl);
    if (!rc)
        rc = model_find_folder(ctl, opts_str(ctl->opts, "model"), &model);
    if (!rc)
        rc = model_find_folder(ctl, opts_str(ctl->opts, "adapter"), &adapter);
    if (rc) {
        free(model);
        return rc;
    }
    char *argv[] = {NULL,
                    (char *)"merge",
                    model,
                    adapter,
                    (char *)opts_str(ctl->opts, "out"),
                    (char *)(dtype ? dtype : "stored"),
                    (char *)(ctl->json ? "json" : "text"),
                    NULL};
    return become_stage(argv);
}

static int check_quantize(const struct ctl *ctl)
{
    static const char *const of_quantize[] = {"q-bits", "q-group-size"};
    const bool quantizes = opts_flag(ctl->opts, "quantize");
    for (size_t i = 0; i < sizeof of_quantize / sizeof *of_quantize; i++)
        if (opts_is_set(ctl->opts, of_quantize[i]) && !quantizes)
            return ctl_usage(ctl, "--%s goes with --quantize", of_quantize[i]);
    return quantizes && opts_is_set(ctl->opts, "dtype")
               ? ctl_usage(ctl,
                           "--dtype does not go with --quantize: matrices become words of some bits, and "
                           "all else keeps its type")
               : CTL_OK;
}

int ctl_convert_main(struct ctl *ctl)
{
    const char *dtype = opts_str(ctl->opts, "dtype");
    char shard[24], *model = NULL;
    struct err err;
    int rc = ctl_no_args(ctl);
    if (!rc)
        rc = check_quantize(ctl);
    if (rc)
        return rc;
    const uint64_t bytes = conf_size(ctl->opts, "max-shard-size", &err);
    if (bytes == UINT64_MAX)
        return ctl_usage(ctl, "%s", err.text);
    rc = model_find_folder(ctl, opts_str(ctl->opts, "model"), &model);
    if (rc)
        return rc;
    snprintf(shard, sizeof shard, "%llu", (unsigned long long)(bytes ? bytes : 1));
    char *argv[] = {NULL,
                    (char *)"convert",
                    model,
                    (char *)opts_str(ctl->opts, "out"),
                    (char *)(dtype ? dtype : "stored"),
                    (char *)(opts_flag(ctl->opts, "quantize") ? opts_str(ctl->opts, "q-bits") : "0"),
                    (char *)opts_str(ctl->opts, "q-group-size"),
                    shard,
                    (char *)(ctl->json ? "json" : "text"),
                    NULL};
    return become_stage(argv);
}
