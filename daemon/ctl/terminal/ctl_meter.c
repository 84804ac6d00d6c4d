/* SPDX-License-Identifier: MIT
 *
 * Owns nothing but the cursor's line. Called by ctl_follow.c for each event; the bar also by
 * ctl_top.c. */
#include "daemon/ctl/terminal/ctl_meter.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_term.h"

enum { TENTHS = 10, LINE_S = 60, BAR_LEAST = 8, BAR_MOST = 32, LINE_MAX_BYTES = 400 };

void meter_init(struct meter *m)
{
    *m = (struct meter){.is_terminal = isatty(STDERR_FILENO)};
}

void meter_clear(struct meter *m)
{
    if (m->line_open)
        fputs("\r\033[K", stderr);
    if (m->is_in_text)
        fputc('\n', stderr);
    m->line_open = m->is_passing = m->is_in_text = false;
}

void meter_wrote(struct meter *m, const char *text)
{
    if (*text && m->is_terminal && isatty(STDOUT_FILENO))
        m->is_in_text = text[strlen(text) - 1] != '\n';
}

void meter_bar(char *ret, size_t size, double part, size_t columns)
{
    size_t inner = columns < 3 ? 1 : columns - 2, at = 0;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    if (size < inner + 3)
        inner = size - 3;
    ret[at++] = '[';
    for (size_t i = 0; i < inner; i++)
        ret[at++] = (double)i < part * (double)inner ? '#' : '.';
    ret[at++] = ']';
    ret[at] = '\0';
}

/* As many of the fields, two spaces apart, as the terminal has room for; of the first one, what
 * there is room for. */
static size_t fitting(const char *text, size_t width)
{
    size_t bytes = strlen(text), fits = width ? text_bytes(text, bytes, width - 1) : bytes, cut = fits;
    if (fits == bytes)
        return bytes;
    while (cut && strncmp(text + cut, "  ", 2) != 0)
        cut--;
    return cut ? cut : fits;
}

/* The line of a terminal: a bar if there is room for one, and no more than the terminal holds. */
static void show_on_terminal(struct meter *m, double part, const char *text)
{
    char bar[BAR_MOST + 1] = "";
    size_t width = term_width(stderr), columns = text_columns(text, strlen(text));
    size_t room = !width ? BAR_MOST : width > columns + 2 ? width - columns - 2 : 0;
    meter_clear(m);
    if (room >= BAR_LEAST)
        meter_bar(bar, sizeof bar, part, room < BAR_MOST ? room : BAR_MOST);
    size_t bytes = fitting(text, width);
    fprintf(stderr, "%s%s%.*s", bar, *bar ? " " : "", (int)bytes, text);
    m->line_open = true;
    fflush(stderr);
}

/* Of all adapters together. */
static size_t add_speed(char *text, size_t size, const struct meter *m, const json_t *e)
{
    double speed = 0;
    for (size_t i = 0; i < m->n; i++)
        speed += m->of[i].speed;
    return speed > 0 ? (size_t)snprintf(text, size, "  %.0f tokens/s  bubble %.0f %%", speed,
                                        100 * field_number(e, "bubble"))
                     : 0;
}

/* Whom the event speaks of; NULL of more adapters than there is room for. */
static struct meter_of *speaker(struct meter *m, const json_t *e)
{
    const char *name = field_text(e, "adapter", "");
    size_t i = 0;
    while (i < m->n && strcmp(m->of[i].name, name) != 0)
        i++;
    if (i == sizeof m->of / sizeof *m->of)
        return NULL;
    if (i == m->n)
        snprintf(m->of[m->n++].name, sizeof m->of[i].name, "%s", name);
    return &m->of[i];
}

/* On a terminal those of all adapters, as they stand in one line; elsewhere each has a line of its
 * own. */
static size_t add_losses(char *text, size_t size, const struct meter *m, const struct meter_of *of)
{
    size_t at = 0;
    if (!*of->name)
        return (size_t)snprintf(text, size, "  loss %.4f", of->loss);
    for (size_t i = 0; i < m->n && at < size; i++)
        if (m->is_terminal || &m->of[i] == of)
            at += (size_t)snprintf(text + at, size - at, "  %s %.4f", m->of[i].name, m->of[i].loss);
    return at < size ? at : size - 1;
}

/* What is right so far, of a job that evaluates. */
static size_t add_right(char *text, size_t size, const json_t *e)
{
    static const char *const names[] = {"acc", "exact_match"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_get(e, names[i]))
            return (size_t)snprintf(text, size, "  %s %.4f", names[i], field_number(e, names[i]));
    return 0;
}

/* "step 3", of an adapter of several "step 3  lr-1e-4" */
static void print_step(const json_t *e)
{
    const char *name = field_text(e, "adapter", "");
    fprintf(stderr, "step %.0f%s%s", field_number(e, "step"), *name ? "  " : "", name);
}

static void show_step(struct meter *m, const json_t *e)
{
    char text[LINE_MAX_BYTES];
    int64_t step = (int64_t)field_number(e, "step"), steps = (int64_t)field_number(e, "steps");
    double loss = field_number(e, "loss"), seconds = field_number(e, "step_seconds");
    struct meter_of *of = speaker(m, e);
    if (!of)
        return;
    of->loss = loss;
    of->speed = field_number(e, "tokens_per_second");
    /* The mean of the latest steps rather than of all: the first one also loads the model. */
    m->step_seconds = m->step_seconds > 0 ? 0.8 * m->step_seconds + 0.2 * seconds : seconds;
    bool is_first = of->shown_s == 0;
    const bool has_loss = json_is_number(json_object_get(e, "loss"));
    if (!m->has_loss)
        m->first_loss = loss;
    m->has_loss = m->has_loss || has_loss;
    m->last_loss = loss;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t tenth = steps > 0 ? TENTHS * step / steps : step;
    if (!m->is_terminal && !is_first && tenth <= of->tenths_shown && now.tv_sec - of->shown_s < LINE_S)
        return;
    of->tenths_shown = tenth;
    of->shown_s = now.tv_sec;
    size_t at = (size_t)snprintf(text, sizeof text, "step %" PRId64 "/%" PRId64, step, steps);
    at +=
        has_loss ? add_losses(text + at, sizeof text - at, m, of) : add_right(text + at, sizeof text - at, e);
    at += add_speed(text + at, sizeof text - at, m, e);
    if (steps > step && m->step_seconds > 0)
        snprintf(text + at, sizeof text - at, "  %s left",
                 print_duration((double)(steps - step) * m->step_seconds).text);
    if (m->is_terminal)
        show_on_terminal(m, steps > 0 ? (double)step / (double)steps : 0, text);
    else
        fprintf(stderr, "%s\n", text);
}

/* Why a job does not start or go on, once for each reason. */
static void show_wait(struct meter *m, const json_t *job)
{
    const char *why = field_text(job, "error", ""), *state = field_text(job, "state", "");
    const bool is_interrupted = !strcmp(state, "interrupted");
    if ((strcmp(state, "queued") != 0 && !is_interrupted) || !*why || !strcmp(why, m->waits_for))
        return;
    snprintf(m->waits_for, sizeof m->waits_for, "%s", why);
    meter_clear(m);
    fprintf(stderr, "job %.0f %s%s\n", field_number(job, "id"), is_interrupted ? "was " : "waits: ", why);
}

static void show_start(struct meter *m, const json_t *job)
{
    if (!m->shows_start || !m->is_terminal || m->n || strcmp(field_text(job, "state", ""), "planned") != 0)
        return;
    meter_clear(m);
    fprintf(stderr, "job %.0f gets ready", field_number(job, "id"));
    fflush(stderr);
    m->line_open = m->is_passing = true;
}

/* The first job with a model reads all of it once. */
static void show_reading(struct meter *m, const json_t *e)
{
    const double done = field_number(e, "done"), total = field_number(e, "total");
    if (!m->is_terminal || m->n)
        return;
    meter_clear(m);
    fprintf(stderr, "%s reads the weights once to know them: %.1f of %.1f GiB", field_text(e, "node", "?"),
            done / (1 << 30), total / (1 << 30));
    fflush(stderr);
    m->line_open = m->is_passing = true;
}

/* Weights that a node lacks are on their way. */
static void show_coming(struct meter *m, const json_t *e)
{
    if (!m->is_terminal || m->n)
        return;
    meter_clear(m);
    fputs(field_text(e, "text", "weights are on their way"), stderr);
    fflush(stderr);
    m->line_open = m->is_passing = true;
}

/* Of each set of --eval-data its loss. */
static void show_sets(const json_t *e)
{
    static const char set[] = "valid_loss/";
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)e, key, value)
        if (!strncmp(key, set, sizeof set - 1))
            fprintf(stderr, "  %s %.4f", key + sizeof set - 1, json_number_value(value));
}

bool meter_event(struct meter *m, const char *type, const json_t *data)
{
    if (!strcmp(type, "step")) {
        show_step(m, data);
    } else if (!strcmp(type, "job")) {
        show_wait(m, data);
        show_start(m, data);
    } else if (!strcmp(type, "reading")) {
        show_reading(m, data);
    } else if (!strcmp(type, "coming")) {
        show_coming(m, data);
    } else if (!strcmp(type, "valid")) {
        meter_clear(m);
        print_step(data);
        fprintf(stderr, "  valid loss %.4f over %.0f tokens", field_number(data, "valid_loss"),
                field_number(data, "valid_tokens"));
        if (json_object_get(data, "valid_rewards/margins"))
            fprintf(stderr, "  margin %.4f, %.1f %% prefer the chosen answer",
                    field_number(data, "valid_rewards/margins"),
                    100 * field_number(data, "valid_rewards/accuracies"));
        show_sets(data);
        if (json_object_get(data, "exact_match"))
            fprintf(stderr, "  %.1f %% of %.0f answers match", 100 * field_number(data, "exact_match"),
                    field_number(data, "questions"));
        fputc('\n', stderr);
    } else if (!strcmp(type, "sample")) {
        meter_clear(m);
        print_step(data);
        fprintf(stderr, "  writes: %s%s\n", field_text(data, "prompt", ""), field_text(data, "sample", ""));
    } else if (!strcmp(type, "log")) {
        meter_clear(m);
        fprintf(stderr, "%s\n", field_text(data, "text", ""));
    } else {
        return false;
    }
    return true;
}
