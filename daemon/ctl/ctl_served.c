/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/ctl_served.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/common/json_list.h"
#include "daemon/common/xalloc.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"

/* What a request can say as well as a job: the spec's key, the API's, and the option. */
static const struct request_key {
    const char *spec, *api, *option;
    enum { KEY_WHOLE, KEY_REAL, KEY_GIVEN } type; /* given: only where it was */
} keys[] = {
    {"max_tokens", "max_tokens", "max-tokens", KEY_WHOLE},
    {"temperature", "temperature", "temperature", KEY_REAL},
    {"top_p", "top_p", "top-p", KEY_REAL},
    {"top_k", "top_k", "top-k", KEY_WHOLE},
    {"min_p", "min_p", "min-p", KEY_REAL},
    {"repetition_penalty", "repetition_penalty", "repetition-penalty", KEY_REAL},
    {"presence_penalty", "presence_penalty", "presence-penalty", KEY_REAL},
    {"frequency_penalty", "frequency_penalty", "frequency-penalty", KEY_REAL},
    {"repeat_last_n", "repeat_last_n", "repeat-last-n", KEY_WHOLE},
    {"seed", "seed", "seed", KEY_WHOLE},
    {"logit_bias", "logit_bias", NULL, KEY_GIVEN},
    {"stop", "stop", NULL, KEY_GIVEN},
    {"template_args", "chat_template_kwargs", NULL, KEY_GIVEN},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* --- which ------------------------------------------------------------------------------------ */

static bool was_given(const struct ctl *ctl, const char *key)
{
    char option[64];
    snprintf(option, sizeof option, "%s", key);
    for (char *c = option; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return opts_is_set(ctl->opts, option);
}

/* Anything else that somebody asks for is for jobs: how the model is opened, what becomes of a
 * loss. */
static bool is_askable(const struct ctl *ctl, const json_t *spec)
{
    static const char *const others[] = {"model",    "prompt", "ids",          "chat", "system",
                                         "messages", "text",   "top_logprobs", NULL};
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)spec, key, value) {
        bool is_known = false;
        for (size_t i = 0; i < KEYS; i++)
            is_known = is_known || !strcmp(key, keys[i].spec);
        for (size_t i = 0; others[i]; i++)
            is_known = is_known || !strcmp(key, others[i]);
        if (!is_known && was_given(ctl, key))
            return false;
    }
    return true;
}

/* Is that job's model served as its files are? Its spec is the word for it. */
static int is_plain(const struct ctl *ctl, const char *job, bool *ret)
{
    static const char *const changes[] = {"weights", "compute", "kv", NULL};
    char path[CTL_JOB_PATH];
    json_t *answer;
    snprintf(path, sizeof path, "/v1/jobs/%s", job);
    const int rc = ctl_request(ctl, "GET", path, NULL, &answer);
    if (rc)
        return rc;
    *ret = true;
    for (size_t i = 0; changes[i]; i++)
        *ret = *ret && !json_object_get(json_object_get(answer, "spec"), changes[i]);
    json_decref(answer);
    return CTL_OK;
}

int ctl_served_find(const struct ctl *ctl, const json_t *spec, char **ret_name)
{
    const char *given = opts_str(ctl->opts, "model"),
               *path = json_string_value(json_object_get(spec, "model"));
    json_t *answer, *job;
    size_t i;
    *ret_name = NULL;
    if (!is_askable(ctl, spec) || !given || !path)
        return CTL_OK;
    int rc = ctl_request(ctl, "GET", "/v1/jobs", NULL, &answer);
    if (rc)
        return rc;
    json_array_foreach (json_object_get(answer, "jobs"), i, job) {
        const char *serves = field_text(job, "serves", "");
        const bool has_ended = json_is_integer(json_object_get(job, "ended")),
                   is_running = !strcmp(field_text(job, "state", ""), "running");
        const bool is_adapter = json_list_has(json_object_get(job, "serves_with"), given);
        bool fits = *serves && (is_adapter || !strcmp(serves, given));
        if (rc || *ret_name || !*serves || has_ended)
            continue;
        if (!fits && is_running && !strcmp(field_text(job, "model", ""), path))
            rc = is_plain(ctl, field_text(job, "name", ""), &fits);
        if (!rc && fits)
            *ret_name = xstrdup(is_adapter ? given : serves);
    }
    json_decref(answer);
    return rc;
}

/* --- asking ----------------------------------------------------------------------------------- */

static json_t *messages_of(const json_t *spec)
{
    json_t *list = json_object_get(spec, "messages"), *system = json_object_get(spec, "system");
    if (list)
        return json_incref(list);
    list = json_array();
    if (system)
        json_array_append_new(list, json_pack("{s:s s:O}", "role", "system", "content", system));
    json_array_append_new(list,
                          json_pack("{s:s s:O}", "role", "user", "content", json_object_get(spec, "prompt")));
    return list;
}

static bool is_chat(const json_t *spec)
{
    return json_object_get(spec, "messages") || json_is_true(json_object_get(spec, "chat"));
}

/* All of the choice is said: the API has other defaults. But an answer in a conversation may fill
 * the context, unless somebody has limited it: that of a job would refuse what is beyond. */
static json_t *body_of(const struct ctl *ctl, const char *name, const json_t *spec)
{
    json_t *body = json_pack("{s:s s:b}", "model", name, "stream", 1),
           *prompt = json_object_get(spec, json_object_get(spec, "ids") ? "ids" : "prompt");
    for (size_t i = 0; i < KEYS; i++) {
        const struct request_key *k = &keys[i];
        json_t *said = json_object_get(spec, k->spec);
        if (!i && json_object_get(spec, "messages") && !was_given(ctl, k->spec))
            continue;
        if (said)
            json_object_set(body, k->api, said);
        else if (k->type != KEY_GIVEN)
            json_object_set_new(body, k->api,
                                k->type == KEY_WHOLE ? json_integer(opts_int(ctl->opts, k->option))
                                                     : json_real(opts_float(ctl->opts, k->option)));
    }
    if (is_chat(spec))
        json_object_set_new(body, "messages", messages_of(spec));
    else
        json_object_set(body, "prompt", prompt);
    return body;
}

struct hearing {
    struct served_answer *answer;
    char *error;    /* owned: why it ended early */
    uint32_t signo; /* what ended it; 0: nothing did */
};

static bool on_event(void *owner, const char *type, const json_t *data)
{
    struct hearing *h = owner;
    const json_t *choice = json_array_get(json_object_get(data, "choices"), 0),
                 *delta = json_object_get(choice, "delta");
    const char *error = json_string_value(json_object_get(json_object_get(data, "error"), "message"));
    (void)type;
    if (error) {
        h->error = xstrdup(error);
        return false;
    }
    h->answer->aside(h->answer->owner, field_text(delta, "reasoning_content", ""));
    h->answer->text(h->answer->owner, field_text(delta ? delta : choice, delta ? "content" : "text", ""));
    return true;
}

/* A signal ends the answer: the daemon sees that nobody listens. */
static bool on_signal(void *owner, int index)
{
    struct hearing *h = owner;
    struct signalfd_siginfo info;
    (void)index;
    if (read(h->answer->signal_fd, &info, sizeof info) == sizeof info)
        h->signo = info.ssi_signo;
    return !h->signo;
}

int ctl_served_ask(const struct ctl *ctl, const char *name, const json_t *spec, struct served_answer *answer)
{
    json_t *body = body_of(ctl, name, spec);
    struct hearing h = {.answer = answer};
    struct ctl_stream stream = {.body = body,
                                .kept = is_chat(spec) ? "content" : "text",
                                .event = on_event,
                                .readable = on_signal,
                                .owner = &h,
                                .fds = &answer->signal_fd,
                                .n_fds = answer->signal_fd >= 0};
    int rc = ctl_follow(ctl, is_chat(spec) ? "/v1/chat/completions" : "/v1/completions", &stream, false);
    if (!rc && h.error)
        rc = ctl_fail(CTL_FAILED, "%s", h.error);
    if (!rc && h.signo && h.signo != SIGINT)
        rc = CTL_INTERRUPTED;
    free(h.error);
    json_decref(body);
    return rc;
}

/* --- scoring ---------------------------------------------------------------------------------- */

int ctl_served_score(const struct ctl *ctl, const char *name, const json_t *spec, json_t **ret)
{
    enum { WITHIN_S = 3600 }; /* others may be before it */
    json_t *top = json_object_get(spec, "top_logprobs"),
           *body = json_pack("{s:s s:O s:O*}", "model", name, "prompt",
                             json_object_get(spec, json_object_get(spec, "ids") ? "ids" : "text"),
                             "top_logprobs", top);
    const int rc = ctl_request_within(ctl, "POST", "/v1/score", body, WITHIN_S, ret);
    json_decref(body);
    return rc;
}
