/* SPDX-License-Identifier: MIT
 *
 * ringctl generate and ringctl score: short jobs whose answer is printed here. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl.h"
#include "daemon/ctl_print.h"
#include "daemon/ctl_table.h"
#include "daemon/ctl_spec.h"
#include "daemon/ctl_watch.h"

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
     .max = 1e7,
     .help = "new tokens at most"},
    {.name = "temperature",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "0",
     .min = 0,
     .max = 100,
     .help = "0 for the likeliest token each time"},
    {.name = "top-p",
     .type = OPT_FLOAT,
     .placeholder = "P",
     .def = "1",
     .min = 1e-9,
     .max = 1,
     .help = "choose among the likeliest tokens that make up this share"},
    {.name = "seed", .type = OPT_INT, .placeholder = "N", .def = "0", .help = "of the choice"},
    {.name = "stop", .type = OPT_LIST, .placeholder = "TEXT", .help = "end where this text appears"},
    {.name = "ids",
     .type = OPT_STRING,
     .placeholder = "1,2,3",
     .help = "the prompt as token ids, instead of PROMPT"},
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
    {.name = "data", .type = OPT_PATH, .placeholder = "FILE", .help = "or a data set as for training"},
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

/* What has been printed of the answer; compared with the whole at the end. */
struct stream_view {
    bool silent; /* --json */
    char printed[1 << 16];
    size_t n_printed;
    bool is_broken; /* events were lost, or it is more than fits: the end prints the whole */
};

static void on_generate_event(void *owner, const char *type, const json_t *data)
{
    struct stream_view *v = owner;
    const char *text = field_text(data, "text", "");
    size_t n = strlen(text);
    if (!strcmp(type, "log")) {
        fprintf(stderr, "%s\n", text);
    } else if (!strcmp(type, "resync")) {
        v->is_broken = true;
    } else if (!strcmp(type, "token") && !v->silent && !v->is_broken) {
        fputs(text, stdout);
        fflush(stdout);
        if (n > sizeof v->printed - v->n_printed) {
            v->is_broken = true;
            return;
        }
        memcpy(v->printed + v->n_printed, text, n);
        v->n_printed += n;
    }
}

/* The rest of the answer, or all of it where the stream had a gap. */
static void print_rest(const struct stream_view *v, const json_t *result)
{
    const char *text = field_text(result, "text", "");
    if (!v->is_broken && strlen(text) >= v->n_printed && !memcmp(text, v->printed, v->n_printed))
        puts(text + v->n_printed);
    else
        printf("\n%s\n", text);
}

/* Runs the job to its end; CTL_OK: ret_end is a job that is done. */
static int run_job(const struct ctl *ctl, const char *type, json_t *spec, const struct watch *watch,
                   json_t **ret_end)
{
    uint64_t id;
    json_t *end = NULL;
    int rc = ctl_spec_submit(ctl, type, spec, &id);
    if (!rc)
        rc = ctl_watch(ctl, id, watch, &end);
    if (!rc)
        rc = ctl_watch_verdict(end);
    if (rc)
        json_decref(end);
    else
        *ret_end = end;
    return rc;
}

static json_t *pick(const json_t *result, const char *const *keys)
{
    json_t *out = json_object();
    for (; *keys; keys++) {
        json_t *value = json_object_get(result, *keys);
        if (value)
            json_object_set(out, *keys, value);
    }
    return out;
}

static void print_picked(const json_t *result, const char *const *keys)
{
    json_t *out = pick(result, keys);
    print_json(out);
    json_decref(out);
}

int ctl_generate_main(struct ctl *ctl)
{
    static const char *const keys[] = {"prompt_ids", "ids", "text", NULL};
    bool has_ids = opts_is_set(ctl->opts, "ids");
    if (ctl->n_args > 1)
        return ctl_usage(ctl, "\"%s\" comes after the prompt: put the prompt in quotes", ctl->args[1]);
    if (has_ids == (ctl->n_args == 1))
        return ctl_usage(ctl, has_ids ? "PROMPT and --ids are two prompts: give one"
                                      : "a PROMPT or --ids 1,2,3 is missing");
    json_t *spec = ctl_spec_new(ctl), *end = NULL;
    int rc = set_ids(ctl, spec);
    if (rc) {
        json_decref(spec);
        return rc;
    }
    if (!has_ids)
        json_object_set_new(spec, "prompt", json_string(ctl->args[0]));
    struct stream_view view = {.silent = ctl->json};
    struct watch watch = {.event = on_generate_event, .owner = &view};
    rc = run_job(ctl, "generate", spec, &watch, &end);
    if (rc) {
        if (view.n_printed)
            putchar('\n');
        return rc;
    }
    if (ctl->json)
        print_picked(json_object_get(end, "result"), keys);
    else
        print_rest(&view, json_object_get(end, "result"));
    json_decref(end);
    return CTL_OK;
}

static void on_score_event(void *owner, const char *type, const json_t *data)
{
    (void)owner;
    if (!strcmp(type, "log"))
        fprintf(stderr, "%s\n", field_text(data, "text", ""));
}

static void print_score(const json_t *result)
{
    const json_t *tokens = json_object_get(result, "tokens");
    size_t i;
    json_t *token;
    if (json_array_size(tokens)) {
        struct table *t = table_new("TOKEN\tLOGPROB");
        json_array_foreach(tokens, i, token)
            table_add(t, "%.0f\t%s", field_number(token, "id"),
                      print_number(json_object_get(token, "logprob"), "-").text);
        table_print_free(t, stdout);
    }
    printf("total %s, perplexity %s\n", print_number(json_object_get(result, "total"), "-").text,
           print_number(json_object_get(result, "perplexity"), "-").text);
}

int ctl_score_main(struct ctl *ctl)
{
    int n = opts_is_set(ctl->opts, "text") + opts_is_set(ctl->opts, "ids") + opts_is_set(ctl->opts, "data");
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": the text goes behind --text", ctl->args[0]);
    if (n != 1)
        return ctl_usage(ctl, "exactly one of --text, --ids and --data is needed");
    json_t *spec = ctl_spec_new(ctl), *end = NULL;
    int rc = set_ids(ctl, spec);
    if (rc) {
        json_decref(spec);
        return rc;
    }
    struct watch watch = {.event = on_score_event};
    rc = run_job(ctl, "score", spec, &watch, &end);
    if (rc)
        return rc;
    if (ctl->json)
        print_json(json_object_get(end, "result"));
    else
        print_score(json_object_get(end, "result"));
    json_decref(end);
    return CTL_OK;
}
