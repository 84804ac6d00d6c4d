/* SPDX-License-Identifier: MIT
 *
 * ringctl top: the ring, its nodes and its jobs on a screen that is drawn again at every interval,
 * until q. Owns the terminal's alternate screen while it runs. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/terminal/ctl_ask.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_meter.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/ctl/terminal/ctl_term.h"

const struct opt_def ctl_top_options[] = {
    {.name = "interval",
     .type = OPT_FLOAT,
     .placeholder = "SECONDS",
     .def = "1",
     .min = 0.2,
     .max = 3600,
     .help = "time between two refreshes of the screen",
     .short_name = 'n'},
    {.name = NULL},
};

enum { PROGRESS_COLUMNS = 14 };

/* --- what is shown ---------------------------------------------------------------------------- */

/* {"status":…,"nodes":[…],"jobs":[…]}; a running job has its last step with it. */
static int look(const struct ctl *ctl, json_t **ret)
{
    static const char *const paths[] = {"/v1/status", "/v1/nodes", "/v1/jobs"};
    json_t *answers[3] = {NULL}, *job;
    size_t i;
    int rc = CTL_OK;
    for (i = 0; i < 3 && !rc; i++)
        rc = ctl_request(ctl, "GET", paths[i], NULL, &answers[i]);
    json_array_foreach (json_object_get(answers[2], "jobs"), i, job) {
        char path[CTL_JOB_PATH];
        json_t *steps = NULL;
        if (rc || strcmp(field_text(job, "state", ""), "running") != 0 ||
            json_is_false(json_object_get(job, "up")))
            continue;
        snprintf(path, sizeof path, "/v1/jobs/%s/steps?from=%.0f", field_text(job, "name", "0"),
                 field_number(job, "step"));
        const int r = ctl_request(ctl, "GET", path, NULL, &steps);
        rc = json_object_get(job, "node") ? CTL_OK : r; /* its head may just have gone */
        json_t *list = json_object_get(steps, "steps");
        if (json_array_size(list))
            json_object_set(job, "last", json_array_get(list, json_array_size(list) - 1));
        json_decref(steps);
    }
    if (!rc)
        *ret = json_pack("{s:O,s:O,s:O}", "status", answers[0], "nodes", json_object_get(answers[1], "nodes"),
                         "jobs", json_object_get(answers[2], "jobs"));
    for (i = 0; i < 3; i++)
        json_decref(answers[i]);
    return rc;
}

struct canvas {
    FILE *to;
    size_t width; /* 0 = no limit */
    bool colors;
};

static void put(const struct canvas *c, enum paint paint, const char *text)
{
    size_t bytes = c->width ? text_bytes(text, strlen(text), c->width) : strlen(text);
    paint = c->colors ? paint : PAINT_NONE;
    fprintf(c->to, "%s%.*s%s\n", paint_on(paint), (int)bytes, text, paint_off(paint));
}

static void draw_head(const struct canvas *c, const json_t *status)
{
    char line[400];
    size_t i;
    json_t *sentence;
    const json_t *ring = json_object_get(status, "ring");
    snprintf(line, sizeof line, "%s  %s", print_time((double)time(NULL)).text,
             field_text(ring, "text", field_text(ring, "state", "?")));
    put(c, PAINT_HEAD, line);
    json_array_foreach (json_object_get(status, "trouble"), i, sentence) {
        snprintf(line, sizeof line, "TROUBLE  %s", json_string_value(sentence));
        put(c, PAINT_BAD, line);
    }
    put(c, PAINT_NONE, "");
}

static void draw_nodes(const struct canvas *c, const json_t *nodes)
{
    struct table *t = table_new("NODE\tSTATE\tTHREADS\tMEMORY USED\tJOB\tRANK\tDOING");
    size_t i, k;
    json_t *n, *more;
    json_array_foreach (nodes, i, n) {
        char bar[16], work[600];
        const json_t *stages = json_object_get(n, "stages");
        double total = field_number(n, "memory_total"), used = total - field_number(n, "memory_available");
        meter_bar(bar, sizeof bar, total > 0 ? used / total : 0, 12);
        print_work(work, sizeof work, json_array_get(stages, 0), n);
        table_add(t, "%s%s\t%s\t%.0f\t%s %s\t%s", field_text(n, "name", "?"),
                  json_is_true(json_object_get(n, "self")) ? "*" : "", field_text(n, "state", "?"),
                  field_number(n, "threads"), bar, print_bytes(used).text, work);
        json_array_foreach (stages, k, more) {
            print_work(work, sizeof work, more, more);
            if (k)
                table_add(t, "\t\t\t\t%s", work);
        }
    }
    table_print(t, c->to, c->width, c->colors);
    table_free(t);
    put(c, PAINT_NONE, "");
}

/* Why it failed or waits, or that its disk has no room for what it saves. */
static void trouble_of(const json_t *job, char *text, size_t size)
{
    const char *error = field_text(job, "error", ""), *unsaved = field_text(job, "unsaved", "");
    snprintf(text, size, "%s%s", *error ? error : *unsaved ? "not saved: " : "", *error ? "" : unsaved);
}

static void add_job(struct table *t, const json_t *job)
{
    char bar[PROGRESS_COLUMNS + 3], progress[80] = "-", speed[32] = "-", left[32] = "-", trouble[1024];
    double step = field_number(job, "step"), steps = field_number(job, "steps");
    const json_t *last = json_object_get(job, "last");
    if (steps > 0) {
        meter_bar(bar, sizeof bar, step / steps, PROGRESS_COLUMNS);
        snprintf(progress, sizeof progress, "%s %.0f/%.0f", bar, step, steps);
    }
    if (json_is_number(json_object_get(last, "tokens_per_second")))
        snprintf(speed, sizeof speed, "%.0f", field_number(last, "tokens_per_second"));
    if (field_number(last, "step_seconds") > 0)
        snprintf(left, sizeof left, "%s",
                 print_duration((steps - step) * field_number(last, "step_seconds")).text);
    trouble_of(job, trouble, sizeof trouble);
    table_add(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", field_text(job, "name", "?"), field_text(job, "type", "?"),
              field_text(job, "state", "?"), progress, print_number(json_object_get(job, "loss"), "-").text,
              speed, left, trouble);
}

static void draw(const struct canvas *c, const json_t *world)
{
    struct table *t = table_new("JOB\tTYPE\tSTATE\tPROGRESS\tLOSS\tTOKENS/S\tLEFT\tTROUBLE");
    size_t i;
    json_t *job;
    draw_head(c, json_object_get(world, "status"));
    draw_nodes(c, json_object_get(world, "nodes"));
    json_array_foreach (json_object_get(world, "jobs"), i, job)
        add_job(t, job);
    if (!table_rows(t))
        table_add(t, "no jobs");
    table_print(t, c->to, c->width, c->colors);
    table_free(t);
}

static int show_once(const struct ctl *ctl)
{
    json_t *world = NULL;
    int rc = look(ctl, &world);
    if (rc)
        return rc;
    struct canvas c = {.to = stdout, .width = term_width(stdout), .colors = term_has_colors(stdout)};
    if (ctl->json)
        print_json(world);
    else
        draw(&c, world);
    json_decref(world);
    return CTL_OK;
}

/* --- the screen ------------------------------------------------------------------------------- */

/* The alternate screen, no cursor, long lines cut; and back. */
static const char screen_on[] = "\033[?1049h\033[?25l\033[?7l", screen_off[] = "\033[?7h\033[?25h\033[?1049l";

/* Line by line over what is there, so that nothing flickers, and no more lines than leave one of
 * the window to `foot`. */
static void show_text(const char *text, const char *foot, size_t height)
{
    fputs("\033[H", stdout);
    for (size_t line = 0; *text && (!height || line + 1 < height); line++) {
        size_t n = strcspn(text, "\n");
        printf("%s%.*s\033[K", line ? "\r\n" : "", (int)n, text);
        text += n + (text[n] == '\n');
    }
    printf("\r\n%s\033[J", foot);
    fflush(stdout);
}

static void refresh(const struct ctl *ctl)
{
    char complaint[600] = "", *text = NULL;
    size_t size = 0;
    struct ctl quiet = *ctl;
    json_t *world = NULL;
    quiet.complaint = complaint;
    quiet.complaint_size = sizeof complaint;
    int rc = look(&quiet, &world);
    struct canvas c = {
        .to = open_memstream(&text, &size), .width = term_width(stdout), .colors = term_has_colors(stdout)};
    if (!c.to)
        abort();
    if (rc)
        put(&c, PAINT_BAD, complaint);
    else
        draw(&c, world);
    put(&c, PAINT_NONE, "");
    put(&c, PAINT_DIM, rc ? "ringctl tries again; q leaves" : "q leaves");
    fclose(c.to);
    show_text(text, rc ? "ringctl tries again; q leaves" : "q leaves", term_height(stdout));
    free(text);
    json_decref(world);
}

/* Until it is time to look again, or the window has another size; false when it is time to
 * leave. */
static bool wait_for_next(struct ask *keys, int signal_fd, int64_t until)
{
    struct signalfd_siginfo info;
    for (;;) {
        struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
        int64_t left = until - ctl_now_ms();
        if (left <= 0 || poll(p, 2, (int)left) <= 0)
            return true;
        if (p[0].revents) {
            int key = ask_key(keys);
            if (key == 'q' || key == 'Q' || !key)
                return false;
        }
        if (p[1].revents && read(signal_fd, &info, sizeof info) == sizeof info)
            return info.ssi_signo == SIGWINCH;
    }
}

static int show_screen(const struct ctl *ctl)
{
    struct ask keys = {.is_open = false};
    int64_t interval_ms = (int64_t)(1000 * opts_float(ctl->opts, "interval"));
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, &before);
    int signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0)
        return ctl_fail(CTL_FAILED, "signals cannot be awaited: %m");
    if (!ask_open(&keys, "")) {
        close(signal_fd);
        return ctl_fail(CTL_FAILED, "the terminal cannot be read: %m");
    }
    fputs(screen_on, stdout);
    do
        refresh(ctl);
    while (wait_for_next(&keys, signal_fd, ctl_now_ms() + interval_ms));
    fputs(screen_off, stdout);
    fflush(stdout);
    ask_close(&keys);
    close(signal_fd);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return CTL_OK;
}

int ctl_top_main(struct ctl *ctl)
{
    json_t *status = NULL;
    int rc = ctl_no_args(ctl);
    if (rc || ctl->json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        return rc ? rc : show_once(ctl);
    /* Whether anybody answers is better said before the screen is taken. */
    rc = ctl_request(ctl, "GET", "/v1/status", NULL, &status);
    json_decref(status);
    return rc ? rc : show_screen(ctl);
}
