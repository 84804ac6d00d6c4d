/* SPDX-License-Identifier: MIT
 *
 * ringctl bench: what this node and its cables can do, and a model's layers on it. Measures in a
 * ringd-stage that is started for it, in the environment ringd gives its own; what is known of
 * cables the daemon has measured itself. Without a daemon there are no cables, and the rest is the
 * same. One thread. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/common/cores.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/common/spawn_env.h"
#include "daemon/common/xalloc.h"

const struct opt_def ctl_bench_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "also measure this model on this node alone, in tokens a second: LoRA training (rank 16, every "
             "linear layer), a prompt, and an answer"},
    {.name = "tokens",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "512",
     .min = 1,
     .max = 1 << 20,
     .help = "tokens of the training sequence, of the prompt, and of the context before the answer"},
    {.name = "weights",
     .type = OPT_CHOICE,
     .placeholder = "stored|int8|int4",
     .def = "stored",
     .help = "with --model: use the weights as they are stored, or quantized to 8 or 4 bits"},
    {.name = "threads",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = 1024,
     .help = "measure with this many threads (default: as many as the daemon gives its jobs, else one for "
             "each core)"},
    {.name = "anyway", .type = OPT_FLAG, .help = "measure even while a job runs on this node"},
    {.name = NULL},
};

/* --- what the daemon knows -------------------------------------------------------------------- */

/* NULL, and no word of it: nobody answers, or not that. */
static json_t *ask(const struct ctl *ctl, const char *path)
{
    char complaint[1000];
    struct ctl quiet = *ctl;
    json_t *answer = NULL;
    quiet.complaint = complaint;
    quiet.complaint_size = sizeof complaint;
    return ctl_request(&quiet, "GET", path, NULL, &answer) ? NULL : answer;
}

static const json_t *this_node(const json_t *nodes)
{
    size_t i;
    json_t *node;
    json_array_foreach (json_object_get(nodes, "nodes"), i, node) {
        if (json_is_true(json_object_get(node, "self")))
            return node;
    }
    return NULL;
}

/* Of each connection what is known of its way; measured by the daemons when no job ran. */
static json_t *cables_of(const json_t *links)
{
    static const char *const keys[] = {"peer",    "port",    "state",           "cipher",
                                       "tx_mbps", "rx_mbps", "negotiated_mbps", "rtt_ms"};
    json_t *list = json_array(), *link;
    size_t i;
    json_array_foreach (json_object_get(links, "links"), i, link) {
        json_t *cable = json_object();
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            json_object_set(cable, keys[k], json_object_get(link, keys[k]));
        json_array_append_new(list, cable);
    }
    return list;
}

/* --- the stage -------------------------------------------------------------------------------- */

static json_t *spec_of(const struct ctl *ctl, const json_t *node)
{
    const char *model = opts_str(ctl->opts, "model");
    json_t *spec = json_object();
    if (opts_str(ctl->opts, "threads"))
        json_object_set_new(spec, "threads", json_integer(opts_int(ctl->opts, "threads")));
    else
        json_object_set_new(
            spec, "threads",
            json_integer(node ? (json_int_t)field_number(node, "threads") : cores_threads(0)));
    if (!model)
        return spec;
    char *path = ctl_absolute_path(model);
    json_object_set_new(spec, "model", json_string(path));
    json_object_set_new(spec, "tokens", json_integer(opts_int(ctl->opts, "tokens")));
    json_object_set_new(spec, "weights", json_string(opts_str(ctl->opts, "weights")));
    free(path);
    return spec;
}

static pid_t start(char *const argv[], char **env, int out)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(out, STDOUT_FILENO) >= 0)
            execve(argv[0], argv, env);
        fprintf(stderr, "ringctl: %s, which measures, cannot be run: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    return pid;
}

/* What the stage prints, as JSON; NULL after it has said why not. */
static json_t *measure(const json_t *spec)
{
    int pipes[2], status = -1;
    size_t inherited;
    char *text = json_dumps(spec, JSON_COMPACT), *stage = conf_default_stage();
    char *argv[] = {stage, (char *)"bench", text, NULL};
    json_t *said = NULL;
    if (!text || pipe2(pipes, O_CLOEXEC)) {
        ctl_fail(CTL_FAILED, "%s", text ? strerror(errno) : "a path is not UTF-8, and cannot be passed on");
        free(text);
        free(stage);
        return NULL;
    }
    char **env = spawn_environment((int)json_integer_value(json_object_get(spec, "threads")), &inherited);
    const pid_t pid = start(argv, env, pipes[1]);
    close(pipes[1]);
    if (pid < 0)
        ctl_fail(CTL_FAILED, "no process can be started: %s", strerror(errno));
    else
        said = json_loadfd(pipes[0], 0, NULL);
    close(pipes[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    spawn_environment_free(env, inherited);
    free(text);
    free(stage);
    if (!status)
        return said;
    if (pid > 0 && WIFSIGNALED(status))
        ctl_fail(CTL_FAILED, "the process that measures was killed by SIG%s: is there too little memory?",
                 sigabbrev_np(WTERMSIG(status)));
    json_decref(said);
    return NULL;
}

/* --- printing --------------------------------------------------------------------------------- */

static void print_machine(const json_t *bench)
{
    struct table *t = table_new("WEIGHTS\tMANY ROWS\tONE ROW");
    size_t i;
    json_t *p;
    printf("threads %.0f, kernels %s, for --compute bf16 %s; reading memory %.1f GB/s\n\n",
           field_number(bench, "threads"), field_text(bench, "kernels", "?"),
           field_text(bench, "kernels_bf16", "?"), field_number(bench, "read_gbs"));
    json_array_foreach (json_object_get(bench, "products"), i, p)
        table_add(t, "%s\t%.1f GFLOP/s\t%.1f GB/s", field_text(p, "weights", "?"), field_number(p, "gflops"),
                  field_number(p, "row_gbs"));
    table_print_free(t, stdout);
}

static void print_model(const json_t *model)
{
    if (!model)
        return;
    printf("\n%s, all %.0f layers here, %.0f tokens\n", field_text(model, "dir", "?"),
           field_number(model, "layers"), field_number(model, "tokens"));
    printf("  LoRA training  %.0f tokens/s\n", field_number(model, "training_tokens_per_second"));
    printf("  prompt         %.0f tokens/s\n", field_number(model, "prefill_tokens_per_second"));
    printf("  answer         %.0f tokens/s\n", field_number(model, "decoding_tokens_per_second"));
}

static const char *put_mbps(char *ret, size_t size, const json_t *cable, const char *key)
{
    if (field_number(cable, key) > 0)
        snprintf(ret, size, "%.0f Mb/s", field_number(cable, key));
    else
        snprintf(ret, size, "not known");
    return ret;
}

static void print_cables(const json_t *bench)
{
    const json_t *cables = json_object_get(bench, "cables");
    struct table *t = table_new("PEER\tPORT\tSENDING\tRECEIVING\tNEGOTIATED\tROUND TRIP");
    char sent[24], received[24], agreed[24];
    size_t i;
    json_t *c;
    json_array_foreach (cables, i, c)
        table_add(t, "%s\t%s\t%s\t%s\t%s\t%s ms", field_text(c, "peer", "?"), field_text(c, "port", "-"),
                  put_mbps(sent, sizeof sent, c, "tx_mbps"),
                  put_mbps(received, sizeof received, c, "rx_mbps"),
                  put_mbps(agreed, sizeof agreed, c, "negotiated_mbps"),
                  print_number(json_object_get(c, "rtt_ms"), "-").text);
    putchar('\n');
    if (json_is_null(cables))
        puts("cables: not measured, as no ringd answers here");
    else if (!table_rows(t))
        puts("cables: none");
    else
        table_print(t, stdout, 0, false);
    table_free(t);
}

/* --- all of it -------------------------------------------------------------------------------- */

int ctl_bench_main(struct ctl *ctl)
{
    int rc = ctl_no_args(ctl);
    if (rc)
        return rc;
    json_t *nodes = ask(ctl, "/v1/nodes"), *links = nodes ? ask(ctl, "/v1/links") : NULL, *spec = NULL,
           *bench = NULL;
    const json_t *node = this_node(nodes), *stage = json_array_get(json_object_get(node, "stages"), 0);
    const bool is_busy = stage;
    if (is_busy && !opts_flag(ctl->opts, "anyway"))
        rc = ctl_fail(CTL_FAILED,
                      "job %.0f runs on this node, and the two would slow each other: measure after it, or "
                      "give --anyway",
                      field_number(stage, "job"));
    if (!rc) {
        spec = spec_of(ctl, node);
        bench = measure(spec);
        rc = bench ? CTL_OK : CTL_FAILED;
    }
    if (!rc) {
        json_object_set_new(bench, "cables", links ? cables_of(links) : json_null());
        json_object_set_new(bench, "beside_job",
                            is_busy ? json_incref(json_object_get(stage, "job")) : json_null());
        if (ctl->json) {
            print_json(bench);
        } else {
            if (is_busy)
                printf("job %.0f runs on this node, so the figures show only the remaining speed\n",
                       field_number(stage, "job"));
            print_machine(bench);
            print_model(json_object_get(bench, "model"));
            print_cables(bench);
        }
    }
    json_decref(nodes);
    json_decref(links);
    json_decref(spec);
    json_decref(bench);
    return rc;
}
