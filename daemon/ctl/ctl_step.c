/* SPDX-License-Identifier: MIT
 *
 * ringctl trace and gantt: the last step of a training job, for a trace viewer and as a chart. One
 * thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_term.h"
#include "daemon/ctl/terminal/step_chart.h"
#include "daemon/ctl/terminal/step_trace.h"

const struct opt_def ctl_trace_options[] = {
    {.name = "out",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .required = true,
     .help = "write the trace to FILE; - is standard output"},
    {.name = NULL},
};

const struct opt_def ctl_gantt_options[] = {
    {.name = "svg",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .help = "write the chart to FILE as SVG; - is standard output"},
    {.name = NULL},
};

static int ask(const struct ctl *ctl, json_t **ret_timeline, struct step_view **ret_view)
{
    const char *name;
    struct err err;
    json_t *timeline = NULL;
    int rc = ctl_request_job(ctl, "GET", "/timeline", &name, &timeline);
    if (rc)
        return rc;
    if (step_view_read(ret_view, timeline, &err)) {
        json_decref(timeline);
        return ctl_fail(CTL_FAILED, "%s", err.text);
    }
    *ret_timeline = timeline;
    return CTL_OK;
}

/* What goes to a file is complete, or it is said why not. */
static int write_file(const char *path, const json_t *trace, const struct step_view *chart)
{
    bool is_stdout = !strcmp(path, "-");
    FILE *to = is_stdout ? stdout : fopen(path, "we");
    if (!to)
        return ctl_fail(CTL_FAILED, "%s cannot be written: %s", path, strerror(errno));
    if (chart)
        step_chart_svg(to, chart);
    int failed = trace && json_dumpf(trace, to, JSON_COMPACT | JSON_REAL_PRECISION(12));
    failed |= fflush(to) | ferror(to);
    int cause = errno;
    if (!is_stdout && fclose(to) && !failed) {
        failed = 1;
        cause = errno;
    }
    return failed ? ctl_fail(CTL_FAILED, "%s cannot be written: %s", path, strerror(cause)) : CTL_OK;
}

static void say_where(const struct ctl *ctl, const struct step_view *v, const char *path, const char *use)
{
    if (!strcmp(path, "-"))
        return;
    if (ctl->json) {
        json_t *told =
            json_pack("{s:I s:I s:s}", "id", (json_int_t)v->job, "step", (json_int_t)v->step, "file", path);
        print_json(told);
        json_decref(told);
    } else {
        printf("step %.0f of job %.0f is in %s%s\n", v->step, v->job, path, use);
    }
}

int ctl_trace_main(struct ctl *ctl)
{
    json_t *timeline = NULL;
    struct step_view *view = NULL;
    const char *path = opts_str(ctl->opts, "out");
    int rc = ask(ctl, &timeline, &view);
    if (rc)
        return rc;
    json_t *trace = step_trace(view);
    rc = trace ? write_file(path, trace, NULL) : ctl_fail(CTL_FAILED, "out of memory");
    if (!rc)
        say_where(ctl, view, path, ": ui.perfetto.dev or chrome://tracing shows it");
    json_decref(trace);
    step_view_free(view);
    json_decref(timeline);
    return rc;
}

int ctl_gantt_main(struct ctl *ctl)
{
    enum { WITHOUT_TERMINAL = 100 };
    json_t *timeline = NULL;
    struct step_view *view = NULL;
    const char *svg = opts_str(ctl->opts, "svg");
    size_t width = term_width(stdout);
    int rc = ask(ctl, &timeline, &view);
    if (rc)
        return rc;
    if (svg)
        rc = write_file(svg, NULL, view);
    if (svg && !rc)
        say_where(ctl, view, svg, "");
    if (!svg && ctl->json)
        print_json(timeline);
    else if (!svg)
        step_chart_text(stdout, view, width ? width : WITHOUT_TERMINAL, term_has_colors(stdout));
    step_view_free(view);
    json_decref(timeline);
    return rc;
}
