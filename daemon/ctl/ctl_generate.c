/* SPDX-License-Identifier: MIT
 *
 * ringctl generate and ringctl score: their options, and from them short jobs, whose answer
 * ctl_follow.c prints. */

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_data.h"
#include "daemon/ctl/ctl_follow.h"
#include "daemon/ctl/ctl_options.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/common/spec_limits.h"

const struct opt_def ctl_generate_options[] = {
    OPTION_MODEL(OPTION_MODEL_HELP),
    OPTION_ADAPTER,
    OPTION_WEIGHTS("compute with the weights"),
    OPTION_COMPUTE,
    OPTION_MAX_TOKENS("64", "generate at most this many tokens"),
    OPTION_TEMPERATURE("0"),
    OPTION_TOP_P("1"),
    OPTION_SEED("seed of the random choice of tokens"),
    {.name = "stop",
     .type = OPT_LIST,
     .placeholder = "TEXT",
     .help = "end the answer where this text appears"},
    OPTION_IDS("prompt as token ids, instead of PROMPT"),
    {.name = "chat",
     .type = OPT_FLAG,
     .help = "render PROMPT with the model's chat template, as a message of the user"},
    OPTION_SYSTEM("with --chat: put these instructions to the model before the message"),
    OPTION_TEMPLATE_ARG("with --chat: set a variable of the template, such as enable_thinking=false"),
    OPTION_FORECAST,
    OPTION_DRY_RUN,
    {.name = NULL},
};

const struct opt_def ctl_score_options[] = {
    OPTION_MODEL(OPTION_MODEL_HELP),
    OPTION_ADAPTER,
    OPTION_WEIGHTS("compute with the weights"),
    OPTION_COMPUTE,
    {.name = "text", .type = OPT_STRING, .placeholder = "S", .help = "text to score"},
    OPTION_IDS("text to score as token ids, instead of --text"),
    {.name = "data",
     .type = OPT_PATH,
     .placeholder = "FILE|DIR",
     .help = "data set to score, as for training, instead of --text; in a directory, its test.jsonl"},
    {.name = "top-logprobs",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = SPEC_TOP_LOGPROBS_MAX,
     .help = "with --text or --ids: also print the N likeliest tokens at each position"},
    CTL_DATA_OPTIONS("2048"),
    OPTION_FORECAST,
    OPTION_DRY_RUN,
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
    char job[CTL_JOB_NAME];
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
    if (ctl_plan_wanted(ctl))
        return ctl_plan_ask(ctl, "generate", spec, NULL);
    rc = ctl_spec_submit(ctl, "generate", spec, job);
    return rc ? rc : ctl_follow_generation(ctl, job, false);
}

int ctl_score_main(struct ctl *ctl)
{
    char job[CTL_JOB_NAME];
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
    if (ctl_plan_wanted(ctl))
        return ctl_plan_ask(ctl, "score", spec, NULL);
    rc = ctl_spec_submit(ctl, "score", spec, job);
    return rc ? rc : ctl_follow_scoring(ctl, job, false);
}
