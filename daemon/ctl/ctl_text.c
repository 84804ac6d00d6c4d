/* SPDX-License-Identifier: MIT
 *
 * ringctl tokenize, detokenize and render: each becomes a ringd-stage, which has the tokenizers and
 * the templates; no daemon is needed, and files are read as the user who asks. One thread. */
#include "daemon/ctl/ctl_text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/common/xalloc.h"

enum { CHECK_MS = 30000 };

const struct opt_def ctl_tokenize_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .required = true,
     .help = "model, or a directory with a tokenizer.json"},
    {.name = "ids",
     .type = OPT_FLAG,
     .help = "print only the ids, such as 1,2,3, for --ids of generate and score"},
    {.name = "no-special",
     .type = OPT_FLAG,
     .help = "do not add the tokenizer's special tokens before and after the text"},
    {.name = NULL},
};

const struct opt_def ctl_detokenize_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .required = true,
     .help = "model, or a directory with a tokenizer.json"},
    {.name = "skip-special",
     .type = OPT_FLAG,
     .help = "leave out special tokens, such as the tokens that begin and end a text"},
    {.name = NULL},
};

const struct opt_def ctl_render_options[] = {
    {.name = "model",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .required = true,
     .help = "model with a chat template, as a Hugging Face directory or a GGUF file"},
    {.name = "message",
     .type = OPT_LIST,
     .placeholder = "ROLE=TEXT",
     .help = "render these messages instead of FILE, in this order, such as user=Hello"},
    {.name = "no-generation-prompt",
     .type = OPT_FLAG,
     .help = "do not append the prompt for an answer, as training renders a whole conversation"},
    {.name = "template-arg",
     .type = OPT_LIST,
     .placeholder = "NAME=VALUE",
     .help = "variables of the chat template, such as enable_thinking=false"},
    {.name = NULL},
};

/* Becomes the stage. Takes over spec. */
static int become_stage(const struct ctl *ctl, json_t *spec)
{
    char *text = json_dumps(spec, JSON_COMPACT), *stage = conf_default_stage();
    char *argv[] = {stage, (char *)"text", text, (char *)(ctl->json ? "json" : "text"), NULL};
    int rc;
    if (text) {
        execv(stage, argv);
        rc = errno == E2BIG
                 ? ctl_fail(CTL_USAGE, "the text is too long for a command line: give - and let it come "
                                       "from standard input")
                 : ctl_fail(CTL_FAILED, "%s, which reads tokenizers, cannot be run: %s", stage,
                            strerror(errno));
    } else {
        rc = ctl_fail(CTL_USAGE, "the command cannot be passed on: a path or a text is not UTF-8");
    }
    json_decref(spec);
    free(stage);
    free(text);
    return rc;
}

static json_t *new_spec(const struct ctl *ctl, const char *what)
{
    return json_pack("{s:s, s:o}", "do", what, "model", json_string(opts_str(ctl->opts, "model")));
}

static bool is_stdin(const char *word)
{
    return !strcmp(word, "-");
}

int ctl_tokenize_main(struct ctl *ctl)
{
    if (ctl->n_args > 1)
        return ctl_usage(ctl, "\"%s\" comes after the text: put the text in quotes", ctl->args[1]);
    json_t *spec = new_spec(ctl, "tokenize");
    json_object_set_new(spec, "special", json_boolean(!opts_flag(ctl->opts, "no-special")));
    json_object_set_new(spec, "ids", json_boolean(opts_flag(ctl->opts, "ids")));
    if (!ctl->n_args && isatty(STDIN_FILENO)) {
        json_decref(spec);
        return ctl_usage(ctl, "a TEXT is missing, or - for standard input");
    }
    if (ctl->n_args && !is_stdin(ctl->args[0]) &&
        json_object_set_new(spec, "text", json_string(ctl->args[0]))) {
        json_decref(spec);
        return ctl_usage(ctl, "the text is not UTF-8");
    }
    return become_stage(ctl, spec);
}

int ctl_detokenize_main(struct ctl *ctl)
{
    bool from_stdin = ctl->n_args == 1 && is_stdin(ctl->args[0]);
    if (!ctl->n_args)
        return ctl_usage(ctl, "token ids are missing, as 1 2 3 or 1,2,3, or - for standard input");
    json_t *spec = new_spec(ctl, "detokenize");
    json_object_set_new(spec, "skip_special", json_boolean(opts_flag(ctl->opts, "skip-special")));
    char *ids = xstrdup("");
    for (int i = 0; i < ctl->n_args && !from_stdin; i++) {
        char *longer = xasprintf("%s %s", ids, ctl->args[i]);
        free(ids);
        ids = longer;
    }
    int r = from_stdin ? 0 : json_object_set_new(spec, "ids", json_string(ids));
    free(ids);
    if (!r)
        return become_stage(ctl, spec);
    json_decref(spec);
    return ctl_usage(ctl, "token ids are numbers, as 1 2 3 or 1,2,3");
}

/* --message ROLE=TEXT as a list; NULL: what is wrong has been printed. */
static json_t *read_messages(const struct ctl *ctl, const char *const *items, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(items[i], '=');
        char *role = eq ? xstrndup(items[i], (size_t)(eq - items[i])) : NULL;
        json_t *message = eq && *role ? json_pack("{s:s, s:s}", "role", role, "content", eq + 1) : NULL;
        free(role);
        if (message) {
            json_array_append_new(list, message);
            continue;
        }
        json_decref(list);
        ctl_usage(ctl, "--message \"%s\": ROLE=TEXT in UTF-8 is needed, as user=Hello", items[i]);
        return NULL;
    }
    return list;
}

int ctl_render_main(struct ctl *ctl)
{
    const char *const *items;
    const size_t n = opts_list(ctl->opts, "message", &items);
    if (ctl->n_args > 1)
        return ctl_usage(ctl, "\"%s\": one file of messages at a time", ctl->args[1]);
    if ((n > 0) == (ctl->n_args == 1))
        return ctl_usage(ctl,
                         n ? "\"%s\" and --message are two conversations: give one"
                           : "messages are missing: a FILE, - for standard input, or --message ROLE=TEXT",
                         n ? ctl->args[0] : "");
    json_t *spec = new_spec(ctl, "render"), *messages = n ? read_messages(ctl, items, n) : NULL;
    json_object_set_new(spec, "generation", json_boolean(!opts_flag(ctl->opts, "no-generation-prompt")));
    int rc =
        n && !messages ? CTL_USAGE : ctl_spec_pairs(ctl, "template-arg", "template_args", "NAME=VALUE", spec);
    if (messages)
        json_object_set_new(spec, "messages", messages);
    else if (n == 0 && !is_stdin(ctl->args[0]) &&
             json_object_set_new(spec, "file", json_string(ctl->args[0])))
        rc = rc ? rc : ctl_usage(ctl, "the name of the file is not UTF-8");
    if (!rc)
        return become_stage(ctl, spec);
    json_decref(spec);
    return rc;
}

/* --- before a conversation -------------------------------------------------------------------- */

/* A stage that prints nothing but what is wrong, and that no signal of ours is kept from; its
 * process, or −1. */
static pid_t start_check(char *const argv[])
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none;
    pid_t pid = -1;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    if (posix_spawn(&pid, argv[0], &files, &attr, argv, environ))
        pid = -1;
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return pid;
}

int ctl_text_check(const char *model, const json_t *messages, const json_t *template_args, int signal_fd)
{
    json_t *spec = json_pack("{s:s, s:s, s:b, s:b, s:O, s:O*}", "do", "render", "model", model, "check", 1,
                             "generation", 1, "messages", messages, "template_args", template_args);
    char *text = json_dumps(spec, JSON_COMPACT), *stage = conf_default_stage();
    char *argv[] = {stage, (char *)"text", text, (char *)"text", NULL};
    pid_t pid = text ? start_check(argv) : -1;
    int status = 0, pid_fd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p[] = {{.fd = pid_fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
    if (pid >= 0 && (pid_fd < 0 || poll(p, 2, CHECK_MS) <= 0 || !p[0].revents))
        kill(pid, SIGKILL);
    while (pid >= 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid_fd >= 0)
        close(pid_fd);
    json_decref(spec);
    free(stage);
    free(text);
    return pid >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == CTL_FAILED ? CTL_FAILED : CTL_OK;
}
