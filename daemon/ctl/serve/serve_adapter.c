/* SPDX-License-Identifier: MIT
 *
 * Adapters come and go while their model is served: the daemon plans the job again, and its event
 * says what came of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/job_spec.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_loan.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/ctl/ctl_watch.h"
#include "daemon/ctl/serve/serve_words.h"
#include "daemon/ctl/models/model_wait.h"
#include "daemon/ctl/terminal/ctl_print.h"

struct change_view {
    json_int_t number;
    json_t *event, *end; /* owned: what came of it, or of the job */
};

/* False: nothing more is waited for. */
static bool on_event(void *owner, const char *type, const json_t *data)
{
    struct change_view *v = owner;
    if (!strcmp(type, "adapters") && json_integer_value(json_object_get(data, "change")) >= v->number)
        v->event = json_deep_copy(data);
    if (!strcmp(type, "end"))
        v->end = json_deep_copy(data);
    return !v->event && !v->end;
}

/* It waits for nodes, perhaps, as the job does. */
static int follow(const struct ctl *ctl, const char *job, const json_t *reply)
{
    char path[CTL_JOB_PATH];
    struct change_view view = {.number = json_integer_value(json_object_get(reply, "change"))};
    struct ctl_stream stream = {.event = on_event, .owner = &view};
    snprintf(path, sizeof path, "/v1/jobs/%s/events", job);
    int rc = ctl_follow(ctl, path, &stream, false);
    const char *error = json_string_value(json_object_get(view.event, "error"));
    if (!rc && view.end)
        rc = ctl_watch_verdict(view.end);
    else if (!rc && !view.event)
        rc = ctl_fail(CTL_NO_DAEMON,
                      "the connection to job %s was lost: ringctl serve list shows what it serves", job);
    else if (!rc && error)
        rc = ctl_fail(CTL_FAILED, "job %s goes on as it was: %s", job, error);
    if (!rc && ctl->json)
        print_json(view.event);
    json_decref(view.event);
    json_decref(view.end);
    return rc;
}

static int change(const struct ctl *ctl, const char *method, const char *job, const char *suffix,
                  const json_t *body)
{
    enum { ANSWER_S = 60 };
    char path[CTL_JOB_PATH];
    struct model_wait wait = {.last = ""};
    json_t *reply = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%s/adapters%s", job, suffix);
    int rc = ctl_request_within(ctl, method, path, body, ANSWER_S, &reply);
    while (!rc && model_wait_goes_on(&wait, reply, &rc)) {
        json_decref(reply);
        reply = NULL;
        rc = ctl_request_within(ctl, method, path, body, ANSWER_S, &reply);
    }
    if (!rc)
        rc = follow(ctl, job, reply);
    json_decref(reply);
    return rc;
}

/* What the head's own ringd cannot read is handed to it; another node has files of its own. */
static int add(const struct ctl *ctl, const char *job, const char *text)
{
    struct ctl_loan loan = {.ticket = ""};
    json_t *named = json_object(), *spec = json_pack("{s:O}", "adapters", named);
    int rc = ctl_spec_named_path(ctl, "adapter", true, text, named);
    const char *name = json_object_iter_key(json_object_iter(named));
    if (!rc && !strchr(job, '@'))
        ctl_loan_hand_in(&loan, ctl, spec);
    json_t *body = rc ? NULL
                      : json_pack("{s:s s:O s:s*}", "name", name, "path", json_object_get(named, name),
                                  "loan", *loan.ticket ? loan.ticket : NULL);
    if (!rc)
        rc = change(ctl, "POST", job, "", body);
    if (!rc && !ctl->json)
        printf("job %s serves %s\n", job, name);
    json_decref(body);
    json_decref(spec);
    json_decref(named);
    return rc;
}

static int remove_one(const struct ctl *ctl, const char *job, const char *name)
{
    char suffix[CTL_JOB_PATH / 2];
    if (!job_adapter_is_name(name))
        return ctl_usage(ctl, "\"%s\" is no name of an adapter", name);
    snprintf(suffix, sizeof suffix, "/%s", name);
    const int rc = change(ctl, "DELETE", job, suffix, NULL);
    if (!rc && !ctl->json)
        printf("job %s serves %s no more\n", job, name);
    return rc;
}

int serve_adapter_main(const struct ctl *ctl)
{
    const char *word = ctl->n_args > 1 ? ctl->args[1] : "";
    const bool adds = !strcmp(word, "add");
    char *job;
    if ((!adds && strcmp(word, "remove") != 0) || ctl->n_args != 4)
        return ctl_usage(ctl, "adapter takes three words: ringctl serve adapter add NAME ADAPTER=DIR, or "
                              "ringctl serve adapter remove NAME ADAPTER");
    int rc = serve_job_of(ctl, ctl->args[2], &job);
    if (rc)
        return rc;
    rc = adds ? add(ctl, job, ctl->args[3]) : remove_one(ctl, job, ctl->args[3]);
    free(job);
    return rc;
}
