/* SPDX-License-Identifier: MIT
 *
 * ringctl: the table of commands, the global options, and what is printed about their use. Each command lives
 * in a ctl_ file. */
#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl.h"
#include "daemon/xalloc.h"

static const char default_socket[] = "/run/ringd/ringd.sock";

static const struct opt_def global_options[] = {
    {.name = "socket",
     .type = OPT_PATH,
     .placeholder = "PATH",
     .help = "the daemon's socket (default $RINGD_SOCKET, else /run/ringd/ringd.sock)"},
    {.name = "json", .type = OPT_FLAG, .help = "print one JSON object and nothing else"},
    {.name = "version", .type = OPT_FLAG, .help = "print the version"},
    {.name = NULL},
};

static const struct ctl_command commands[] = {
    {"local", "N [OPTIONS] [--] COMMAND …", "run COMMAND on N nodes started on this machine for it",
     ctl_local_main, ctl_local_options, true},
    {"train", "--model DIR --data FILE --adapter-out DIR [OPTIONS]", "fine-tune a model on the ring",
     ctl_train_main, ctl_train_options, false},
    {"generate", "--model DIR [OPTIONS] (PROMPT | --ids 1,2,3)", "continue a text", ctl_generate_main,
     ctl_generate_options, false},
    {"score", "--model DIR [OPTIONS] (--text S | --ids 1,2,3 | --data FILE)",
     "log-probability of each token of a text", ctl_score_main, ctl_score_options, false},
    {"init", "[--name NAME]", "make a cluster, with this node as its first member", ctl_init_main,
     ctl_init_options, false},
    {"invite", "[--ttl TIME]", "print a token that lets one node into the cluster", ctl_invite_main,
     ctl_invite_options, false},
    {"join", "TOKEN [--peer HOST:PORT]", "enter the cluster the token was made in", ctl_join_main,
     ctl_join_options, false},
    {"members", "", "who belongs to the cluster", ctl_members_main, NULL, false},
    {"remove", "NODE", "throw a node out of the cluster", ctl_remove_main, NULL, false},
    {"promote", "NODE", "let a node invite and remove others, as this one does", ctl_promote_main, NULL,
     false},
    {"status", "", "this node, the ring, what runs and what is wrong", ctl_status_main, NULL, false},
    {"ring", "", "the order of the nodes, its slowest hop, and what would close it", ctl_ring_main, NULL,
     false},
    {"nodes", "", "the nodes of the ring and what each is doing", ctl_nodes_main, NULL, false},
    {"links", "[-v | --hosts]", "the connections of this node", ctl_links_main, ctl_links_options, false},
    {"ports", "", "this node's ports, and whom it hears on each", ctl_ports_main, NULL, false},
    {"link", "(adopt | release) PORT [--dry-run]",
     "have networkd or NetworkManager leave a cable's addresses alone, or undo that; as root", ctl_link_main,
     ctl_link_options, false},
    {"doctor", "[--model DIR] [--verbose]", "examine this node and all others, and say what would help",
     ctl_doctor_main, ctl_doctor_options, false},
    {"jobs", "[--all]", "jobs waiting, running and lately ended", ctl_jobs_main, ctl_jobs_options, false},
    {"job", "ID", "one job in full", ctl_job_main, NULL, false},
    {"log", "ID", "what a job has said", ctl_log_main, NULL, false},
    {"cancel", "ID", "end a job", ctl_cancel_main, NULL, false},
    {"reload", "", "have the daemon read its configuration again", ctl_reload_main, NULL, false},
    {"token", "[--new]", "the token that allows changes over TCP", ctl_token_main, ctl_token_options, false},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

int ctl_fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("ringctl: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return status;
}

int ctl_usage(const struct ctl *ctl, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "ringctl %s: ", ctl->command->name);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\nTry: ringctl %s --help\n", ctl->command->name);
    va_end(ap);
    return CTL_USAGE;
}

static void print_help(void)
{
    puts("usage: ringctl [OPTIONS] COMMAND …\n\nCommands:");
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    puts("\nOptions, before or after the command:");
    opts_help(global_options, stdout);
    puts("\nringctl COMMAND --help says more about one. Exit status: 0 done, 1 the job failed or was "
         "refused, 2 wrong\n"
         "usage, 3 no daemon answers, 130 interrupted.");
}

/* defs: its own options and the global ones. */
static void print_command_help(const struct ctl_command *command, const struct opt_def *defs)
{
    printf("usage: ringctl %s%s%s\n\n%s.\n\n", command->name, *command->args ? " " : "", command->args,
           command->help);
    if (command->has_rest)
        puts("COMMAND is any other command of ringctl, or \"exec PROGRAM ARGS…\": a program that finds the "
             "first node\n"
             "through $RINGD_SOCKET.\n");
    opts_help(defs, stdout);
}

static const struct opt_def *find_option(const struct opt_def *defs, const char *arg)
{
    for (const struct opt_def *def = defs; def->name; def++) {
        if (arg[1] == '-' ? !strcmp(arg + 2, def->name) : arg[1] == def->short_name && !arg[2])
            return def;
    }
    return NULL;
}

/* Index of the nth word from `at` on that is neither an option nor an option's value; "--" ends the options.
 * argc if none. */
static int find_word(const struct opt_def *defs, int argc, char **argv, int at, int nth)
{
    for (; at < argc; at++) {
        if (!strcmp(argv[at], "--"))
            return at + 1 < argc ? at + 1 : argc;
        if (argv[at][0] != '-' || !argv[at][1]) {
            if (!nth--)
                return at;
            continue;
        }
        const struct opt_def *def = find_option(defs, argv[at]);
        if (def && def->type != OPT_FLAG)
            at++;
    }
    return argc;
}

static size_t count_options(const struct opt_def *defs)
{
    size_t n = 0;
    while (defs && defs[n].name)
        n++;
    return n;
}

/* The command's own options, then the global ones; the caller frees. */
static struct opt_def *join_options(const struct opt_def *own)
{
    size_t n = count_options(own), n_global = count_options(global_options);
    struct opt_def *all = xcalloc(n + n_global + 1, sizeof *all);
    if (n)
        memcpy(all, own, n * sizeof *all);
    memcpy(all + n, global_options, n_global * sizeof *all);
    return all;
}

static int run(struct ctl *ctl)
{
    const char *from_env = getenv("RINGD_SOCKET");
    struct err err;
    if (opts_flag(ctl->opts, "version")) {
        puts("ringctl " RINGD_VERSION);
        return CTL_OK;
    }
    if (opts_check(ctl->opts, &err))
        return ctl_usage(ctl, "%s", err.text);
    ctl->socket = opts_str(ctl->opts, "socket");
    if (!ctl->socket)
        ctl->socket = from_env && *from_env ? from_env : default_socket;
    ctl->json = opts_flag(ctl->opts, "json");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int status = ctl->command->main(ctl);
    curl_global_cleanup();
    if (fflush(stdout) && status == CTL_OK)
        status = ctl_fail(CTL_FAILED, "the output could not be written");
    return status;
}

/* argv[word] is the command's name. */
static int run_command(const struct ctl_command *command, int argc, char **argv, int word)
{
    struct opt_def *defs = join_options(command->options);
    struct ctl ctl = {.command = command, .opts = opts_new(defs)};
    struct err err;
    bool help = false;
    int end = command->has_rest ? find_word(defs, argc, argv, word + 1, 1) : argc;
    ctl.rest = argv + end;
    ctl.n_rest = argc - end;
    char **own = xcalloc((size_t)argc + 1, sizeof *own), **positional = NULL;
    int n = 0, status;
    for (int i = 0; i < end; i++) {
        if (i != word)
            own[n++] = argv[i];
    }
    if (opts_parse(ctl.opts, n, own, &positional, &ctl.n_args, &help, &err)) {
        status = ctl_usage(&ctl, "%s", err.text);
    } else if (help) {
        print_command_help(command, defs);
        status = CTL_OK;
    } else {
        ctl.args = positional;
        status = run(&ctl);
    }
    free(positional);
    free(own);
    opts_free(ctl.opts);
    free(defs);
    return status;
}

/* No command: the only things to say are help and the version. */
static int run_bare(int argc, char **argv)
{
    struct opts *o = opts_new(global_options);
    struct err err;
    char **positional = NULL;
    int n, status = CTL_OK;
    bool help = false;
    if (opts_parse(o, argc, argv, &positional, &n, &help, &err))
        status = ctl_fail(CTL_USAGE, "%s", err.text);
    else if (help)
        print_help();
    else if (opts_flag(o, "version"))
        puts("ringctl " RINGD_VERSION);
    else
        status = ctl_fail(CTL_USAGE, "a command is missing: ringctl --help lists them");
    free(positional);
    opts_free(o);
    return status;
}

int main(int argc, char **argv)
{
    int word = find_word(global_options, argc, argv, 1, 0);
    if (word == argc)
        return run_bare(argc, argv);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (!strcmp(commands[i].name, argv[word]))
            return run_command(&commands[i], argc, argv, word);
    }
    return ctl_fail(CTL_USAGE, "\"%s\" is not a command: ringctl --help lists them", argv[word]);
}
