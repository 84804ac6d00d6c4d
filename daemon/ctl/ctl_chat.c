/* SPDX-License-Identifier: MIT
 *
 * ringctl chat: a conversation, a line from standard input for each turn, answered by what is
 * served, else by a job that keeps the model loaded between turns, or by another one where that
 * has ended. Owns the messages so far, and the signals while it waits for a line: ^C ends an
 * answer, and never the conversation. One thread. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/terminal/ctl_line.h"
#include "daemon/ctl/terminal/ctl_meter.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/ctl_served.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/ctl/ctl_text.h"
#include "daemon/ctl/ctl_watch.h"
#include "daemon/common/xalloc.h"

enum { LINE_MOST = 1 << 20 };
static const char prompt[] = "> ";

const struct opt_def ctl_chat_options[] = {
    {.name = "no-history",
     .type = OPT_FLAG,
     .help = "do not save the lines you type; otherwise the arrow keys recall them from "
             "$XDG_STATE_HOME/ringd/chat_history or ~/.local/state/ringd/chat_history"},
    {.name = NULL},
};

struct chat {
    const struct ctl *ctl;
    json_t *spec;     /* owned: of every answer, but for what was said */
    json_t *system;   /* owned: what --system says, or NULL */
    json_t *messages; /* owned */
    int signal_fd;
    bool is_terminal;
    struct ctl_line *editor; /* owned: of the lines on a terminal, NULL = they come as they are */
    bool at_end;             /* of standard input */
    char *input;             /* owned: read and not yet a line */
    size_t n, room;
    int64_t answers;
    char *served;           /* owned: what is served and answers; NULL: jobs do */
    char job[CTL_JOB_NAME]; /* that keeps the model loaded, or "" */
    uint64_t last_id;       /* of its events, the last one seen */
};

/* --- what comes in ---------------------------------------------------------------------------- */

static void hint(const struct chat *c)
{
    if (c->is_terminal)
        fprintf(stderr, "/reset forgets what was said, /quit or ^D ends, ^C stops an answer%s\n",
                c->editor ? "; arrow keys edit and bring back lines" : "");
}

static void forget(struct chat *c)
{
    json_decref(c->messages);
    c->messages = json_array();
    if (c->system)
        json_array_append_new(c->messages, json_pack("{s:s,s:O}", "role", "system", "content", c->system));
}

static void read_some(struct chat *c)
{
    if (c->room < c->n + 4096)
        c->input = xrealloc(c->input, c->room = 2 * c->room + 8192);
    ssize_t got = read(STDIN_FILENO, c->input + c->n, c->room - c->n);
    if (got > 0)
        c->n += (size_t)got;
    else if (got == 0 || errno != EINTR)
        c->at_end = true;
}

/* ^C at the prompt drops what was typed; anything else ends the conversation. */
static bool on_signal(struct chat *c)
{
    struct signalfd_siginfo info;
    if (read(c->signal_fd, &info, sizeof info) != sizeof info)
        return true;
    if (info.ssi_signo != SIGINT || !c->is_terminal)
        return false;
    c->n = 0;
    fputc('\n', stderr);
    hint(c);
    if (!c->editor)
        fputs(prompt, stderr);
    return true;
}

static char *edited_line(struct chat *c, int *ret_rc)
{
    for (;;) {
        char *line;
        switch (ctl_line_read(c->editor, c->signal_fd, &line)) {
        case LINE_AT_END: return NULL;
        case LINE_SIGNAL:
            if (on_signal(c))
                break;
            *ret_rc = CTL_INTERRUPTED;
            return NULL;
        case LINE_TYPED: return line;
        }
    }
}

/* The same of a pipe, a file, or a terminal that cannot move its cursor. */
static char *plain_line(struct chat *c, int *ret_rc)
{
    struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = c->signal_fd, .events = POLLIN}};
    if (c->is_terminal)
        fputs(prompt, stderr);
    for (;;) {
        char *eol = c->n ? memchr(c->input, '\n', c->n) : NULL;
        size_t n = eol ? (size_t)(eol - c->input) : c->n;
        if (eol || (c->at_end && n)) {
            char *line = xstrndup(c->input, n);
            c->n -= n + (eol != NULL);
            memmove(c->input, c->input + n + (eol != NULL), c->n);
            return line;
        }
        if (c->at_end || c->n > LINE_MOST)
            return c->at_end ? NULL : xstrndup(c->input, c->n);
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[1].revents && !on_signal(c)) {
            *ret_rc = CTL_INTERRUPTED;
            return NULL;
        }
        if (p[0].revents)
            read_some(c);
    }
}

/* The next line, which the caller frees; NULL at the end, with ret_rc. Waits as long as somebody
 * thinks. */
static char *next_line(struct chat *c, int *ret_rc)
{
    char *line = c->editor ? edited_line(c, ret_rc) : plain_line(c, ret_rc);
    if (!line || strlen(line) <= LINE_MOST)
        return line;
    free(line);
    *ret_rc = ctl_fail(CTL_USAGE, "a line of more than %d bytes", LINE_MOST);
    return NULL;
}

/* --- what goes out ---------------------------------------------------------------------------- */

struct answer {
    struct meter meter;
    bool silent; /* --json */
    char *text;  /* owned: what has been shown */
    size_t n;
    bool is_broken; /* events were lost: the end prints the rest */
};

static void on_aside(void *owner, const char *text)
{
    struct answer *a = owner;
    if (a->silent)
        return;
    fputs(text, stdout);
    fflush(stdout);
    meter_wrote(&a->meter, text);
}

static void on_answer_text(void *owner, const char *text)
{
    struct answer *a = owner;
    const size_t n = strlen(text);
    on_aside(a, text);
    a->text = xrealloc(a->text, a->n + n + 1);
    memcpy(a->text + a->n, text, n + 1);
    a->n += n;
}

static void on_answer_event(void *owner, const char *type, const json_t *data)
{
    struct answer *a = owner;
    if (!strcmp(type, "job")) {
        meter_event(&a->meter, type, data);
    } else if (!strcmp(type, "resync")) {
        a->is_broken = true;
    } else if (!strcmp(type, "token") && !a->is_broken) {
        on_answer_text(a, field_text(data, "text", ""));
    }
}

/* The rest of the answer, or all of it where what was shown is no part of it; a->text is the whole
 * then. */
static void complete(struct answer *a, const json_t *result)
{
    const char *text = field_text(result, "text", a->text);
    bool is_rest = strlen(text) >= a->n && !memcmp(text, a->text, a->n);
    if (!a->silent)
        printf("%s%s\n", is_rest ? "" : "\n", is_rest ? text + a->n : text);
    fflush(stdout);
    char *whole = xstrdup(text);
    free(a->text);
    a->text = whole;
}

static json_int_t seed_of(const struct chat *c)
{
    return (json_int_t)(opts_int(c->ctl->opts, "seed") + c->answers);
}

static json_t *turn_spec(struct chat *c)
{
    json_t *spec = json_copy(c->spec);
    json_object_set(spec, "messages", c->messages);
    json_object_set_new(spec, "seed", json_integer(seed_of(c)));
    return spec;
}

/* Takes over turn. False: there is no job any more that could take it, which is no reason to say
 * anything. */
static bool post_turn(const struct chat *c, json_t *turn)
{
    char path[64], why[256];
    struct ctl quiet = *c->ctl;
    json_t *reply = NULL;
    quiet.complaint = why;
    quiet.complaint_size = sizeof why;
    snprintf(path, sizeof path, "/v1/jobs/%s/turn", c->job);
    bool taken = *c->job && ctl_request(&quiet, "POST", path, turn, &reply) == CTL_OK;
    json_decref(turn);
    json_decref(reply);
    return taken;
}

/* The job has answered, and perhaps waits for more. One that ended without, because it was to make
 * way or what was said outgrew it, has given no answer: then ret_end is NULL. */
static int await_answer(struct chat *c, struct watch *watch, bool again, json_t **ret_end)
{
    watch->last_id = again ? c->last_id : 0;
    int rc = ctl_watch(c->ctl, c->job, watch, ret_end);
    bool is_idle = !rc && !strcmp(field_text(*ret_end, "state", ""), "running");
    c->last_id = watch->last_id;
    if (!is_idle)
        *c->job = 0;
    if (!rc && again && !strcmp(field_text(*ret_end, "state", ""), "done")) {
        json_decref(*ret_end);
        *ret_end = NULL;
    }
    return rc;
}

static int get_answer(struct chat *c, struct watch *watch, json_t **ret_end)
{
    json_t *turn = json_pack("{s:O s:I}", "messages", c->messages, "seed", seed_of(c));
    int rc = post_turn(c, turn) ? await_answer(c, watch, true, ret_end) : CTL_OK;
    if (!rc && !*ret_end)
        rc = ctl_spec_submit(c->ctl, JOB_GENERATE, turn_spec(c), c->job);
    return rc || *ret_end ? rc : await_answer(c, watch, false, ret_end);
}

static int answer_by_job(struct chat *c, struct answer *a)
{
    struct watch watch = {.event = on_answer_event, .owner = a, .is_answer = true};
    json_t *end = NULL;
    int rc = get_answer(c, &watch, &end);
    bool was_stopped = !rc && !strcmp(field_text(end, "state", ""), "cancelled");
    if (!rc && !was_stopped && !*c->job)
        rc = ctl_watch_verdict(end);
    if (!rc)
        complete(a, json_object_get(end, "result"));
    json_decref(end);
    return rc;
}

static int answer_by_served(struct chat *c, struct answer *a)
{
    struct served_answer served = {
        .text = on_answer_text, .aside = on_aside, .owner = a, .signal_fd = c->signal_fd};
    json_t *spec = turn_spec(c);
    const int rc = ctl_served_ask(c->ctl, c->served, spec, &served);
    json_decref(spec);
    if (!a->silent)
        putchar('\n');
    fflush(stdout);
    return rc;
}

/* The answer to the messages so far becomes the next one; one that was stopped counts as far as it
 * went. */
static int answer(struct chat *c)
{
    struct answer a = {.silent = c->ctl->json, .text = xstrdup("")};
    meter_init(&a.meter);
    int rc = c->served ? answer_by_served(c, &a) : answer_by_job(c, &a);
    if (!rc)
        json_array_append_new(c->messages, json_pack("{s:s,s:s}", "role", "assistant", "content", a.text));
    c->answers += !rc;
    free(a.text);
    return rc;
}

/* A line of a user: a command, or a message and its answer. Whoever can try again is let. */
static int take_line(struct chat *c, const char *line, bool *ret_quit)
{
    *ret_quit = !strcmp(line, "/quit");
    if (!strcmp(line, "/reset"))
        forget(c);
    else if (*line == '/' && !*ret_quit)
        hint(c);
    if (*line == '/' || !*line)
        return CTL_OK;
    json_t *message = json_pack("{s:s,s:s}", "role", "user", "content", line);
    if (!message)
        return ctl_fail(CTL_USAGE, "that line is not UTF-8");
    json_array_append_new(c->messages, message);
    int rc = answer(c);
    if (rc)
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    return rc == CTL_FAILED && c->is_terminal ? CTL_OK : rc;
}

static int converse(struct chat *c)
{
    int rc = CTL_OK;
    bool quit = false;
    char *line;
    hint(c);
    while (!rc && !quit && (line = next_line(c, &rc))) {
        rc = take_line(c, line, &quit);
        free(line);
    }
    if (c->is_terminal && !quit)
        fputc('\n', stderr);
    post_turn(c, json_object()); /* nobody will say more: the ring is free for others */
    if (!rc && c->ctl->json) {
        json_t *all = json_pack("{s:O}", "messages", c->messages);
        print_json(all);
        json_decref(all);
    }
    return rc;
}

/* What the options say, before anything is asked of anybody. */
static int read_options(struct chat *c)
{
    const struct ctl *ctl = c->ctl;
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": chat takes no arguments, it reads lines from standard input",
                         ctl->args[0]);
    int rc = ctl_spec_read(ctl, &c->spec);
    if (rc)
        return rc;
    c->system = json_incref(json_object_get(c->spec, "system"));
    json_object_del(c->spec, "system");
    return CTL_OK;
}

/* Refuses a model without a template, or one whose template refuses --system, before the user
 * types. */
static int check_template(const struct chat *c)
{
    if (ctl_model_is_name(json_string_value(json_object_get(c->spec, "model"))))
        return CTL_OK; /* perhaps it is not here yet: the job says so then */
    json_t *messages = json_deep_copy(c->messages);
    json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", "Hello"));
    int rc = ctl_text_check(json_string_value(json_object_get(c->spec, "model")), messages,
                            json_object_get(c->spec, "template_args"), c->signal_fd);
    json_decref(messages);
    return rc;
}

static void open_editor(struct chat *c)
{
    if (!c->is_terminal || !ctl_line_can())
        return;
    char *history = opts_flag(c->ctl->opts, "no-history") ? NULL : ctl_line_history_path("chat_history");
    c->editor = ctl_line_open(prompt, history);
    free(history);
}

int ctl_chat_main(struct ctl *ctl)
{
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &before);
    struct chat c = {.ctl = ctl,
                     .signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                     .is_terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO)};
    int rc = c.signal_fd < 0 ? ctl_fail(CTL_FAILED, "signals cannot be awaited: %m") : read_options(&c);
    rc = rc ? rc : ctl_served_find(ctl, c.spec, &c.served);
    forget(&c);
    if (!rc && !c.served)
        rc = check_template(&c);
    if (!rc) {
        open_editor(&c);
        rc = converse(&c);
    }
    ctl_line_free(c.editor);
    if (c.signal_fd >= 0)
        close(c.signal_fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(c.served);
    json_decref(c.messages);
    json_decref(c.system);
    json_decref(c.spec);
    free(c.input);
    return rc;
}
