/* SPDX-License-Identifier: MIT
 *
 * What ringctl's commands share: how one is called and how it ends. The table of all commands is in
 * ctl_commands.h, above them; a command that prints the table gets it in struct ctl. One thread.
 */
#ifndef DAEMON_CTL_H
#define DAEMON_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/optable.h"

/* Exit statuses, part of the interface. */
enum ctl_exit { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2, CTL_NO_DAEMON = 3, CTL_INTERRUPTED = 130 };

struct ctl_command;

/* Help and completion are made from this. */
struct ctl_tables {
    const struct ctl_command *commands; /* static, in the order of --help; the last has no name */
    const struct opt_def *options;      /* static: those that every command takes */
};

struct ctl {
    const struct ctl_command *command; /* borrowed */
    const struct ctl_tables *tables;   /* borrowed */
    const char *socket;                /* borrowed: the daemon's */
    bool plans;                        /* only the plan of what it would submit is wanted */
    bool json;                         /* standard output holds one JSON object and nothing else */
    struct opts *opts;                 /* borrowed: the command's options and the global ones */
    char **args;                       /* borrowed: positional arguments */
    int n_args;
    /* Where the client puts its sentences instead of on standard error, NULL = there: for a screen
     * of its own. */
    char *complaint; /* borrowed */
    size_t complaint_size;
    char **rest; /* borrowed: what `local` runs, not looked at */
    int n_rest;
};

/* What an argument of a command names: completion knows the commands, and asks the daemon for the
 * rest. */
enum ctl_names { CTL_NAMES_NOTHING, CTL_NAMES_COMMANDS, CTL_NAMES_JOBS, CTL_NAMES_MEMBERS, CTL_NAMES_PORTS };

struct ctl_command {
    const char *name; /* NULL ends the table */
    const char *args; /* as in its usage line */
    const char *help; /* one line */
    int (*main)(struct ctl *ctl);
    const struct opt_def *options; /* its own, behind those for `spec`; NULL = none */
    unsigned spec;                 /* the use of the fields of job_spec.h that are its options; 0 = none */
    bool has_rest;                 /* stops reading options at its second argument */
    bool leads;           /* another command of those it names comes behind it, and only its plan is wanted */
    const char *group;    /* the heading it is the first below, NULL = as before */
    const char *words;    /* what its first argument may be, separated by spaces; NULL = see names */
    enum ctl_names names; /* of its argument, the second where there are words */
};

int ctl_local_main(struct ctl *ctl);
int ctl_train_main(struct ctl *ctl);
int ctl_merge_main(struct ctl *ctl);
int ctl_convert_main(struct ctl *ctl);
int ctl_data_main(struct ctl *ctl);
int ctl_tokenize_main(struct ctl *ctl);
int ctl_detokenize_main(struct ctl *ctl);
int ctl_render_main(struct ctl *ctl);
int ctl_schedule_main(struct ctl *ctl);
int ctl_simulate_main(struct ctl *ctl);
int ctl_bench_main(struct ctl *ctl);
int ctl_generate_main(struct ctl *ctl);
int ctl_chat_main(struct ctl *ctl);
int ctl_plan_main(struct ctl *ctl);
int ctl_score_main(struct ctl *ctl);
int ctl_eval_main(struct ctl *ctl);
int ctl_serve_main(struct ctl *ctl);
int ctl_init_main(struct ctl *ctl);
int ctl_invite_main(struct ctl *ctl);
int ctl_join_main(struct ctl *ctl);
int ctl_members_main(struct ctl *ctl);
int ctl_top_main(struct ctl *ctl);
int ctl_ring_main(struct ctl *ctl);
int ctl_remove_main(struct ctl *ctl);
int ctl_promote_main(struct ctl *ctl);
int ctl_status_main(struct ctl *ctl);
int ctl_nodes_main(struct ctl *ctl);
int ctl_links_main(struct ctl *ctl);
int ctl_links_hosts(const struct ctl *ctl); /* links --hosts */
int ctl_ports_main(struct ctl *ctl);
int ctl_link_main(struct ctl *ctl);
int ctl_doctor_main(struct ctl *ctl);
int ctl_jobs_main(struct ctl *ctl);
int ctl_job_main(struct ctl *ctl);
int ctl_attach_main(struct ctl *ctl);
int ctl_log_main(struct ctl *ctl);
int ctl_trace_main(struct ctl *ctl);
int ctl_gantt_main(struct ctl *ctl);
int ctl_export_main(struct ctl *ctl);
int ctl_reload_main(struct ctl *ctl);
int ctl_dashboard_main(struct ctl *ctl);
int ctl_token_main(struct ctl *ctl);
int ctl_key_main(struct ctl *ctl);
int ctl_pause_main(struct ctl *ctl);
int ctl_continue_main(struct ctl *ctl);
int ctl_drain_main(struct ctl *ctl);
int ctl_undrain_main(struct ctl *ctl);
int ctl_adopt_main(struct ctl *ctl);
int ctl_cancel_main(struct ctl *ctl);
int ctl_result_main(struct ctl *ctl);
int ctl_completion_main(struct ctl *ctl);
int ctl_help_main(struct ctl *ctl);
int ctl_pull_main(struct ctl *ctl);
int ctl_models_main(struct ctl *ctl);

extern const struct opt_def ctl_token_options[], ctl_key_options[], ctl_dashboard_options[];
extern const struct opt_def ctl_tokenize_options[], ctl_detokenize_options[], ctl_render_options[];
extern const struct opt_def ctl_local_options[], ctl_merge_options[], ctl_convert_options[],
    ctl_data_options[], ctl_schedule_options[], ctl_simulate_options[], ctl_bench_options[],
    ctl_train_options[], ctl_generate_options[], ctl_chat_options[], ctl_score_options[], ctl_eval_options[],
    ctl_serve_options[], ctl_doctor_options[], ctl_jobs_options[], ctl_top_options[], ctl_links_options[],
    ctl_link_options[], ctl_trace_options[], ctl_gantt_options[], ctl_export_options[], ctl_init_options[],
    ctl_invite_options[], ctl_join_options[], ctl_drain_options[], ctl_adopt_options[], ctl_models_options[];

/* Prints "ringctl: …" on standard error and returns `status`. */
int ctl_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same about a request: to ctl->complaint if there is one. */
int ctl_complain(const struct ctl *ctl, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Wrong usage: the sentence and where help is; CTL_USAGE. */
int ctl_usage(const struct ctl *ctl, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The name of a job, its only argument: "7", or "7@b" where node b is its head. Borrowed from the
 * arguments. */
int ctl_job_arg(const struct ctl *ctl, const char **ret);
enum {
    CTL_JOB_NAME = 24,
    CTL_JOB_PATH = 160
}; /* bytes of the name of a job of this node; of a path with any name */
/* CTL_OK, or that there are arguments where none are taken. */
int ctl_no_args(const struct ctl *ctl);

#endif
