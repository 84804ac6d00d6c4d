/* SPDX-License-Identifier: MIT
 *
 * ringctl train: submits a training job and shows how it goes, on one line of a terminal or a line for each
 * tenth of the way. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl.h"
#include "daemon/ctl_print.h"
#include "daemon/ctl_spec.h"
#include "daemon/ctl_watch.h"

const struct opt_def ctl_train_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "the model, a Hugging Face directory",
     .required = true},
    {.name = "data",
     .type = OPT_PATH,
     .placeholder = "FILE|DIR",
     .required = true,
     .help = "rows to learn from: JSON lines with \"text\", or with \"input_ids\" and \"labels\"; of a "
             "directory its "
             "train.jsonl"},
    {.name = "adapter-out",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .required = true,
     .help = "where the result goes: an adapter, or with --fine-tune-type full a model"},
    {.name = "fine-tune-type",
     .type = OPT_CHOICE,
     .placeholder = "lora|full",
     .def = "lora",
     .help = "what is trained"},
    {.name = "init",
     .type = OPT_CHOICE,
     .placeholder = "random",
     .help = "begin with random weights instead of the model's"},
    {.name = "init-adapter",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "begin with this adapter, in its shape"},
    {.name = "resume", .type = OPT_FLAG, .help = "continue the run in --adapter-out"},
    {.name = "rank",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "8",
     .min = 1,
     .max = 4096,
     .help = "rank of the adapter"},
    {.name = "alpha",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "16",
     .min = 0,
     .max = INFINITY,
     .help = "scale of the adapter, divided by its rank"},
    {.name = "dropout",
     .type = OPT_FLOAT,
     .placeholder = "P",
     .def = "0",
     .min = 0,
     .max = 0.99,
     .help = "share of the adapter's inputs dropped"},
    {.name = "target-modules",
     .type = OPT_STRING,
     .placeholder = "LIST",
     .help =
         "linear layers that get an adapter: last words of their names, separated by commas, with * for an "
         "expert's number (q_proj,mlp.up_proj,experts.*.up_proj), or all-linear; otherwise queries and "
         "values of the attention"},
    {.name = "batch-size",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "4",
     .min = 1,
     .max = 1e6,
     .help = "rows per step"},
    {.name = "micro-batch-size",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "1",
     .min = 1,
     .max = 1e6,
     .help = "rows that go through the ring together"},
    {.name = "seq-len",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "512",
     .min = 2,
     .max = 1e7,
     .help = "tokens per row at most"},
    {.name = "iters", .type = OPT_INT, .placeholder = "N", .min = 1, .max = 1e12, .help = "steps"},
    {.name = "epochs",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = 1e9,
     .help = "or times through the data (1 if neither is given)"},
    {.name = "no-shuffle", .type = OPT_FLAG, .help = "take the rows in their order"},
    {.name = "seed", .type = OPT_INT, .placeholder = "N", .def = "0", .help = "of everything random"},
    {.name = "lr",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "2e-4",
     .min = 0,
     .max = INFINITY,
     .help = "learning rate"},
    {.name = "lr-schedule",
     .type = OPT_CHOICE,
     .placeholder = "constant|linear|cosine",
     .def = "constant",
     .help = "how the rate falls"},
    {.name = "warmup",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = 1e12,
     .help = "steps in which the rate rises"},
    {.name = "weight-decay",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "0",
     .min = 0,
     .max = INFINITY,
     .help = "of AdamW"},
    {.name = "max-grad-norm",
     .type = OPT_FLOAT,
     .placeholder = "X",
     .def = "0",
     .min = 0,
     .max = INFINITY,
     .help = "clip gradients to this norm, 0 for not"},
    {.name = "schedule",
     .type = OPT_CHOICE,
     .placeholder = "naive|gpipe|1f1b",
     .def = "1f1b",
     .help = "order of work in the pipeline"},
    {.name = "valid", .type = OPT_PATH, .placeholder = "FILE", .help = "rows to measure on"},
    {.name = "eval-every",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = 1e12,
     .help = "steps between two measurements, 0 for one before and one after all steps"},
    {.name = "save-every",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = 1e12,
     .help = "steps between two saves, 0 for one at the end"},
    {.name = "log",
     .type = OPT_PATH,
     .placeholder = "FILE",
     .help = "a JSON line for each step is written there"},
    {.name = "detach", .type = OPT_FLAG, .help = "print the job's number and return"},
    {.name = NULL},
};

enum { BAR_WIDTH = 24, TENTHS = 10 };

struct progress_view {
    bool is_terminal;
    bool line_open;       /* the terminal's line is half written */
    int64_t tenths_shown; /* elsewhere */
    double first_loss, last_loss, step_seconds;
    bool has_loss;
};

static void close_line(struct progress_view *v)
{
    if (v->line_open)
        fputs("\r\033[K", stderr);
    v->line_open = false;
}

static void print_bar(int64_t step, int64_t steps)
{
    int full = steps > 0 ? (int)(BAR_WIDTH * step / steps) : 0;
    fputc('[', stderr);
    for (int i = 0; i < BAR_WIDTH; i++)
        fputc(i < full ? '#' : '.', stderr);
    fputs("] ", stderr);
}

static void show_step(struct progress_view *v, const json_t *e)
{
    int64_t step = (int64_t)field_number(e, "step"), steps = (int64_t)field_number(e, "steps");
    double loss = field_number(e, "loss"), seconds = field_number(e, "step_seconds");
    /* The mean of the latest steps rather than of all: the first one also loads the model. */
    v->step_seconds = v->step_seconds > 0 ? 0.8 * v->step_seconds + 0.2 * seconds : seconds;
    if (!v->has_loss)
        v->first_loss = loss;
    v->has_loss = true;
    v->last_loss = loss;
    int64_t tenth = steps > 0 ? TENTHS * step / steps : step;
    if (!v->is_terminal && tenth <= v->tenths_shown && step > 1)
        return;
    v->tenths_shown = tenth;
    if (v->is_terminal) {
        close_line(v);
        print_bar(step, steps);
    }
    fprintf(stderr, "step %" PRId64 "/%" PRId64 "  loss %.4f  %.0f tokens/s  bubble %.0f %%", step, steps,
            loss, field_number(e, "tokens_per_second"), 100 * field_number(e, "bubble"));
    if (steps > step)
        fprintf(stderr, "  %s left", print_duration((double)(steps - step) * v->step_seconds).text);
    v->line_open = v->is_terminal;
    if (!v->is_terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

static void on_event(void *owner, const char *type, const json_t *data)
{
    struct progress_view *v = owner;
    if (!strcmp(type, "step")) {
        show_step(v, data);
    } else if (!strcmp(type, "valid")) {
        close_line(v);
        fprintf(stderr, "step %.0f  valid loss %.4f over %.0f tokens\n", field_number(data, "step"),
                field_number(data, "valid_loss"), field_number(data, "valid_tokens"));
    } else if (!strcmp(type, "log")) {
        close_line(v);
        fprintf(stderr, "%s\n", field_text(data, "text", ""));
    }
}

static int check(const struct ctl *ctl)
{
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": nothing but options is expected", ctl->args[0]);
    if (opts_is_set(ctl->opts, "iters") && opts_is_set(ctl->opts, "epochs"))
        return ctl_usage(ctl, "--iters and --epochs both say how long: give one");
    if (opts_is_set(ctl->opts, "init") && opts_is_set(ctl->opts, "init-adapter"))
        return ctl_usage(ctl, "--init and --init-adapter both say where to begin: give one");
    return CTL_OK;
}

static json_t *make_spec(const struct ctl *ctl)
{
    static const char *const shape[][2] = {
        {"rank", "rank"}, {"alpha", "alpha"}, {"dropout", "dropout"}, {"target-modules", "target_modules"}};
    json_t *spec = ctl_spec_new(ctl);
    json_object_del(spec, "detach");
    if (!opts_is_set(ctl->opts, "iters") && !opts_is_set(ctl->opts, "epochs"))
        json_object_set_new(spec, "epochs", json_integer(1));
    /* The adapter begun with has a shape of its own: only what was asked for may disagree with it. */
    bool has_shape = opts_is_set(ctl->opts, "init-adapter") || opts_flag(ctl->opts, "resume");
    for (size_t i = 0; has_shape && i < sizeof shape / sizeof *shape; i++) {
        if (!opts_is_set(ctl->opts, shape[i][0]))
            json_object_del(spec, shape[i][1]);
    }
    return spec;
}

static void print_end(const struct ctl *ctl, const struct progress_view *v, const json_t *end)
{
    if (ctl->json) {
        print_json(end);
        return;
    }
    printf("job %.0f done", field_number(end, "id"));
    if (v->has_loss)
        printf(": loss %.4f to %.4f", v->first_loss, v->last_loss);
    printf(", %s, result in %s\n",
           print_duration(field_number(end, "ended") - field_number(end, "started")).text,
           field_text(json_object_get(end, "spec"), "adapter_out", opts_str(ctl->opts, "adapter-out")));
}

int ctl_train_main(struct ctl *ctl)
{
    uint64_t id;
    int rc = check(ctl);
    if (!rc)
        rc = ctl_spec_submit(ctl, "train", make_spec(ctl), &id);
    if (rc)
        return rc;
    if (opts_flag(ctl->opts, "detach")) {
        printf(ctl->json ? "{\"id\":%" PRIu64 "}\n" : "%" PRIu64 "\n", id);
        return CTL_OK;
    }
    struct progress_view view = {.is_terminal = isatty(STDERR_FILENO)};
    struct watch watch = {.event = on_event, .owner = &view};
    json_t *end = NULL;
    rc = ctl_watch(ctl, id, &watch, &end);
    if (view.line_open)
        fputc('\n', stderr);
    if (rc)
        return rc;
    rc = ctl_watch_verdict(end);
    if (!rc || ctl->json)
        print_end(ctl, &view, end);
    json_decref(end);
    return rc;
}
