/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/models/model_push.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/models/model_find.h"
#include "daemon/ctl/models/model_watch.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "engine/err.h"

static const char org[] = "local/";

/* --- folders ---------------------------------------------------------------------------------- */

bool model_push_is_folder(const char *given)
{
    return !ctl_model_is_name(given);
}

/* What no name may have becomes a dash. */
static void make_name(char ret[MODEL_NAME], const char *folder)
{
    static const char others[] = "-_.";
    const char *slash = strrchr(folder, '/');
    const size_t start = sizeof org - 1;
    size_t n = start;
    memcpy(ret, org, start);
    for (const char *c = slash ? slash + 1 : folder; *c && n < start + MODEL_PART; c++) {
        const bool is_letter =
            (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (is_letter || n > start)
            ret[n++] = is_letter || strchr(others, *c) ? *c : '-';
    }
    ret[n] = '\0';
}

int model_push_name(const struct ctl *ctl, const char *folder, char ret[MODEL_NAME])
{
    const char *given = opts_str(ctl->opts, "name");
    struct model_name read;
    struct err err;
    if (given) {
        snprintf(ret, MODEL_NAME, "%s", given);
        return model_name_read(&read, given, &err) ? ctl_usage(ctl, "--name: %s", err.text) : CTL_OK;
    }
    char *path = ctl_absolute_path(folder);
    make_name(ret, path);
    free(path);
    return model_name_read(&read, ret, &err)
               ? ctl_usage(ctl, "%s has no name that can be used: give one with --name ORG/NAME", folder)
               : CTL_OK;
}

/* --- how far it is ---------------------------------------------------------------------------- */

static bool has_ended(const json_t *row)
{
    return strcmp(field_text(row, "state", ""), "pushing") != 0;
}

/* Of all nodes together. */
static struct model_amounts amounts_of(const json_t *row)
{
    struct model_amounts sum = {0};
    size_t i;
    json_t *node;
    json_array_foreach (json_object_get(row, "nodes"), i, node) {
        sum.done += field_number(node, "done");
        sum.total += field_number(node, "total");
        sum.rate += field_number(node, "rate");
    }
    return sum;
}

/* True: the model is not there. */
static bool say_node(const json_t *node)
{
    const char *name = field_text(node, "node", "?"), *state = field_text(node, "state", ""),
               *why = field_text(node, "error", "");
    const double bytes = field_number(node, "total");
    if (!strcmp(state, "left-out"))
        fprintf(stderr, "node %s was left out: %s\n", name, why);
    else if (strcmp(state, "ready") != 0)
        ctl_fail(CTL_FAILED, "node %s: %s", name, why);
    else if (bytes > 0)
        printf("node %s: %s, %s in %s\n", name, field_text(node, "place", "?"), print_bytes(bytes).text,
               print_duration(field_number(node, "seconds")).text);
    else
        printf("node %s: %s, had it already\n", name, field_text(node, "place", "?"));
    return strcmp(state, "ready") != 0 && strcmp(state, "left-out") != 0;
}

static int say_end(const struct ctl *ctl, const json_t *row)
{
    bool has_failed = false;
    size_t i;
    json_t *node;
    if (ctl->json) {
        print_json(row);
        return strcmp(field_text(row, "state", ""), "done") ? CTL_FAILED : CTL_OK;
    }
    printf("%s\n", field_text(row, "model", "?"));
    fflush(stdout);
    json_array_foreach (json_object_get(row, "nodes"), i, node)
        has_failed |= say_node(node);
    return has_failed ? CTL_FAILED : CTL_OK;
}

/* --- a push ----------------------------------------------------------------------------------- */

/* "all" alone: an empty list. */
static json_t *nodes_of(const struct ctl *ctl)
{
    json_t *nodes = json_array();
    for (int i = 2; i < ctl->n_args; i++)
        if (ctl->n_args > 3 || strcmp(ctl->args[i], "all") != 0)
            json_array_append_new(nodes, json_string(ctl->args[i]));
    return nodes;
}

int model_push(const struct ctl *ctl, const char *given)
{
    struct model_watch w = {.ctl = ctl, .event = "push", .has_ended = has_ended, .amounts = amounts_of};
    char model[MODEL_NAME];
    json_t *row = NULL;
    int rc = model_find_whole(ctl, given, model, NULL);
    if (rc)
        return rc;
    json_t *body = json_pack("{s:s s:s s:o}", "do", "push", "model", model, "nodes", nodes_of(ctl));
    rc = ctl_request(ctl, "POST", "/v1/store", body, &row);
    json_decref(body);
    if (rc)
        return rc;
    rc = model_watch_run(&w, row);
    if (rc == CTL_INTERRUPTED)
        fprintf(stderr, "the nodes go on without this command; once more it says how far they are\n");
    else if (!rc)
        rc = say_end(ctl, w.last);
    json_decref(w.last);
    return rc;
}
