/* SPDX-License-Identifier: MIT
 *
 * ringctl: finds the command and its options, and calls it. The commands are listed in
 * ctl_commands.c, and each lives in a ctl_ file. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl_commands.h"
#include "daemon/ctl/terminal/ctl_help.h"
#include "daemon/ctl/terminal/ctl_term.h"
#include "daemon/common/xalloc.h"

static const char default_socket[] = "/run/ringd/ringd.sock";

static const struct opt_def *find_option(const struct opt_def *defs, const char *arg)
{
    for (const struct opt_def *def = defs; def->name; def++) {
        if (arg[1] == '-' ? !strcmp(arg + 2, def->name) : arg[1] == def->short_name && !arg[2])
            return def;
    }
    return NULL;
}

/* Index of the nth word from `at` on that is neither an option nor an option's value; "--" ends the
 * options. argc if none. */
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
    term_set_colors(opts_str(ctl->opts, "color"));
    ctl->json = opts_flag(ctl->opts, "json");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int status = ctl->command->main(ctl);
    curl_global_cleanup();
    if (fflush(stdout) && status == CTL_OK)
        status = ctl_fail(CTL_FAILED, "the output could not be written");
    return status;
}

/* argv[word] is the command's name, argv[led_by] that of one before it that leads, or 0. */
static int run_command(const struct ctl_command *command, int argc, char **argv, int word, int led_by)
{
    struct opt_def *defs = ctl_all_options(&ctl_tables, command);
    struct ctl ctl = {
        .command = command, .tables = &ctl_tables, .opts = opts_new(defs), .plans = led_by != 0};
    struct err err;
    bool help = false;
    int end = command->has_rest ? find_word(defs, argc, argv, word + 1, 1) : argc;
    ctl.rest = argv + end;
    ctl.n_rest = argc - end;
    char **own = xcalloc((size_t)argc + 1, sizeof *own), **positional = NULL;
    int n = 0, status;
    for (int i = 0; i < end; i++) {
        if (i != word && (!led_by || i != led_by))
            own[n++] = argv[i];
    }
    if (opts_parse(ctl.opts, n, own, &positional, &ctl.n_args, &help, &err)) {
        status = ctl_usage(&ctl, "%s", err.text);
    } else if (help) {
        ctl_help_command(command, defs);
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

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; n && (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
}

/* argv[word] is that command; behind it stands the one whose plan is wanted. */
static int run_leading(const struct ctl_command *command, int argc, char **argv, int word)
{
    int at = find_word(ctl_tables.options, argc, argv, word + 1, 0);
    if (at == argc)
        return run_command(command, argc, argv, word, 0);
    if (!has_word(command->words, argv[at]))
        return ctl_fail(CTL_USAGE, "%s is followed by one of: %s; \"%s\" is none of them", command->name,
                        command->words, argv[at]);
    return run_command(ctl_find_command(&ctl_tables, argv[at]), argc, argv, at, word);
}

/* No command: help, the version, or the overview, with the status of wrong usage: a script whose
 * COMMAND was empty should not go on as if it had run. */
static int run_bare(int argc, char **argv)
{
    struct opts *o = opts_new(ctl_tables.options);
    struct err err;
    char **positional = NULL;
    int n, status = CTL_OK;
    bool help = false;
    if (opts_parse(o, argc, argv, &positional, &n, &help, &err))
        status = ctl_fail(CTL_USAGE, "%s", err.text);
    else if (help)
        ctl_help_all(&ctl_tables);
    else if (opts_flag(o, "version"))
        puts("ringctl " RINGD_VERSION);
    else if (opts_flag(o, "json"))
        status = ctl_fail(CTL_USAGE, "a command is missing: ringctl help lists them");
    else {
        ctl_help_overview(&ctl_tables);
        status = CTL_USAGE;
    }
    free(positional);
    opts_free(o);
    return status;
}

int main(int argc, char **argv)
{
    int word = find_word(ctl_tables.options, argc, argv, 1, 0);
    if (word == argc)
        return run_bare(argc, argv);
    const struct ctl_command *c = ctl_find_command(&ctl_tables, argv[word]);
    if (!c)
        return ctl_unknown_command(&ctl_tables, argv[word]);
    return c->leads ? run_leading(c, argc, argv, word) : run_command(c, argc, argv, word, 0);
}
