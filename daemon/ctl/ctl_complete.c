/* SPDX-License-Identifier: MIT
 *
 * ringctl completion: a script for bash, fish or zsh, made from the tables of commands and options.
 * The script asks the daemon for the numbers of jobs and the names of members and ports; where none
 * answers it offers nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/spec_options.h"

/* --- all shells ------------------------------------------------------------------------------- */

enum value_kind { VALUE_NONE, VALUE_FILE, VALUE_FOLDER, VALUE_CHOICE, VALUE_ANY };

static enum value_kind value_kind(const struct opt_def *def)
{
    switch (def->type) {
    case OPT_FLAG: return VALUE_NONE;
    case OPT_PATH: return !strcmp(def->placeholder, "DIR") ? VALUE_FOLDER : VALUE_FILE;
    case OPT_CHOICE: return VALUE_CHOICE;
    default: return VALUE_ANY;
    }
}

/* Calls that for every command, with the options that it alone has. */
static void each_command(const struct ctl_tables *tables,
                         void (*print)(const struct ctl_command *c, const struct opt_def *own,
                                       const struct opt_def *global))
{
    for (const struct ctl_command *c = tables->commands; c->name; c++) {
        struct opt_def *own = spec_options_new(c->spec, c->options, NULL);
        print(c, own, tables->options);
        free(own);
    }
}

/* "a|b|FILE" as "a b" */
static void print_choices(const struct opt_def *def)
{
    for (const char *p = def->placeholder; *p && strcmp(p, "FILE"); p++)
        putchar(*p == '|' ? ' ' : *p);
}

/* The shell commands that print what there is, one name a line. The daemon's tables have a line of
 * heads; that of the members has one more above. Names stand in the first column. */
static const char names_functions[] =
    "_ringctl_names() {\n"
    "    case $1 in\n"
    "    jobs) ringctl jobs 2>/dev/null | awk 'NR > 1 && $1 + 0 { print $1 }' ;;\n"
    "    members) ringctl members 2>/dev/null | awk 'NR > 2 { print $1 }' ;;\n"
    "    ports) ringctl ports 2>/dev/null | awk 'NR > 1 { print $1 }' ;;\n"
    "    esac\n"
    "}\n";

static const char *names_word(enum ctl_names names)
{
    switch (names) {
    case CTL_NAMES_COMMANDS: return "commands";
    case CTL_NAMES_JOBS: return "jobs";
    case CTL_NAMES_MEMBERS: return "members";
    case CTL_NAMES_PORTS: return "ports";
    case CTL_NAMES_NOTHING: break;
    }
    return NULL;
}

/* --- bash ------------------------------------------------------------------------------------- */

static void bash_option_names(const struct opt_def *defs)
{
    for (const struct opt_def *def = defs; def && def->name; def++)
        printf(" --%s", def->name);
}

static void bash_options(const struct ctl_command *c, const struct opt_def *own, const struct opt_def *global)
{
    (void)global;
    printf("    %s) words='", c->name);
    bash_option_names(own);
    puts("' ;;");
}

/* Cases of COMMAND:OPTION whose value can be offered; "" is every command. */
static void bash_values(const char *command, const struct opt_def *defs)
{
    for (const struct opt_def *def = defs; def && def->name; def++) {
        enum value_kind kind = value_kind(def);
        if (kind == VALUE_NONE)
            continue;
        printf("    %s:--%s", command, def->name);
        if (def->short_name)
            printf(" | %s:-%c", command, def->short_name);
        if (kind == VALUE_FILE)
            puts(") how=files ;;");
        else if (kind == VALUE_FOLDER)
            puts(") how=folders ;;");
        else if (kind == VALUE_ANY)
            puts(") how=nothing ;;");
        else {
            fputs(") how=words words='", stdout);
            print_choices(def);
            puts("' ;;");
        }
    }
}

static void bash_command_values(const struct ctl_command *c, const struct opt_def *own,
                                const struct opt_def *global)
{
    (void)global;
    bash_values(c->name, own);
}

static void bash_arguments(const struct ctl_command *c)
{
    const char *names = names_word(c->names);
    if (c->words)
        printf("    %s:0) words='%s' ;;\n", c->name, c->words);
    if (c->names == CTL_NAMES_COMMANDS)
        printf("    %s:0) words=$_ringctl_commands ;;\n", c->name);
    else if (names)
        printf("    %s:%d) words=$(_ringctl_names %s) ;;\n", c->name, c->words ? 1 : 0, names);
}

/* Finds the command, skipping options and their values; behind `local N` stands another one. */
static const char bash_body[] =
    "_ringctl() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} option= command= count=0 how=words words= i word\n"
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ $word == '=' ]]; then continue; fi\n"
    "        if [[ -n $option ]]; then option=; continue; fi\n"
    "        if [[ $word == -- ]]; then continue; fi\n"
    "        if [[ $word == -* ]]; then\n"
    "            _ringctl_value \"$command\" \"$word\"\n"
    "            [[ $how == none ]] || option=$word\n"
    "        elif [[ -z $command ]]; then command=$word\n"
    "        elif [[ ($command == local && $count -eq 1) || ($command == plan && $count -eq 0) ]]; then "
    "command=$word count=0\n"
    "        else count=$((count + 1)); fi\n"
    "    done\n"
    "    [[ $cur != '=' ]] || cur=\n"
    "    how=words words=\n"
    "    if [[ -n $option ]]; then _ringctl_value \"$command\" \"$option\"\n"
    "    elif [[ $cur == -* ]]; then _ringctl_options \"$command\"\n"
    "    elif [[ -z $command || ($command == local && $count -eq 1) ]]; then words=$_ringctl_commands\n"
    "    else _ringctl_arguments \"$command\" $count; fi\n"
    "    case $how in\n"
    "    files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
    "    folders) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
    "    words) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
    "    esac\n"
    "}\n"
    "complete -F _ringctl ringctl\n";

static void print_bash(const struct ctl_tables *tables)
{
    puts("# Completion of ringctl(1) for bash, made by `ringctl completion bash`.");
    fputs("_ringctl_commands='", stdout);
    for (const struct ctl_command *c = tables->commands; c->name; c++)
        printf("%s%s", c == tables->commands ? "" : " ", c->name);
    puts("'");
    fputs(names_functions, stdout);
    puts("_ringctl_options() {\n    case $1 in");
    each_command(tables, bash_options);
    fputs("    esac\n    words+='", stdout);
    bash_option_names(tables->options);
    puts(" --help'\n}");
    puts("# How the value of an option is completed: files, folders, words, nothing; none if it takes none.\n"
         "_ringctl_value() {\n    how=none\n    case $1:$2 in");
    each_command(tables, bash_command_values);
    bash_values("*", tables->options);
    puts("    esac\n}\n_ringctl_arguments() {\n    case $1:$2 in");
    for (const struct ctl_command *c = tables->commands; c->name; c++)
        bash_arguments(c);
    puts("    esac\n}");
    fputs(bash_body, stdout);
}

/* --- zsh -------------------------------------------------------------------------------------- */

/* Inside single quotes and an option's brackets. */
static void zsh_text(const char *text, const char *escape)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            fputs("'\\''", stdout);
        else if (strchr(escape, *p))
            printf("\\%c", *p);
        else
            putchar(*p);
    }
}

static void zsh_option(const struct opt_def *def)
{
    bool repeats = def->type == OPT_LIST, has_value = def->type != OPT_FLAG;
    fputs("        ", stdout);
    if (def->short_name && has_value)
        printf("{-%c+,--%s=}", def->short_name, def->name);
    else if (def->short_name)
        printf("{-%c,--%s}", def->short_name, def->name);
    else
        printf("%s--%s%s", repeats ? "'*'" : "", def->name, has_value ? "=" : "");
    fputs("'[", stdout);
    zsh_text(def->help, "[]\\");
    putchar(']');
    if (has_value) {
        putchar(':');
        zsh_text(value_kind(def) == VALUE_CHOICE ? def->name : def->placeholder, ":\\");
        putchar(':');
    }
    switch (value_kind(def)) {
    case VALUE_FILE: fputs("_files", stdout); break;
    case VALUE_FOLDER: fputs("_files -/", stdout); break;
    case VALUE_CHOICE:
        putchar('(');
        print_choices(def);
        putchar(')');
        break;
    case VALUE_NONE:
    case VALUE_ANY: break;
    }
    puts("' \\");
}

static void zsh_options(const struct opt_def *defs)
{
    for (const struct opt_def *def = defs; def && def->name; def++)
        zsh_option(def);
}

static void zsh_command(const struct ctl_command *c, const struct opt_def *own, const struct opt_def *global)
{
    const char *names = names_word(c->names);
    printf("    %s)\n        _arguments \\\n", c->name);
    zsh_options(own);
    zsh_options(global);
    if (c->has_rest)
        puts("        '1:N:' '*:::command:_ringctl_again' \\");
    if (c->leads)
        puts("        '*:::command:_ringctl_again' \\");
    else if (c->words)
        printf("        '1:%s:(%s)' \\\n", c->name, c->words);
    if (names)
        printf("        '%d:%s:_ringctl_%s' \\\n", c->words ? 2 : 1, names, names);
    puts("        '--help[show how it is used]'\n        ;;");
}

static void print_zsh(const struct ctl_tables *tables)
{
    /* Behind `local N` a whole command line follows, without the program's name. */
    puts("#compdef ringctl\n# Completion of ringctl(1) for zsh, made by `ringctl completion zsh`.");
    fputs(names_functions, stdout);
    for (enum ctl_names names = CTL_NAMES_JOBS; names <= CTL_NAMES_PORTS; names++)
        printf("_ringctl_%s() { compadd -- ${(f)\"$(_ringctl_names %s)\"} }\n", names_word(names),
               names_word(names));
    puts("_ringctl_again() { words=(ringctl \"${words[@]}\"); ((CURRENT++)); _ringctl }");
    puts("_ringctl_commands() {\n    local -a commands=(");
    for (const struct ctl_command *c = tables->commands; c->name; c++) {
        printf("        '%s:", c->name);
        zsh_text(c->help, ":\\");
        puts("'");
    }
    puts("    )\n    _describe command commands\n}\n"
         "_ringctl() {\n    local curcontext=$curcontext state line\n    _arguments -C \\");
    zsh_options(tables->options);
    puts("        '--help[show how it is used]' \\\n        '1:command:_ringctl_commands' "
         "'*::argument:->argument' && return\n    [[ $state == argument ]] || return\n    case $words[1] in");
    each_command(tables, zsh_command);
    puts("    esac\n}\n"
         "# Read as a file of fpath it is the function itself; sourced, it registers one.\n"
         "if [[ $funcstack[1] == _ringctl ]]; then _ringctl \"$@\"; else compdef _ringctl ringctl; fi");
}

/* --- fish ------------------------------------------------------------------------------------- */

/* Finds the command, as in bash: __ringctl_at prints its name and how many arguments stand behind
 * it. */
static const char fish_body[] = "function __ringctl_at\n"
                                "    set -l words (commandline -opc)\n"
                                "    set -l command\n"
                                "    set -l count 0\n"
                                "    set -l is_value 0\n"
                                "    for word in $words[2..-1]\n"
                                "        if test $is_value = 1\n"
                                "            set is_value 0\n"
                                "        else if string match -q -- '--*=*' $word\n"
                                "        else if string match -q -- '-*' $word\n"
                                "            if contains -- \"$command:$word\" $__ringctl_valued; or "
                                "contains -- \":$word\" $__ringctl_valued\n"
                                "                set is_value 1\n"
                                "            end\n"
                                "        else if test -z \"$command\"; or test $command = local -a $count = "
                                "1; or test $command = plan -a $count = 0\n"
                                "            set command $word\n"
                                "            set count 0\n"
                                "        else\n"
                                "            set count (math $count + 1)\n"
                                "        end\n"
                                "    end\n"
                                "    echo \"$command\"\n"
                                "    echo $count\n"
                                "end\n"
                                "function __ringctl_in\n"
                                "    set -l at (__ringctl_at)\n"
                                "    test \"$at[1]\" = $argv[1]\n"
                                "end\n"
                                "function __ringctl_argument\n"
                                "    set -l at (__ringctl_at)\n"
                                "    test \"$at[1]\" = $argv[1] -a $at[2] = $argv[2]\n"
                                "end\n"
                                "function __ringctl_wants_command\n"
                                "    set -l at (__ringctl_at)\n"
                                "    test -z \"$at[1]\"; or test \"$at[1]\" = local -a $at[2] = 1\n"
                                "end\n"
                                "function __ringctl_names\n"
                                "    switch $argv[1]\n"
                                "        case commands\n"
                                "            string join \\n $__ringctl_commands\n"
                                "        case jobs\n"
                                "            ringctl jobs 2>/dev/null | awk 'NR > 1 && $1 + 0 { print $1 }'\n"
                                "        case members\n"
                                "            ringctl members 2>/dev/null | awk 'NR > 2 { print $1 }'\n"
                                "        case ports\n"
                                "            ringctl ports 2>/dev/null | awk 'NR > 1 { print $1 }'\n"
                                "    end\n"
                                "end\n"
                                "complete -c ringctl -f\n";

/* Between single quotes. */
static void fish_text(const char *text)
{
    putchar('\'');
    for (const char *p = text; *p; p++)
        printf("%s%c", *p == '\'' || *p == '\\' ? "\\" : "", *p);
    putchar('\'');
}

/* command: whose they are, NULL = every command's */
static void fish_options(const char *command, const struct opt_def *defs)
{
    for (const struct opt_def *def = defs; def && def->name; def++) {
        fputs("complete -c ringctl", stdout);
        if (command)
            printf(" -n '__ringctl_in %s'", command);
        printf(" -l %s", def->name);
        if (def->short_name)
            printf(" -s %c", def->short_name);
        switch (value_kind(def)) {
        case VALUE_NONE: break;
        case VALUE_FILE: fputs(" -r -F", stdout); break;
        case VALUE_FOLDER: fputs(" -x -a '(__fish_complete_directories (commandline -ct))'", stdout); break;
        case VALUE_CHOICE:
            fputs(" -x -a '", stdout);
            print_choices(def);
            putchar('\'');
            break;
        case VALUE_ANY: fputs(" -x", stdout); break;
        }
        fputs(" -d ", stdout);
        fish_text(def->help);
        putchar('\n');
    }
}

/* Options whose next word is their value, as COMMAND:OPTION; without COMMAND, of every command. */
static void fish_valued(const char *command, const struct opt_def *defs)
{
    for (const struct opt_def *def = defs; def && def->name; def++) {
        if (value_kind(def) == VALUE_NONE)
            continue;
        printf(" %s:--%s", command, def->name);
        if (def->short_name)
            printf(" %s:-%c", command, def->short_name);
    }
}

static void fish_command_valued(const struct ctl_command *c, const struct opt_def *own,
                                const struct opt_def *global)
{
    (void)global;
    fish_valued(c->name, own);
}

static void fish_command(const struct ctl_command *c, const struct opt_def *own, const struct opt_def *global)
{
    const char *names = names_word(c->names);
    (void)global;
    printf("complete -c ringctl -n __ringctl_wants_command -a %s -d ", c->name);
    fish_text(c->help);
    putchar('\n');
    if (c->words)
        printf("complete -c ringctl -n '__ringctl_argument %s 0' -a '%s'\n", c->name, c->words);
    if (names)
        printf("complete -c ringctl -n '__ringctl_argument %s %d' -a '(__ringctl_names %s)'\n", c->name,
               c->words ? 1 : 0, names);
    fish_options(c->name, own);
}

static void print_fish(const struct ctl_tables *tables)
{
    fputs("# Completion of ringctl(1) for fish, made by `ringctl completion fish`.\n"
          "set -g __ringctl_commands",
          stdout);
    for (const struct ctl_command *c = tables->commands; c->name; c++)
        printf(" %s", c->name);
    fputs("\nset -g __ringctl_valued", stdout);
    fish_valued("", tables->options);
    each_command(tables, fish_command_valued);
    putchar('\n');
    fputs(fish_body, stdout);
    each_command(tables, fish_command);
    fish_options(NULL, tables->options);
    puts("complete -c ringctl -l help -d 'show how it is used'");
}

int ctl_completion_main(struct ctl *ctl)
{
    static const struct {
        const char *shell;
        void (*print)(const struct ctl_tables *tables);
    } shells[] = {{"bash", print_bash}, {"fish", print_fish}, {"zsh", print_zsh}};
    if (ctl->n_args != 1)
        return ctl_usage(ctl, "give the name of a shell: bash, fish or zsh");
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (!strcmp(ctl->args[0], shells[i].shell)) {
            shells[i].print(ctl->tables);
            return CTL_OK;
        }
    }
    return ctl_usage(ctl, "\"%s\": completion is made for bash, fish and zsh", ctl->args[0]);
}
