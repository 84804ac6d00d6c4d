/* SPDX-License-Identifier: MIT
 *
 * ringctl help, --help, and the overview of a bare ringctl; the texts come from the tables of
 * ctl_commands.c. One thread. */
#include "daemon/ctl/terminal/ctl_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/spec_options.h"
#include "daemon/ctl/terminal/ctl_term.h"

const struct ctl_command *ctl_find_command(const struct ctl_tables *tables, const char *name)
{
    const struct ctl_command *c = tables->commands;
    while (c->name && strcmp(c->name, name))
        c++;
    return c->name ? c : NULL;
}

int ctl_unknown_command(const struct ctl_tables *tables, const char *wrong)
{
    const struct ctl_command *best = NULL;
    size_t least = SIZE_MAX;
    for (const struct ctl_command *c = tables->commands; c->name; c++) {
        size_t distance;
        if (opts_is_near(wrong, c->name, &distance) && distance < least) {
            least = distance;
            best = c;
        }
    }
    return best ? ctl_fail(CTL_USAGE, "\"%s\" is not a command: did you mean %s?", wrong, best->name)
                : ctl_fail(CTL_USAGE, "\"%s\" is not a command: ringctl help lists them", wrong);
}

struct opt_def *ctl_all_options(const struct ctl_tables *tables, const struct ctl_command *command)
{
    return spec_options_new(command->spec, command->options, tables->options);
}

void ctl_help_all(const struct ctl_tables *tables)
{
    puts("usage: ringctl [OPTIONS] COMMAND …\n\nCommands:");
    for (const struct ctl_command *c = tables->commands; c->name; c++) {
        if (c->group)
            printf(" %s\n", c->group);
        printf("  %-11s %s\n", c->name, c->help);
    }
    puts("\nOptions, before or after the command:");
    opts_help(tables->options, stdout);
    puts("\nringctl help COMMAND says more about one. Exit status: 0 done, 1 the job failed or was refused,\n"
         "2 wrong usage, 3 no daemon answers, 130 interrupted or detached.");
}

void ctl_help_command(const struct ctl_command *command, const struct opt_def *defs)
{
    printf("usage: ringctl %s%s%s\n\n%s.\n\n", command->name, *command->args ? " " : "", command->args,
           command->help);
    if (command->has_rest)
        puts("COMMAND is any other command of ringctl, or \"exec PROGRAM ARGS…\": a program that finds the "
             "first node\n"
             "through $RINGD_SOCKET.\n");
    opts_help(defs, stdout);
}

/* The names of the commands of each group, in lines of at most so many columns. */
static void print_groups(const struct ctl_command *commands, size_t columns)
{
    enum { INDENT = 4 };
    size_t at = 0;
    for (const struct ctl_command *c = commands; c->name; c++) {
        size_t n = strlen(c->name);
        if (c->group) {
            printf("%s\n  %s\n", c == commands ? "" : "\n", c->group);
            at = 0;
        } else if (at + 2 + n > columns) {
            putchar('\n');
            at = 0;
        }
        printf("%*s%s", at ? 2 : INDENT, "", c->name);
        at += (at ? 2 : INDENT) + n;
    }
    putchar('\n');
}

void ctl_help_overview(const struct ctl_tables *tables)
{
    enum { MOST = 78 };
    size_t width = term_width(stdout);
    puts("ringctl fine-tunes and runs language models on a ring of machines.\n"
         "usage: ringctl [OPTIONS] COMMAND …");
    print_groups(tables->commands, width > 0 && width < MOST ? width : MOST);
    puts("\nWhere to begin\n"
         "  ringctl status              is there a ring, and what is missing?\n"
         "  ringctl doctor              is all well, and what would help?\n"
         "  ringctl init                the first node of a cluster\n"
         "  ringctl generate --model DIR \"Once upon a time\"\n"
         "  ringctl local 3 COMMAND …   the same without a ring: three nodes on this machine\n"
         "\n"
         "ringctl help lists all commands, ringctl help COMMAND shows one with its options.");
}

int ctl_help_main(struct ctl *ctl)
{
    if (ctl->n_args > 1)
        return ctl_usage(ctl, "\"%s\": one command at a time", ctl->args[1]);
    const struct ctl_command *command = ctl->n_args ? ctl_find_command(ctl->tables, ctl->args[0]) : NULL;
    if (ctl->n_args && !command)
        return ctl_unknown_command(ctl->tables, ctl->args[0]);
    if (!command) {
        ctl_help_all(ctl->tables);
        return CTL_OK;
    }
    struct opt_def *defs = ctl_all_options(ctl->tables, command);
    ctl_help_command(command, defs);
    free(defs);
    return CTL_OK;
}
