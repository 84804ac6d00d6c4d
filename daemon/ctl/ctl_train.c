/* SPDX-License-Identifier: MIT
 *
 * ringctl train: its options, and from them the job; ctl_follow.c shows how it goes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_follow.h"
#include "daemon/ctl/ctl_options.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/ctl_plan_file.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/ctl/ctl_trace.h"
#include "engine/pipe/sched.h"

const struct opt_def ctl_train_options[] = {
    {.name = "plan",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .help =
         "take schedule, layers and microbatches from this file, which `ringctl plan train ... --out` wrote"},
    {.name = "out",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .help = "with `ringctl plan` or --dry-run: write the plan to FILE, for --plan"},
    {.name = "trace",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .help = "write the work of every node in every step to FILE, for a trace viewer"},
    OPTION_DRY_RUN,
    {.name = "detach", .type = OPT_FLAG, .help = "print the job's name and return"},
    {.name = NULL},
};

/* What the daemon cannot know. */
static int check(const struct ctl *ctl)
{
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": train takes options only", ctl->args[0]);
    const char *schedule = opts_str(ctl->opts, "schedule");
    const bool is_name = sched_info(schedule) || !strcmp(schedule, "auto");
    static const char *const planned[] = {"schedule",     "chunks",           "recompute",
                                          "microbatches", "micro-batch-size", "parallel"};
    for (size_t i = 0; opts_is_set(ctl->opts, "plan") && i < sizeof planned / sizeof *planned; i++)
        if (opts_is_set(ctl->opts, planned[i]))
            return ctl_usage(ctl, "--plan already sets what --%s sets: give one", planned[i]);
    if (opts_is_set(ctl->opts, "out") && !ctl_plan_wanted(ctl))
        return ctl_usage(ctl, "--out writes a plan, but this is a job: use `ringctl plan train`");
    if (opts_is_set(ctl->opts, "trace") && ctl_plan_wanted(ctl))
        return ctl_usage(ctl, "--trace records the steps of a job, but a plan has none: leave it out");
    if (opts_is_set(ctl->opts, "trace") && opts_flag(ctl->opts, "detach"))
        return ctl_usage(ctl, "--trace is written while ringctl follows the job: leave out --detach");
    if (!is_name && access(schedule, F_OK))
        return ctl_usage(ctl,
                         "--schedule %s is neither a built-in schedule (see train --help) nor a file: %s",
                         schedule, strerror(errno));
    return CTL_OK;
}

static int make_spec(const struct ctl *ctl, json_t **ret)
{
    int rc = ctl_spec_read(ctl, ret);
    if (rc)
        return rc;
    if (opts_is_set(ctl->opts, "trace"))
        json_object_set_new(*ret, "trace", json_true());
    if (opts_is_set(ctl->opts, "plan"))
        rc = plan_file_read(opts_str(ctl->opts, "plan"), *ret);
    rc = rc ? rc : ctl_spec_check(ctl, JOB_TRAIN, *ret);
    if (rc)
        json_decref(*ret);
    return rc;
}

static int submit(const struct ctl *ctl, json_t *spec)
{
    char job[CTL_JOB_NAME];
    struct ctl_trace *trace = NULL;
    int rc = opts_is_set(ctl->opts, "trace") ? ctl_trace_open(&trace, opts_str(ctl->opts, "trace")) : CTL_OK;
    if (rc) {
        json_decref(spec);
        return rc;
    }
    rc = ctl_spec_submit(ctl, JOB_TRAIN, spec, job);
    if (rc) {
        ctl_trace_end(trace, ctl, false);
        return rc;
    }
    if (opts_flag(ctl->opts, "detach")) {
        printf(ctl->json ? "{\"id\":%s}\n" : "%s\n", job);
        return CTL_OK;
    }
    rc = trace ? ctl_trace_begin(trace, ctl, job) : CTL_OK;
    int followed = ctl_follow_training(ctl, job, false, strcmp(opts_str(ctl->opts, "on-loss"), "stop") != 0);
    int traced = ctl_trace_end(trace, ctl, followed == CTL_OK || followed == CTL_FAILED);
    return followed ? followed : rc ? rc : traced;
}

int ctl_train_main(struct ctl *ctl)
{
    json_t *spec = NULL;
    int rc = check(ctl);
    rc = rc ? rc : make_spec(ctl, &spec);
    if (rc)
        return rc;
    if (ctl_plan_wanted(ctl))
        return ctl_plan_ask(ctl, JOB_TRAIN, spec, opts_str(ctl->opts, "out"));
    return submit(ctl, spec);
}
