/* SPDX-License-Identifier: MIT
 *
 * ringctl pull and ringctl models: models by their names, as the daemon of this node has them. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/common/model/model_name.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/ctl/terminal/ctl_term.h"
#include "engine/err.h"

enum { BAR = 24 };

const struct opt_def ctl_models_options[] = {
    {.name = "name",
     .type = OPT_STRING,
     .placeholder = "ORG/NAME",
     .help =
         "name for the model in the directory that `add` gets; jobs may use it, and other nodes take what "
         "they need of it from here"},
    {.name = NULL},
};

/* One pull, or one verification, that is followed. */
struct ctl_pull {
    const struct ctl *ctl;
    json_int_t number;
    json_t *last; /* owned: its last row */
    bool is_terminal, is_drawn, is_stopped;
    int signal_fd;
};

/* --- progress --------------------------------------------------------------------------------- */

static bool has_ended(const json_t *row)
{
    const char *state = field_text(row, "state", "");
    return strcmp(state, "waiting") != 0 && strcmp(state, "pulling") != 0 &&
           strcmp(state, "verifying") != 0 && strcmp(state, "adding") != 0;
}

static void draw(struct ctl_pull *p, const json_t *row)
{
    const double done = field_number(row, "done"), total = field_number(row, "total"),
                 rate = field_number(row, "rate"), left = field_number(row, "seconds_left");
    const int full = total > 0 ? (int)(BAR * done / total) : 0;
    const struct err_amounts a = err_amounts((size_t)total, (size_t)done);
    char bar[BAR + 1];
    if (!p->is_terminal || total <= 0)
        return;
    for (int i = 0; i < BAR; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR] = '\0';
    fprintf(stderr, "\r[%s] %3.0f %%  %s of %s", bar, 100 * done / total, a.have, a.need);
    if (rate > 0)
        fprintf(stderr, "  %.1f MB/s  %d:%02d left", rate / 1e6, (int)left / 60, (int)left % 60);
    fputs("\033[K", stderr);
    p->is_drawn = true;
}

/* Takes over the reference. */
static bool take_row(struct ctl_pull *p, json_t *row)
{
    json_decref(p->last);
    p->last = row;
    draw(p, row);
    return !has_ended(row);
}

static bool on_event(void *owner, const char *type, const json_t *data)
{
    struct ctl_pull *p = owner;
    if (strcmp(type, "pull") != 0 || json_integer_value(json_object_get(data, "number")) != p->number)
        return true;
    return take_row(p, json_deep_copy(data));
}

/* ^C ends the pull as well: it would take the line for hours, and can go on another time. */
static bool on_signal(void *owner, int index)
{
    struct ctl_pull *p = owner;
    struct signalfd_siginfo info;
    (void)index;
    if (read(p->signal_fd, &info, sizeof info) == sizeof info)
        p->is_stopped = true;
    return !p->is_stopped;
}

static int stop(const struct ctl_pull *p)
{
    json_t *reply = NULL;
    json_t *body = json_pack("{s:s s:s}", "do", "stop", "model", field_text(p->last, "asked", ""));
    const int rc = ctl_request(p->ctl, "POST", "/v1/store", body, &reply);
    json_decref(body);
    json_decref(reply);
    if (rc)
        return rc;
    fprintf(stderr, "stopped; what has come stays, and the same command goes on from there\n");
    return CTL_INTERRUPTED;
}

static int follow(struct ctl_pull *p)
{
    struct ctl quiet = *p->ctl;
    sigset_t set;
    quiet.json = false;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct ctl_stream stream = {
        .event = on_event, .readable = on_signal, .owner = p, .fds = &p->signal_fd, .n_fds = 1};
    int rc = ctl_follow(&quiet, "/v1/events", &stream, false);
    close(p->signal_fd);
    if (p->is_drawn)
        fputc('\n', stderr);
    return rc ? rc : p->is_stopped ? stop(p) : CTL_OK;
}

static int say_end(const struct ctl_pull *p)
{
    const char *state = field_text(p->last, "state", "");
    const bool is_well = !strcmp(state, "ready") || !strcmp(state, "verified");
    if (p->ctl->json)
        print_json(p->last);
    else if (is_well)
        printf("%s is %s\n", field_text(p->last, "model", "?"),
               !strcmp(state, "ready") ? "here" : "as it was downloaded");
    if (!is_well)
        return ctl_fail(CTL_FAILED, "%s: %s", field_text(p->last, "model", "?"),
                        field_text(p->last, "error", "somebody else has stopped it"));
    return CTL_OK;
}

/* folder: of "add"; else NULL. */
static int pull(const struct ctl *ctl, const char *what, const char *model, const char *folder)
{
    struct ctl_pull p = {.ctl = ctl, .is_terminal = !ctl->json && isatty(STDERR_FILENO)};
    json_t *row = NULL, *body = json_pack("{s:s s:s s:s*}", "do", what, "model", model, "folder", folder);
    int rc = ctl_request(ctl, "POST", "/v1/store", body, &row);
    json_decref(body);
    if (rc)
        return rc;
    p.number = json_integer_value(json_object_get(row, "number"));
    if (take_row(&p, row))
        rc = follow(&p);
    if (!rc)
        rc = say_end(&p);
    json_decref(p.last);
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

static void print_models(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "models"), *m;
    struct table *t = table_new("MODEL\tCOMMIT\tSIZE\tSTATE\tALSO ON");
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
        table_add(t, "%.*s\t%.10s\t%s\t%s\t%s", at ? (int)(at - model) : (int)strlen(model), model,
                  at ? at + 1 : "-", held, state, others);
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

/* ORG/NAME and ORG/NAME@bcd stand for the one commit that is here, if there is one. NULL: it has
 * been said why. Borrowed from the list. */
static const json_t *find(const json_t *answer, const char *given)
{
    const json_t *list = json_object_get(answer, "models"), *m, *found = NULL;
    const size_t n = strlen(given);
    size_t i, fits = 0;
    json_array_foreach (list, i, m) {
        const char *model = field_text(m, "model", "");
        if (strncmp(model, given, n) != 0 || (!strchr(given, '@') && model[n] != '@'))
            continue;
        found = m;
        fits++;
    }
    if (!fits)
        ctl_fail(CTL_FAILED, "%s is not on this node: ringctl models list shows what is", given);
    else if (fits > 1)
        ctl_fail(CTL_FAILED, "%s is on this node %zu times: name one with its commit, as ORG/NAME@COMMIT",
                 given, fits);
    return fits == 1 ? found : NULL;
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
    const json_t *m = rc ? NULL : find(answer, given);
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

int ctl_models_main(struct ctl *ctl)
{
    static const char *const words[] = {"show", "remove", "pin", "unpin", "verify"};
    const char *word = ctl->n_args ? ctl->args[0] : "";
    if (strcmp(word, "add") != 0 && opts_str(ctl->opts, "name"))
        return ctl_usage(ctl, "--name goes with models add");
    if (!strcmp(word, "list") && ctl->n_args == 1)
        return ctl_request_print(ctl, "GET", "/v1/store", NULL, print_models);
    if (!strcmp(word, "add") && ctl->n_args == 2)
        return add(ctl);
    for (size_t i = 0; i < sizeof words / sizeof *words && ctl->n_args == 2; i++)
        if (!strcmp(word, words[i]))
            return do_with(ctl, word, ctl->args[1]);
    return ctl_usage(
        ctl, "models takes list; show, remove, pin, unpin or verify with a MODEL; or add with a directory");
}
