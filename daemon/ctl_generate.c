/* SPDX-License-Identifier: MIT
 *
 * ringctl generate and ringctl score: their options, and from them short jobs, whose answer ctl_follow.c prints. */

#include "daemon/ctl.h"
#include "daemon/ctl_data.h"
#include "daemon/ctl_follow.h"
#include "daemon/ctl_spec.h"
#include "daemon/spec_limits.h"

const struct opt_def ctl_generate_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "the model, a Hugging Face directory",
     .required = true},
    {.name = "adapter", .type = OPT_PATH, .placeholder = "DIR", .help = "an adapter to put on it"},
    {.name = "max-tokens",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "64",
     .min = 1,
     .max = SPEC_TOKENS_MAX,
     .help = "new tokens at most"},
    {.name = "temperature",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "0",
     .min = 0,
     .max = SPEC_TEMPERATURE_MAX,
     .help = "0 for the likeliest token each time"},
    {.name = "top-p",
     .type = OPT_FLOAT,
     .placeholder = "P",
     .def = "1",
     .min = SPEC_TOP_P_MIN,
     .max = 1,
     .help = "choose among the likeliest tokens that make up this share"},
    {.name = "seed",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = SPEC_SEED_MAX,
     .help = "of the choice"},
    {.name = "stop", .type = OPT_LIST, .placeholder = "TEXT", .help = "end where this text appears"},
    {.name = "ids",
     .type = OPT_STRING,
     .placeholder = "1,2,3",
     .help = "the prompt as token ids, instead of PROMPT"},
    {.name = "chat",
     .type = OPT_FLAG,
     .help = "put PROMPT, as a user's message, through the model's chat template"},
    {.name = "system",
     .type = OPT_STRING,
     .placeholder = "S",
     .help = "with --chat, what the model is told before the message"},
    {.name = "template-arg",
     .type = OPT_LIST,
     .placeholder = "NAME=VALUE",
     .help = "with --chat, a variable of the template, as enable_thinking=false"},
    {.name = "dry-run",
     .type = OPT_FLAG,
     .help = "only plan: who would hold which layers, and whether they fit; nothing is started or written"},
    {.name = NULL},
};

const struct opt_def ctl_score_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "the model, a Hugging Face directory",
     .required = true},
    {.name = "adapter", .type = OPT_PATH, .placeholder = "DIR", .help = "an adapter to put on it"},
    {.name = "text", .type = OPT_STRING, .placeholder = "S", .help = "the text"},
    {.name = "ids", .type = OPT_STRING, .placeholder = "1,2,3", .help = "or its token ids"},
    {.name = "data",
     .type = OPT_PATH,
     .placeholder = "FILE|DIR",
     .help = "or a data set as for training; of a directory its test.jsonl"},
    CTL_DATA_OPTIONS("2048"),
    {.name = NULL},
};

static int set_ids(const struct ctl *ctl, json_t *spec)
{
    const char *text = opts_str(ctl->opts, "ids");
    json_t *ids = text ? ctl_spec_ids(text) : NULL;
    if (text && !ids)
        return ctl_usage(ctl, "--ids \"%s\": token ids separated by commas are needed, as 1,2,3", text);
    if (ids)
        json_object_set_new(spec, "ids", ids);
    return CTL_OK;
}

int ctl_generate_main(struct ctl *ctl)
{
    uint64_t id;
    bool has_ids = opts_is_set(ctl->opts, "ids");
    if (ctl->n_args > 1)
        return ctl_usage(ctl, "\"%s\" comes after the prompt: put the prompt in quotes", ctl->args[1]);
    if (has_ids == (ctl->n_args == 1))
        return ctl_usage(ctl, has_ids ? "PROMPT and --ids are two prompts: give one"
                                      : "a PROMPT or --ids 1,2,3 is missing");
    json_t *spec = ctl_spec_new(ctl);
    int rc = set_ids(ctl, spec);
    rc = rc ? rc : ctl_spec_template_args(ctl, spec);
    if (rc) {
        json_decref(spec);
        return rc;
    }
    if (!has_ids)
        json_object_set_new(spec, "prompt", json_string(ctl->args[0]));
    rc = ctl_spec_submit(ctl, "generate", spec, &id);
    return rc ? rc : ctl_follow_generation(ctl, id, false);
}

int ctl_score_main(struct ctl *ctl)
{
    uint64_t id;
    int n = opts_is_set(ctl->opts, "text") + opts_is_set(ctl->opts, "ids") + opts_is_set(ctl->opts, "data");
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": the text goes behind --text", ctl->args[0]);
    if (n != 1)
        return ctl_usage(ctl, "exactly one of --text, --ids and --data is needed");
    json_t *spec = ctl_spec_new(ctl);
    int rc = set_ids(ctl, spec);
    rc = rc ? rc : ctl_spec_template_args(ctl, spec);
    if (rc) {
        json_decref(spec);
        return rc;
    }
    rc = ctl_spec_submit(ctl, "score", spec, &id);
    return rc ? rc : ctl_follow_scoring(ctl, id, false);
}
