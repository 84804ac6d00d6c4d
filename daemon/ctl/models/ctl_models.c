/* SPDX-License-Identifier: MIT
 *
 * ringctl pull and ringctl models: models by their names, as the daemon of this node has them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/model/model_name.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/models/model_find.h"
#include "daemon/ctl/models/model_push.h"
#include "daemon/ctl/models/model_watch.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "engine/err.h"

const struct opt_def ctl_models_options[] = {
    {.name = "name",
     .type = OPT_STRING,
     .placeholder = "ORG/NAME",
     .help =
         "name for the model or adapter in the directory that `add` or `push` gets; jobs may use it, and "
         "other nodes take what they need of it from here (push: default local/ and the directory's name)"},
    {.name = NULL},
};

/* --- progress --------------------------------------------------------------------------------- */

static bool has_ended(const json_t *row)
{
    const char *state = field_text(row, "state", "");
    return strcmp(state, "waiting") != 0 && strcmp(state, "pulling") != 0 &&
           strcmp(state, "verifying") != 0 && strcmp(state, "adding") != 0;
}

static struct model_amounts amounts_of(const json_t *row)
{
    return (struct model_amounts){.done = field_number(row, "done"),
                                  .total = field_number(row, "total"),
                                  .rate = field_number(row, "rate")};
}

/* ^C ends the pull as well: it would take the line for hours, and can go on another time. */
static int stop(const struct ctl *ctl, const json_t *row)
{
    json_t *reply = NULL;
    json_t *body = json_pack("{s:s s:s}", "do", "stop", "model", field_text(row, "asked", ""));
    const int rc = ctl_request(ctl, "POST", "/v1/store", body, &reply);
    json_decref(body);
    json_decref(reply);
    if (rc)
        return rc;
    fprintf(stderr, "stopped; what has come stays, and the same command goes on from there\n");
    return CTL_INTERRUPTED;
}

static int say_end(const struct ctl *ctl, const json_t *row)
{
    const char *state = field_text(row, "state", "");
    const bool is_well = !strcmp(state, "ready") || !strcmp(state, "verified");
    if (ctl->json)
        print_json(row);
    else if (is_well)
        printf("%s is %s\n", field_text(row, "model", "?"),
               !strcmp(state, "ready") ? "here" : "as it was downloaded");
    if (!is_well)
        return ctl_fail(CTL_FAILED, "%s: %s", field_text(row, "model", "?"),
                        field_text(row, "error", "somebody else has stopped it"));
    return CTL_OK;
}

/* folder: of "add"; else NULL. ret: how it ended; the caller owns it. */
static int follow(const struct ctl *ctl, const char *what, const char *model, const char *folder,
                  json_t **ret)
{
    json_t *row = NULL, *body = json_pack("{s:s s:s s:s*}", "do", what, "model", model, "folder", folder);
    struct model_watch w = {.ctl = ctl, .event = "pull", .has_ended = has_ended, .amounts = amounts_of};
    int rc = ctl_request(ctl, "POST", "/v1/store", body, &row);
    json_decref(body);
    if (rc)
        return rc;
    rc = model_watch_run(&w, row);
    if (rc == CTL_INTERRUPTED)
        rc = stop(ctl, w.last);
    if (rc)
        json_decref(w.last);
    else
        *ret = w.last;
    return rc;
}

static int pull(const struct ctl *ctl, const char *what, const char *model, const char *folder)
{
    json_t *row = NULL;
    int rc = follow(ctl, what, model, folder, &row);
    if (!rc)
        rc = say_end(ctl, row);
    json_decref(row);
    return rc;
}

int ctl_pull_main(struct ctl *ctl)
{
    struct model_name name;
    struct err err;
    if (ctl->n_args != 1)
        return ctl_usage(ctl, "pull takes the name of a model: ORG/NAME, or ORG/NAME@REVISION");
    if (model_name_read(&name, ctl->args[0], &err))
        return ctl_usage(ctl, "%s", err.text);
    return pull(ctl, "pull", ctl->args[0], NULL);
}

/* --- what is here ----------------------------------------------------------------------------- */

/* What of it is here: all, or "1.2 of 3.4 GB". */
static void describe_size(const json_t *m, char *to, size_t size)
{
    const double here = field_number(m, "here"), all = field_number(m, "bytes");
    const struct err_amounts a = err_amounts((size_t)field_number(m, "on_disk"), 0),
                             part = err_amounts((size_t)all, (size_t)here);
    if (json_object_get(m, "in_place"))
        snprintf(to, size, "in place");
    else if (json_is_true(json_object_get(m, "whole")) || all <= 0)
        snprintf(to, size, "%s", a.need);
    else
        snprintf(to, size, "%s of %s", part.have, part.need);
}

/* "n2, n3 41 %"; "-": nobody else has any of it. */
static void describe_holders(const json_t *m, char *to, size_t size)
{
    size_t used = 0, i;
    const json_t *h;
    snprintf(to, size, "-");
    json_array_foreach (json_object_get(m, "holders"), i, h) {
        const double all = field_number(h, "bytes"), here = field_number(h, "here");
        char part[40] = "";
        if (json_is_false(json_object_get(h, "same")))
            snprintf(part, sizeof part, " (other files)");
        else if (!json_is_true(json_object_get(h, "whole")))
            snprintf(part, sizeof part, " %.0f %%", all > 0 ? 100 * here / all : 0);
        if (used < size)
            used += (size_t)snprintf(to + used, size - used, "%s%s%s", used ? ", " : "",
                                     field_text(h, "node", "?"), part);
    }
}

/* Who could not say what it has. */
static void print_unheard(const json_t *answer)
{
    const json_t *u;
    size_t i;
    json_array_foreach (json_object_get(answer, "unheard"), i, u)
        printf("node %s %s: what it has is not known\n", field_text(u, "node", "?"),
               field_text(u, "why", "?"));
}

/* What is not here yet may be either. */
static const char *kind_of(const json_t *m)
{
    return json_is_true(json_object_get(m, "adapter")) ? "adapter"
           : json_is_true(json_object_get(m, "named")) ? "model"
                                                       : "-";
}

static void print_models(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "models"), *m;
    struct table *t = table_new("MODEL\tCOMMIT\tSIZE\tKIND\tSTATE\tALSO ON");
    size_t i;
    json_array_foreach (list, i, m) {
        const char *model = field_text(m, "model", "?"), *at = strchr(model, '@');
        char held[80], others[600];
        describe_size(m, held, sizeof held);
        describe_holders(m, others, sizeof others);
        const json_t *pull = json_object_get(m, "pull");
        const char *last = field_text(pull, "state", "ready");
        const char *state = json_is_true(json_object_get(m, "pinned"))  ? "pinned"
                            : json_is_true(json_object_get(m, "whole")) ? "ready"
                            : has_ended(pull) && strcmp(last, "failed") ? "in part"
                                                                        : last;
        table_add(t, "%.*s\t%.10s\t%s\t%s\t%s\t%s", at ? (int)(at - model) : (int)strlen(model), model,
                  at ? at + 1 : "-", held, kind_of(m), state, others);
    }
    if (json_array_size(list)) {
        table_print_free(t, stdout);
        print_unheard(answer);
        return;
    }
    table_free(t);
    puts("no model has been pulled: ringctl pull ORG/NAME brings one");
}

/* "41 %, 1.2 of 3.4 GB" of each that has any of it. */
static void print_holders(const json_t *m)
{
    const json_t *h;
    size_t i;
    json_array_foreach (json_object_get(m, "holders"), i, h) {
        const double all = field_number(h, "bytes"), here = field_number(h, "here");
        const struct err_amounts a = err_amounts((size_t)all, (size_t)here);
        const char *node = field_text(h, "node", "?");
        if (json_is_false(json_object_get(h, "same")))
            printf("%-9s node %s: other files under this name\n", i ? "" : "also on", node);
        else if (json_is_true(json_object_get(h, "whole")))
            printf("%-9s node %s: all of it\n", i ? "" : "also on", node);
        else
            printf("%-9s node %s: %s of %s, %.0f %%\n", i ? "" : "also on", node, a.have, a.need,
                   all > 0 ? 100 * here / all : 0);
    }
    if (!i)
        printf("%-9s no other node\n", "also on");
}

static void print_jobs(const json_t *m)
{
    const json_t *job;
    size_t i;
    json_array_foreach (json_object_get(m, "jobs"), i, job)
        printf("%s%s", i ? ", " : "in use by job ", json_string_value(job));
    if (i)
        putchar('\n');
}

static void print_file(const json_t *file, bool is_first)
{
    printf("%-9s %s, %.0f bytes, %s\n", is_first ? "files" : "", field_text(file, "name", "?"),
           field_number(file, "size"), field_text(file, "sha256", field_text(file, "git", "-")));
}

static void print_model(const json_t *m)
{
    static const char *const keys[] = {"model", "source", "in_place", "content", "state", NULL};
    const struct err_amounts a =
        err_amounts((size_t)field_number(m, "on_disk"), (size_t)field_number(m, "bytes"));
    const char *commit = strchr(field_text(m, "model", ""), '@');
    const json_t *file;
    char held[80];
    size_t i;
    for (i = 0; keys[i]; i++)
        if (json_is_string(json_object_get(m, keys[i])))
            printf("%-9s %s\n", keys[i], field_text(m, keys[i], ""));
    describe_size(m, held, sizeof held);
    printf("%-9s %s\n", "kind", kind_of(m));
    printf("%-9s %s\n", "commit", commit ? commit + 1 : "not known yet");
    if (field_number(m, "bytes") > 0)
        printf("%-9s %s\n", "size", a.have);
    printf("%-9s %s\n", "on disk", a.need);
    printf("%-9s %s\n", "whole", json_is_true(json_object_get(m, "whole")) ? "yes" : "no");
    if (!json_is_true(json_object_get(m, "whole")))
        printf("%-9s %s\n", "here", held);
    printf("%-9s %s\n", "pinned", json_is_true(json_object_get(m, "pinned")) ? "yes" : "no");
    print_holders(m);
    print_jobs(m);
    json_array_foreach (json_object_get(m, "files"), i, file)
        print_file(file, !i);
}

static void print_done(const json_t *answer)
{
    const char *done = field_text(answer, "done", "");
    printf("%s is %s\n", field_text(answer, "model", "?"),
           !strcmp(done, "remove") ? "removed"
           : !strcmp(done, "pin")  ? "pinned: it stays, whatever else is pulled"
                                   : "no longer pinned");
}

static void show(const struct ctl *ctl, const json_t *answer, const json_t *m)
{
    json_t *all = json_copy((json_t *)m);
    json_object_set(all, "unheard", json_object_get(answer, "unheard"));
    if (ctl->json) {
        print_json(all);
    } else {
        print_model(m);
        print_unheard(answer);
    }
    json_decref(all);
}

static int do_with(const struct ctl *ctl, const char *word, const char *given)
{
    json_t *answer = NULL;
    int rc = ctl_request(ctl, "GET", "/v1/store", NULL, &answer);
    const json_t *m = rc ? NULL : models_find(answer, given);
    const char *model = field_text(m, "model", "");
    if (!rc && !m)
        rc = CTL_FAILED;
    else if (!rc && !strcmp(word, "show"))
        show(ctl, answer, m);
    else if (!rc && !strcmp(word, "verify"))
        rc = pull(ctl, "verify", model, NULL);
    else if (!rc)
        rc = ctl_request_print(ctl, "POST", "/v1/store", json_pack("{s:s s:s}", "do", word, "model", model),
                               print_done);
    json_decref(answer);
    return rc;
}

static int add(const struct ctl *ctl)
{
    const char *name = opts_str(ctl->opts, "name");
    struct model_name read;
    struct err err;
    if (!name)
        return ctl_usage(ctl, "models add needs --name ORG/NAME");
    if (model_name_read(&read, name, &err))
        return ctl_usage(ctl, "--name: %s", err.text);
    char *folder = ctl_absolute_path(ctl->args[1]);
    const int rc = pull(ctl, "add", name, folder);
    free(folder);
    return rc;
}

/* A folder gets a name first, by which other nodes know it. */
static int push(const struct ctl *ctl)
{
    json_t *row = NULL;
    char name[MODEL_NAME];
    if (!model_push_is_folder(ctl->args[1]))
        return model_push(ctl, ctl->args[1]);
    int rc = model_push_name(ctl, ctl->args[1], name);
    if (rc)
        return rc;
    char *folder = ctl_absolute_path(ctl->args[1]);
    rc = follow(ctl, "add", name, folder, &row);
    free(folder);
    const bool is_here = !rc && !strcmp(field_text(row, "state", ""), "ready");
    if (!rc)
        rc = is_here ? model_push(ctl, field_text(row, "model", "")) : say_end(ctl, row);
    json_decref(row);
    return rc;
}

int ctl_models_main(struct ctl *ctl)
{
    static const char *const words[] = {"show", "remove", "pin", "unpin", "verify"};
    const char *word = ctl->n_args ? ctl->args[0] : "";
    if (strcmp(word, "add") != 0 && strcmp(word, "push") != 0 && opts_str(ctl->opts, "name"))
        return ctl_usage(ctl, "--name goes with models add and models push");
    if (!strcmp(word, "list") && ctl->n_args == 1)
        return ctl_request_print(ctl, "GET", "/v1/store", NULL, print_models);
    if (!strcmp(word, "add") && ctl->n_args == 2)
        return add(ctl);
    if (!strcmp(word, "push") && ctl->n_args > 2)
        return push(ctl);
    for (size_t i = 0; i < sizeof words / sizeof *words && ctl->n_args == 2; i++)
        if (!strcmp(word, words[i]))
            return do_with(ctl, word, ctl->args[1]);
    return ctl_usage(
        ctl,
        "models takes list; show, remove, pin, unpin or verify with a MODEL; add with a directory; or push "
        "with a MODEL or a directory, and nodes");
}
