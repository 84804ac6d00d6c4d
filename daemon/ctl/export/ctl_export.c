/* SPDX-License-Identifier: MIT
 *
 * ringctl export: the curves of jobs as files, a run for each job and adapter. One thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/common/xalloc.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/export/curves.h"
#include "daemon/ctl/terminal/ctl_print.h"

const struct opt_def ctl_export_options[] = {
    {.name = "out",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .required = true,
     .help = "write the files into this directory, which is made if it is not there"},
    {.name = "format",
     .type = OPT_CHOICE,
     .placeholder = "csv|json|tensorboard",
     .def = "csv",
     .help =
         "form of the files: a table; a JSON object a line; or TensorBoard's event files, for `tensorboard "
         "--logdir DIR`"},
    {.name = NULL},
};

static const struct export_form {
    const char *name, *suffix;
    bool has_folder; /* TensorBoard takes a folder for a run */
    void (*write)(FILE *to, const json_t *rows);
} forms[] = {{"csv", ".csv", false, curves_write_csv},
             {"json", ".jsonl", false, curves_write_lines},
             {"tensorboard", "/events.out.tfevents.ringd", true, curves_write_events}};

static const struct export_form *form_of(const char *name)
{
    size_t i = 0;
    while (strcmp(forms[i].name, name) != 0) /* the option has only these */
        i++;
    return &forms[i];
}

static int make_folder(const char *path)
{
    return !mkdir(path, 0777) || errno == EEXIST
               ? CTL_OK
               : ctl_fail(CTL_FAILED, "%s cannot be made: %s", path, strerror(errno));
}

static int write_file(const struct export_form *form, const char *path, const json_t *rows)
{
    FILE *to = fopen(path, "we");
    if (!to)
        return ctl_fail(CTL_FAILED, "%s cannot be written: %s", path, strerror(errno));
    form->write(to, rows);
    const bool failed = fflush(to) || ferror(to);
    const int cause = errno;
    if (fclose(to) || failed)
        return ctl_fail(CTL_FAILED, "%s cannot be written: %s", path, strerror(failed ? cause : errno));
    return CTL_OK;
}

/* Adds what was written to `files`. */
static int write_run(const struct ctl *ctl, const char *job, const char *adapter, const json_t *rows,
                     json_t *files)
{
    const struct export_form *form = form_of(opts_str(ctl->opts, "format"));
    char *run = xasprintf("%s/job-%s%s%s", opts_str(ctl->opts, "out"), job, *adapter ? "." : "", adapter),
         *path = xasprintf("%s%s", run, form->suffix);
    int rc = make_folder(opts_str(ctl->opts, "out"));
    if (!rc && form->has_folder)
        rc = make_folder(run);
    rc = rc ? rc : write_file(form, path, rows);
    if (!rc)
        json_array_append_new(files, json_pack("{s:s s:s s:I}", "job", job, "file", path, "rows",
                                               (json_int_t)json_array_size(rows)));
    free(run);
    free(path);
    return rc;
}

static int ask(const struct ctl *one, const char *suffix, const char *member, json_t **ret)
{
    const char *name;
    json_t *answer;
    const int rc = ctl_request_job(one, "GET", suffix, &name, &answer);
    if (rc)
        return rc;
    *ret = *member ? json_incref(json_object_get(answer, member)) : json_incref(answer);
    json_decref(answer);
    return CTL_OK;
}

static int export_job(const struct ctl *one, json_t *files)
{
    json_t *job = NULL, *steps = NULL, *evaluations = NULL, *curves = NULL, *rows;
    const char *name = one->args[0], *adapter;
    int rc = ask(one, "", "", &job);
    rc = rc ? rc : ask(one, "/steps", "steps", &steps);
    rc = rc ? rc : ask(one, "/evaluations", "evaluations", &evaluations);
    if (!rc)
        curves = curves_of(steps, evaluations, field_number(job, "started"));
    if (!rc && !json_object_size(curves))
        rc = ctl_fail(CTL_FAILED, "job %s has made no step of a training, so it has no curves", name);
    json_object_foreach (curves, adapter, rows)
        rc = rc ? rc : write_run(one, name, adapter, rows, files);
    json_decref(job);
    json_decref(steps);
    json_decref(evaluations);
    json_decref(curves);
    return rc;
}

int ctl_export_main(struct ctl *ctl)
{
    json_t *files = json_array(), *file;
    size_t i;
    int rc = ctl->n_args ? CTL_OK : ctl_usage(ctl, "a job is missing: `ringctl jobs` lists them");
    for (int k = 0; k < ctl->n_args && !rc; k++) {
        struct ctl one = *ctl;
        one.args += k;
        one.n_args = 1;
        rc = export_job(&one, files);
    }
    if (!rc && ctl->json) {
        json_t *all = json_pack("{s:O}", "files", files);
        print_json(all);
        json_decref(all);
    }
    json_array_foreach (files, i, file)
        if (!rc && !ctl->json)
            printf("%s: %.0f rows\n", field_text(file, "file", "?"), field_number(file, "rows"));
    json_decref(files);
    return rc;
}
