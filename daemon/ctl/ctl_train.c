/* SPDX-License-Identifier: MIT
 *
 * ringctl train: its options, and from them the job; ctl_follow.c shows how it goes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_data.h"
#include "daemon/ctl/ctl_follow.h"
#include "daemon/ctl/ctl_options.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/ctl_plan_file.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/ctl/ctl_trace.h"
#include "daemon/common/spec_limits.h"
#include "engine/pipe/sched.h"

const struct opt_def ctl_train_options[] = {
    OPTION_MODEL(OPTION_MODEL_HELP),
    {.name = "data",
     .type = OPT_PATH,
     .placeholder = "FILE|DIR",
     .required = true,
     .help = "rows to learn, as JSON lines or a JSON array: texts, prompts with completions, conversations, "
             "instructions, or token ids; in a directory, its train.jsonl"},
    CTL_DATA_OPTIONS("512"),
    CTL_PACKING_OPTION,
    {.name = "group-by-length",
     .type = OPT_FLAG,
     .help = "put rows of similar length into the same step, so that nodes wait less for each other"},
    {.name = "adapter-out",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .required = true,
     .help = "write the adapter, or with --fine-tune-type full the model, to DIR; ringctl fetches the result "
             "if the daemon cannot write there"},
    {.name = "fine-tune-type",
     .type = OPT_CHOICE,
     .placeholder = "lora|full",
     .def = "lora",
     .help = "train an adapter, or all weights of the model"},
    {.name = "init",
     .type = OPT_CHOICE,
     .placeholder = "random",
     .help = "begin with random weights instead of the model's weights"},
    OPTION_WEIGHTS("train the adapter on the weights"),
    {.name = "init-adapter",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "begin with this adapter, and keep its rank and layers"},
    {.name = "resume", .type = OPT_FLAG, .help = "continue the run in --adapter-out"},
    {.name = "rank",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "8",
     .min = 1,
     .max = SPEC_RANK_MAX,
     .help = "rank of the adapter"},
    {.name = "alpha",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "16",
     .min = SPEC_ALPHA_MIN,
     .max = SPEC_ALPHA_MAX,
     .help = "scale of the adapter; ringd divides it by the rank"},
    {.name = "rslora",
     .type = OPT_FLAG,
     .help = "divide --alpha by the square root of the rank, not by the rank (rank-stabilized LoRA)"},
    {.name = "lora-plus-ratio",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "1",
     .min = SPEC_PLUS_RATIO_MIN,
     .max = SPEC_PLUS_RATIO_MAX,
     .help = "use LoRA+: the learning rate of matrix B, which begins at zero, is this many times --lr"},
    {.name = "num-layers",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = SPEC_LAYERS_MAX,
     .help = "put the adapter on the last N layers only"},
    {.name = "layers",
     .type = OPT_STRING,
     .placeholder = "FIRST-LAST",
     .help = "put the adapter on these layers only, counted from 0"},
    {.name = "dropout",
     .type = OPT_FLOAT,
     .placeholder = "P",
     .def = "0",
     .min = 0,
     .max = SPEC_DROPOUT_MAX,
     .help = "share of the adapter's inputs that training drops at random"},
    {.name = "target-modules",
     .type = OPT_STRING,
     .placeholder = "LIST",
     .help = "put the adapter on these linear layers: last words of their names, such as "
             "q_proj,mlp.up_proj,experts.*.up_proj, or all-linear (default: queries and values of the "
             "attention)"},
    {.name = "batch-size",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "4",
     .min = 1,
     .max = SPEC_BATCH_MAX,
     .help = "number of rows in a step"},
    {.name = "micro-batch-size",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "1",
     .min = 1,
     .max = SPEC_MICRO_BATCH_MAX,
     .help = "number of rows in a microbatch, which passes through the ring as a unit"},
    {.name = "iters",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = SPEC_STEPS_MAX,
     .help = "number of steps to train"},
    {.name = "epochs",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = SPEC_EPOCHS_MAX,
     .help = "number of passes over the data, instead of --iters (default: 1, if --iters is not given)"},
    {.name = "no-shuffle", .type = OPT_FLAG, .help = "keep the rows in the order of the data"},
    OPTION_SEED("seed of all random choices"),
    {.name = "lr",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .min = 0,
     .max = SPEC_LR_MAX,
     .help = "learning rate (default: 5e-4 for an adapter, 2e-4 for a whole model)"},
    {.name = "sweep",
     .type = OPT_LIST,
     .placeholder = "OPTION=V,V",
     .help =
         "train one adapter for each value of an option (lr, rank, alpha, seed, ...), all at once on the "
         "same weights. Several --sweep train all combinations. Each result gets a folder in --adapter-out"},
    {.name = "lr-schedule",
     .type = OPT_CHOICE,
     .placeholder = "constant|linear|cosine",
     .def = "constant",
     .help = "how the learning rate falls"},
    {.name = "warmup",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = SPEC_STEPS_MAX,
     .help = "number of steps in which the learning rate rises"},
    {.name = "weight-decay",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "0",
     .min = 0,
     .max = SPEC_WEIGHT_DECAY_MAX,
     .help = "weight decay of AdamW"},
    {.name = "max-grad-norm",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "0",
     .min = 0,
     .max = SPEC_GRAD_NORM_MAX,
     .help = "clip gradients to this norm; 0 does not clip"},
    {.name = "schedule",
     .type = OPT_CHOICE,
     .placeholder = "auto|" SCHED_CHOICES "|FILE",
     .def = "1f1b",
     .help = "order of work in the pipeline. auto measures the nodes and chooses the fastest schedule, split "
             "of layers and microbatches. FILE is a custom schedule: see ringctl schedule"},
    {.name = "objective",
     .type = OPT_CHOICE,
     .placeholder = "time|memory",
     .def = "time",
     .help = "aim of --schedule auto: the shortest step, or the least memory on the fullest node"},
    {.name = "plan",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .help =
         "take schedule, layers and microbatches from this file, which `ringctl plan train ... --out` wrote"},
    {.name = "out",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .help = "with `ringctl plan` or --dry-run: write the plan to FILE, for --plan"},
    {.name = "chunks",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = SCHED_MAX_CHUNKS,
     .help = "number of stages on each node, for interleaved-1f1b and looped-bfs (default: 2)"},
    {.name = "recompute",
     .type = OPT_CHOICE,
     .placeholder = "none|layer|stage|auto",
     .def = "auto",
     .help = "recompute forwards to save memory: none, of each layer, of each node's whole stage, or auto: "
             "on nodes that lack memory"},
    {.name = "microbatches",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = SPEC_BATCH_MAX,
     .help = "number of microbatches in a step, instead of --micro-batch-size"},
    {.name = "valid",
     .type = OPT_PATH,
     .placeholder = "FILE|DIR",
     .help = "rows to evaluate, in the form of --data; in a directory, its valid.jsonl"},
    {.name = "eval-every",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = SPEC_STEPS_MAX,
     .help = "evaluate after every N steps; 0 evaluates once before and once after training"},
    {.name = "sample-prompt",
     .type = OPT_STRING,
     .placeholder = "TEXT",
     .help = "let the model continue this text from time to time, to show its progress"},
    {.name = "sample-every",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = SPEC_STEPS_MAX,
     .help = "print a sample after every N steps; 0 prints one at the end"},
    {.name = "sample-tokens",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "64",
     .min = 1,
     .max = SPEC_SAMPLE_TOKENS_MAX,
     .help = "limit each sample to this many tokens"},
    {.name = "save-every",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = SPEC_STEPS_MAX,
     .help = "save after every N steps; 0 saves once at the end"},
    {.name = "log",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .help = "write one JSON line for each step to FILE"},
    {.name = "trace",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .help = "write the work of every node in every step to FILE, for a trace viewer"},
    OPTION_DRY_RUN,
    {.name = "detach", .type = OPT_FLAG, .help = "print the job's name and return"},
    {.name = NULL},
};

static int check(const struct ctl *ctl)
{
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": train takes options only", ctl->args[0]);
    const char *schedule = opts_str(ctl->opts, "schedule");
    const bool is_auto = !strcmp(schedule, "auto");
    static const char *const planned[] = {"schedule", "chunks", "recompute", "microbatches",
                                          "micro-batch-size"};
    for (size_t i = 0; opts_is_set(ctl->opts, "plan") && i < sizeof planned / sizeof *planned; i++)
        if (opts_is_set(ctl->opts, planned[i]))
            return ctl_usage(ctl, "--plan already sets what --%s sets: give one", planned[i]);
    if (opts_is_set(ctl->opts, "out") && !ctl_plan_wanted(ctl))
        return ctl_usage(ctl, "--out writes a plan, but this is a job: use `ringctl plan train`");
    if (opts_is_set(ctl->opts, "trace") && ctl_plan_wanted(ctl))
        return ctl_usage(ctl, "--trace records the steps of a job, but a plan has none: leave it out");
    if (opts_is_set(ctl->opts, "trace") && opts_flag(ctl->opts, "detach"))
        return ctl_usage(ctl, "--trace is written while ringctl follows the job: leave out --detach");
    if (opts_is_set(ctl->opts, "objective") && !is_auto)
        return ctl_usage(ctl, "--objective needs --schedule auto: give that too");
    if (!is_auto && !sched_info(schedule) && access(schedule, F_OK))
        return ctl_usage(ctl,
                         "--schedule %s is neither a built-in schedule (see train --help) nor a file: %s",
                         schedule, strerror(errno));
    if (opts_is_set(ctl->opts, "iters") && opts_is_set(ctl->opts, "epochs"))
        return ctl_usage(ctl, "--iters and --epochs both set the length of the training: give one");
    if (opts_is_set(ctl->opts, "microbatches") && opts_is_set(ctl->opts, "micro-batch-size"))
        return ctl_usage(ctl,
                         "--microbatches and --micro-batch-size both set the size of a microbatch: give one");
    if (opts_is_set(ctl->opts, "layers") && opts_is_set(ctl->opts, "num-layers"))
        return ctl_usage(ctl, "--layers and --num-layers both choose layers: give one");
    if (opts_flag(ctl->opts, "group-by-length") && opts_flag(ctl->opts, "no-shuffle"))
        return ctl_usage(
            ctl,
            "--group-by-length sorts the rows and --no-shuffle keeps their order: give only one of them");
    if (opts_is_set(ctl->opts, "sample-every") && !opts_is_set(ctl->opts, "sample-prompt"))
        return ctl_usage(ctl, "--sample-every needs a text to begin with: give --sample-prompt TEXT too");
    if (opts_is_set(ctl->opts, "eval-every") && !opts_is_set(ctl->opts, "valid"))
        return ctl_usage(ctl, "--eval-every needs rows to evaluate: give --valid FILE|DIR too");
    if (opts_is_set(ctl->opts, "init") && opts_is_set(ctl->opts, "init-adapter"))
        return ctl_usage(ctl, "--init and --init-adapter both set the first weights: give one");
    return CTL_OK;
}

/* What is no name is a file; the daemon has another working directory. */
static void put_schedule(const struct ctl *ctl, json_t *spec)
{
    const char *schedule = opts_str(ctl->opts, "schedule");
    if (sched_info(schedule) || !strcmp(schedule, "auto"))
        return;
    char *path = ctl_absolute_path(schedule);
    json_object_set_new(spec, "schedule", json_string(path));
    free(path);
}

static json_t *make_spec(const struct ctl *ctl)
{
    static const char *const shape[][2] = {
        {"rank", "rank"}, {"alpha", "alpha"}, {"dropout", "dropout"}, {"target-modules", "target_modules"}};
    json_t *spec = ctl_spec_new(ctl);
    json_object_del(spec, "detach");
    json_object_del(spec, "out");
    json_object_del(spec, "plan");
    if (opts_is_set(ctl->opts, "trace"))
        json_object_set_new(spec, "trace", json_true());
    put_schedule(ctl, spec);
    const bool searched = !strcmp(opts_str(ctl->opts, "schedule"), "auto");
    if (opts_is_set(ctl->opts, "microbatches") || (searched && !opts_is_set(ctl->opts, "micro-batch-size")))
        json_object_del(spec, "micro_batch_size");
    if (!opts_is_set(ctl->opts, "iters") && !opts_is_set(ctl->opts, "epochs"))
        json_object_set_new(spec, "epochs", json_integer(1));
    /* The adapter begun with has a shape of its own: only what was asked for may disagree with
     * it. */
    bool has_shape = opts_is_set(ctl->opts, "init-adapter") || opts_flag(ctl->opts, "resume");
    for (size_t i = 0; has_shape && i < sizeof shape / sizeof *shape; i++) {
        if (!opts_is_set(ctl->opts, shape[i][0]))
            json_object_del(spec, shape[i][1]);
    }
    return spec;
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
    rc = ctl_spec_submit(ctl, "train", spec, job);
    if (rc) {
        ctl_trace_end(trace, ctl, false);
        return rc;
    }
    if (opts_flag(ctl->opts, "detach")) {
        printf(ctl->json ? "{\"id\":%s}\n" : "%s\n", job);
        return CTL_OK;
    }
    rc = trace ? ctl_trace_begin(trace, ctl, job) : CTL_OK;
    int followed = ctl_follow_training(ctl, job, false);
    int traced = ctl_trace_end(trace, ctl, followed == CTL_OK || followed == CTL_FAILED);
    return followed ? followed : rc ? rc : traced;
}

int ctl_train_main(struct ctl *ctl)
{
    int rc = check(ctl);
    if (rc)
        return rc;
    json_t *spec = make_spec(ctl);
    rc = ctl_spec_template_args(ctl, spec);
    if (!rc && opts_is_set(ctl->opts, "plan"))
        rc = plan_file_read(opts_str(ctl->opts, "plan"), spec);
    if (rc) {
        json_decref(spec);
        return rc;
    }
    if (ctl_plan_wanted(ctl))
        return ctl_plan_ask(ctl, "train", spec, opts_str(ctl->opts, "out"));
    return submit(ctl, spec);
}
